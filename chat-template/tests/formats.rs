//! Messages in, the text that the publishers of the families document out.

use chat_template::{Chat, Message, NAMED, SpecialTokens, TemplateError, named};

fn tokens() -> SpecialTokens {
    [("bos_token", "<s>"), ("eos_token", "</s>")].map(|(k, v)| (k.to_owned(), v.into())).into_iter().collect()
}

fn turns() -> Vec<Message> {
    vec![
        Message::system("Be kind."),
        Message::user("Hello"),
        Message::assistant("Hi!"),
        Message::user("What is 1 + 1?"),
    ]
}

#[test]
fn each_family_has_its_documented_text() {
    let expected = [
        (
            "chatml",
            "<|im_start|>system\nBe kind.<|im_end|>\n<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\nHi!<|im_end|>\n\
             <|im_start|>user\nWhat is 1 + 1?<|im_end|>\n<|im_start|>assistant\n",
        ),
        (
            "llama3",
            "<s><|start_header_id|>system<|end_header_id|>\n\nBe kind.<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n\
             Hello<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\nHi!<|eot_id|><|start_header_id|>user<|end_header_id|>\n\n\
             What is 1 + 1?<|eot_id|><|start_header_id|>assistant<|end_header_id|>\n\n",
        ),
        ("llama2", "<s>[INST] <<SYS>>\nBe kind.\n<</SYS>>\n\nHello [/INST] Hi! </s><s>[INST] What is 1 + 1? [/INST]"),
        ("mistral", "<s>[INST] Hello[/INST] Hi!</s>[INST] Be kind.\n\nWhat is 1 + 1?[/INST]"),
        (
            "gemma",
            "<s><start_of_turn>user\nBe kind.\n\nHello<end_of_turn>\n<start_of_turn>model\nHi!<end_of_turn>\n\
             <start_of_turn>user\nWhat is 1 + 1?<end_of_turn>\n<start_of_turn>model\n",
        ),
        (
            "phi3",
            "<|system|>\nBe kind.<|end|>\n<|user|>\nHello<|end|>\n<|assistant|>\nHi!<|end|>\n<|user|>\nWhat is 1 + 1?<|end|>\n\
             <|assistant|>\n",
        ),
        (
            "zephyr",
            "<|system|>\nBe kind.</s>\n<|user|>\nHello</s>\n<|assistant|>\nHi!</s>\n<|user|>\nWhat is 1 + 1?</s>\n<|assistant|>\n",
        ),
        (
            "granite",
            "<|start_of_role|>system<|end_of_role|>Be kind.<|end_of_text|>\n<|start_of_role|>user<|end_of_role|>Hello<|end_of_text|>\n\
             <|start_of_role|>assistant<|end_of_role|>Hi!<|end_of_text|>\n\
             <|start_of_role|>user<|end_of_role|>What is 1 + 1?<|end_of_text|>\n<|start_of_role|>assistant<|end_of_role|>",
        ),
        (
            "alpaca",
            "Be kind.\n\n### Instruction:\nHello\n\n### Response:\nHi!</s>\n\n### Instruction:\nWhat is 1 + 1?\n\n### Response:\n",
        ),
        ("vicuna", "<s>Be kind.\n\nUSER: Hello\nASSISTANT: Hi!</s>\nUSER: What is 1 + 1?\nASSISTANT:"),
        ("plain", "Be kind.\nHello\nHi!\nWhat is 1 + 1?\n"),
    ];
    assert_eq!(expected.map(|(name, _)| name).as_slice(), NAMED.iter().map(|row| row.0).collect::<Vec<_>>());
    for (name, text) in expected {
        let template = named(name, tokens()).unwrap();
        assert_eq!(template.render(&Chat::new(turns())).unwrap(), text, "{name}");
    }
}

#[test]
fn a_conversation_is_a_prefix_of_the_longer_one() {
    // What is in the cache stays valid: the next turn only adds text.
    for (name, ..) in NAMED.iter().filter(|row| row.0 != "mistral") {
        let template = named(name, tokens()).unwrap();
        let first = template.render(&Chat::new(turns()[..2].to_vec())).unwrap();
        let second = template.render(&Chat::new(turns())).unwrap();
        assert!(second.starts_with(first.trim_end()), "{name}: {first:?} {second:?}");
    }
}

#[test]
fn no_generation_prompt_and_no_bos() {
    let template = named("llama3", tokens()).unwrap();
    let chat = Chat { add_generation_prompt: false, ..Chat::new(vec![Message::user(" Hello ")]) };
    let text = "<|start_header_id|>user<|end_header_id|>\n\nHello<|eot_id|>";
    assert_eq!(template.render(&chat).unwrap(), format!("<s>{text}"));
    assert_eq!(template.render_without_bos(&chat).unwrap(), text);
}

#[test]
fn names_and_roles_are_refused_with_what_there_is() {
    let unknown = named("chatmI", tokens()).unwrap_err();
    assert!(unknown.to_string().contains("chatml, llama3"), "{unknown}");
    let chat = Chat::new(vec![Message::new("tool", "4")]);
    match named("llama2", tokens()).unwrap().render(&chat) {
        Err(TemplateError::Refused { message }) => assert!(message.contains("found tool"), "{message}"),
        other => panic!("{other:?}"),
    }
    assert!(matches!(named("phi3", tokens()).unwrap().render(&Chat::new(vec![])), Err(TemplateError::NoMessages)));
}
