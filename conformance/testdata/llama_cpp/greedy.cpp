// greedy MODEL.gguf N < prompt: the prompt's ids in a line, then N greedy tokens by libllama, each with its lead over the next best.
//
// The cache is float32 and attention is not flash attention: one thing less in which the two engines differ.
#include "llama.h"

#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

int main(int, char** args) {
    llama_log_set([](ggml_log_level, const char*, void*) {}, nullptr);
    std::string text;
    for (int c; (c = getchar()) != EOF;) text += char(c);
    llama_model* model = llama_model_load_from_file(args[1], llama_model_default_params());
    if (!model) return 1;
    const llama_vocab* vocab = llama_model_get_vocab(model);
    auto params = llama_context_default_params();
    params.n_ctx = params.n_batch = 512;
    params.n_threads = params.n_threads_batch = 1;
    params.type_k = params.type_v = GGML_TYPE_F32;
    params.flash_attn_type = LLAMA_FLASH_ATTN_TYPE_DISABLED;
    llama_context* context = llama_init_from_model(model, params);
    std::vector<llama_token> ids(text.size() + 1);
    ids.resize(llama_tokenize(vocab, text.data(), text.size(), ids.data(), ids.size(), true, false));
    for (llama_token id : ids) printf("%d ", id);
    printf("\n");
    llama_batch batch = llama_batch_get_one(ids.data(), ids.size());
    for (int step = 0; step < atoi(args[2]); step++) {
        if (llama_decode(context, batch)) return 1;
        const float* logits = llama_get_logits_ith(context, -1);
        int best = 0, next = -1;
        for (int i = 1; i < llama_vocab_n_tokens(vocab); i++) {
            if (logits[i] > logits[best]) next = best, best = i;
            else if (next < 0 || logits[i] > logits[next]) next = i;
        }
        printf("%d %.4f\n", best, logits[best] - logits[next]);
        ids = {best};
        batch = llama_batch_get_one(ids.data(), 1);
    }
}
