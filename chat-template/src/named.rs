//! Templates by name, for models that come without one. Each writes the format that the model's publisher documents.

use crate::{ChatTemplate, SpecialTokens, TemplateError};

/// Name, what it is for, and the template.
pub const NAMED: &[(&str, &str, &str)] = &[
    ("chatml", "Qwen, SmolLM2, Yi, Hermes and many fine-tunes", CHATML),
    ("llama3", "Llama 3, 3.1, 3.2 and 3.3 without tools", LLAMA3),
    ("llama2", "Llama 2 chat", LLAMA2),
    ("mistral", "Mistral and Mixtral instruct", MISTRAL),
    ("gemma", "Gemma 1, 2 and 3", GEMMA),
    ("phi3", "Phi-3 and Phi-3.5", PHI3),
    ("zephyr", "Zephyr, StableLM and TinyLlama chat", ZEPHYR),
    ("granite", "Granite 3", GRANITE),
    ("alpaca", "Alpaca and its descendants", ALPACA),
    ("vicuna", "Vicuna 1.1 and later", VICUNA),
    ("plain", "models without a format: the messages, a line each", PLAIN),
];

/// The template of a name.
///
/// # Errors
///
/// [`TemplateError::UnknownName`] with the names there are.
pub fn named(name: &str, tokens: SpecialTokens) -> Result<ChatTemplate, TemplateError> {
    match NAMED.iter().find(|(known, ..)| *known == name) {
        Some((.., source)) => ChatTemplate::with_tokens(source, tokens),
        None => {
            let found = NAMED.iter().map(|(known, ..)| (*known).to_owned()).collect();
            Err(TemplateError::UnknownName { name: name.into(), found })
        }
    }
}

const PLAIN: &str = "{%- for message in messages -%}{{- message.content + '\\n' -}}{%- endfor -%}";

const CHATML: &str = "\
{%- for message in messages -%}
    {{- '<|im_start|>' + message.role + '\\n' + message.content + '<|im_end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|im_start|>assistant\\n' -}}{%- endif -%}";

const LLAMA3: &str = "\
{{- bos_token -}}
{%- for message in messages -%}
    {{- '<|start_header_id|>' + message.role + '<|end_header_id|>\\n\\n' + message.content | trim + '<|eot_id|>' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start_header_id|>assistant<|end_header_id|>\\n\\n' -}}{%- endif -%}";

const LLAMA2: &str = "\
{%- set system = messages[0].content if messages[0].role == 'system' else none -%}
{%- set turns = messages[1:] if system is not none else messages -%}
{%- for message in turns -%}
    {%- if message.role == 'user' -%}
        {%- set before = '<<SYS>>\\n' + system + '\\n<</SYS>>\\n\\n' if loop.first and system is not none else '' -%}
        {{- bos_token + '[INST] ' + before + message.content | trim + ' [/INST]' -}}
    {%- elif message.role == 'assistant' -%}
        {{- ' ' + message.content | trim + ' ' + eos_token -}}
    {%- else -%}
        {{- raise_exception('expected user and assistant in turns, found ' + message.role) -}}
    {%- endif -%}
{%- endfor -%}";

const MISTRAL: &str = "\
{{- bos_token -}}
{%- set system = messages[0].content if messages[0].role == 'system' else none -%}
{%- set turns = messages[1:] if system is not none else messages -%}
{%- for message in turns -%}
    {%- if message.role == 'user' -%}
        {{- '[INST] ' + (system + '\\n\\n' if loop.last and system is not none else '') + message.content + '[/INST]' -}}
    {%- elif message.role == 'assistant' -%}
        {{- ' ' + message.content + eos_token -}}
    {%- else -%}
        {{- raise_exception('expected user and assistant in turns, found ' + message.role) -}}
    {%- endif -%}
{%- endfor -%}";

const GEMMA: &str = "\
{{- bos_token -}}
{%- set system = messages[0].content if messages[0].role == 'system' else none -%}
{%- set turns = messages[1:] if system is not none else messages -%}
{%- for message in turns -%}
    {%- set role = 'model' if message.role == 'assistant' else message.role -%}
    {%- set before = system + '\\n\\n' if loop.first and system is not none else '' -%}
    {{- '<start_of_turn>' + role + '\\n' + before + message.content | trim + '<end_of_turn>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<start_of_turn>model\\n' -}}{%- endif -%}";

const PHI3: &str = "\
{%- for message in messages -%}
    {{- '<|' + message.role + '|>\\n' + message.content + '<|end|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>\\n' -}}{%- endif -%}";

const ZEPHYR: &str = "\
{%- for message in messages -%}
    {{- '<|' + message.role + '|>\\n' + message.content + (eos_token or '</s>') + '\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|assistant|>\\n' -}}{%- endif -%}";

const GRANITE: &str = "\
{%- for message in messages -%}
    {{- '<|start_of_role|>' + message.role + '<|end_of_role|>' + message.content + '<|end_of_text|>\\n' -}}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '<|start_of_role|>assistant<|end_of_role|>' -}}{%- endif -%}";

const ALPACA: &str = "\
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {{- message.content + '\\n\\n' -}}
    {%- elif message.role == 'user' -%}
        {{- '### Instruction:\\n' + message.content + '\\n\\n' -}}
    {%- else -%}
        {{- '### Response:\\n' + message.content + eos_token + '\\n\\n' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- '### Response:\\n' -}}{%- endif -%}";

const VICUNA: &str = "\
{{- bos_token -}}
{%- for message in messages -%}
    {%- if message.role == 'system' -%}
        {{- message.content + '\\n\\n' -}}
    {%- elif message.role == 'user' -%}
        {{- 'USER: ' + message.content + '\\n' -}}
    {%- else -%}
        {{- 'ASSISTANT: ' + message.content + eos_token + '\\n' -}}
    {%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}{{- 'ASSISTANT:' -}}{%- endif -%}";
