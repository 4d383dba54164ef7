//! What templates written for Python rely on.

use chat_template::{Chat, ChatTemplate, Message, TemplateError, find};
use serde_json::{Value, json};

fn render(source: &str) -> String {
    render_chat(source, &Chat::new(vec![Message::user("Hi")]))
}

fn render_chat(source: &str, chat: &Chat) -> String {
    ChatTemplate::new(source).unwrap().render(chat).unwrap_or_else(|e| panic!("{source}: {e:?}"))
}

fn variables(value: Value) -> Chat {
    let Value::Object(variables) = value else { panic!() };
    Chat { variables, ..Chat::new(vec![Message::user("Hi")]) }
}

#[test]
fn blocks_take_their_line_with_them() {
    assert_eq!(
        render("{% for m in messages %}\n  {% if m.role %}\n{{ m.content }}\n  {% endif %}\n{% endfor %}\nend\n"),
        "Hi\nend"
    );
    assert_eq!(render("a\n    {%- generation -%}\n b {%- endgeneration %} c"), "ab c");
    assert_eq!(
        render(
            "{% for i in range(9) %}{% if i == 2 %}{% continue %}{% endif %}{% if i > 3 %}{% break %}{% endif %}{{ i }}{% endfor %}"
        ),
        "013"
    );
}

#[test]
fn json_is_written_as_python_writes_it() {
    let chat = variables(
        json!({"v": {"z": [1, 2.0, 1e20, 0.00001], "a": "é<&>'\"\n", "n": null, "t": true, "e": [], "o": {}}}),
    );
    let plain = r#"{"z": [1, 2.0, 1e+20, 1e-05], "a": "é<&>'\"\n", "n": null, "t": true, "e": [], "o": {}}"#;
    assert_eq!(render_chat("{{ v | tojson }}", &chat), plain);
    let ascii = r#"{"a": "\u00e9<&>'\"\n", "e": [], "n": null, "o": {}, "t": true, "z": [1, 2.0, 1e+20, 1e-05]}"#;
    assert_eq!(render_chat("{{ v | tojson(ensure_ascii=True, sort_keys=True) }}", &chat), ascii);
    let lines = variables(json!({"v": {"a": [1, {"b": 2}], "e": [], "o": {}}}));
    let expected = "{\n  \"a\": [\n    1,\n    {\n      \"b\": 2\n    }\n  ],\n  \"e\": [],\n  \"o\": {}\n}";
    assert_eq!(render_chat("{{ v | tojson(indent=2) }}", &lines), expected);
    assert_eq!(render_chat("{{ v | tojson(separators=(',', ':')) }}", &lines), r#"{"a":[1,{"b":2}],"e":[],"o":{}}"#);
    assert_eq!(render_chat("{{ v | tojson }}", &variables(json!({"v": "😀"}))), "\"😀\"");
    assert_eq!(render_chat("{{ v | tojson(ensure_ascii=True) }}", &variables(json!({"v": "😀"}))), r#""\ud83d\ude00""#);
}

#[test]
fn values_are_printed_as_python_prints_them() {
    let chat = variables(json!({"v": [true, null, 1.0, "it's", {"k": false}]}));
    assert_eq!(render_chat("{{ v }}", &chat), r#"[True, None, 1.0, "it's", {'k': False}]"#);
    assert_eq!(render("{{ true }} {{ none }} {{ 1.5 }} {{ missing }}|{{ true | string }}"), "True None 1.5 |True");
}

#[test]
fn methods_of_python_work() {
    assert_eq!(
        render("{{ ' a,b '.strip().split(',') | join('-') }} {{ 'x'.startswith('x') }} {{ 'abc'[1:] }}"),
        "a-b True bc"
    );
    assert_eq!(render("{% for k, v in {'a': 1}.items() %}{{ k }}{{ v }}{% endfor %}{{ {'a': 1}.get('b', 2) }}"), "a12");
    assert_eq!(render("{% set n = namespace(x=1) %}{% if true %}{% set n.x = 2 %}{% endif %}{{ n.x }}"), "2");
    assert_eq!(render("{{ none is iterable }} {{ [] is iterable }} {{ {} is mapping }}"), "False True True");
    assert_eq!(render("{{ messages[-1].content }}{{ messages[0]['content'] | upper }}"), "HiHI");
}

#[test]
fn time_is_in_pythons_format() {
    let year = render("{{ strftime_now('%Y') }}");
    assert!(year.parse::<u32>().is_ok_and(|year| year >= 2026), "{year}");
    assert_eq!(render("{{ strftime_now('%d %b %Y') | length }}"), "11");
}

#[test]
fn what_a_template_says_is_reported() {
    let template =
        ChatTemplate::new("{% if messages[0].role == 'system' %}{{ raise_exception('no ' ~ 'system') }}{% endif %}ok")
            .unwrap();
    match template.render(&Chat::new(vec![Message::system("S")])) {
        Err(TemplateError::Refused { message }) => assert_eq!(message, "no system"),
        other => panic!("{other:?}"),
    }
    assert_eq!(template.render(&Chat::new(vec![Message::user("U")])).unwrap(), "ok");
    let broken = ChatTemplate::new("a\n{% if %}").unwrap_err();
    assert_eq!(broken.to_string(), "the chat template is invalid at line 2");
    let failing = ChatTemplate::new("a\n{{ messages.no.such }}").unwrap().render(&Chat::new(vec![Message::user("U")]));
    assert_eq!(failing.unwrap_err().to_string(), "the chat template cannot be rendered at line 2");
}

#[test]
fn a_template_that_never_ends_is_ended() {
    let endless = "{% for i in range(99999) %}{% for j in range(99999) %}{% for k in range(99999) %}{% endfor %}{% endfor %}{% endfor %}";
    let failed = ChatTemplate::new(endless).unwrap().render(&Chat::new(vec![Message::user("U")]));
    assert!(matches!(failed, Err(TemplateError::Render { .. })), "{failed:?}");
}

#[test]
fn messages_come_in_the_form_that_the_template_wants() {
    let parts = Message::from_json(
        0,
        json!({"role": "user", "content": [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]}),
    );
    let parts = Chat::new(vec![parts.unwrap()]);
    let plain = Chat::new(vec![Message::user("ab")]);
    let wants_text = "{% for m in messages %}[{{ m.content }}]{% endfor %}";
    let wants_parts = "{% for m in messages %}{% for p in m['content'] %}[{{ p['text'] }}]{% endfor %}{% endfor %}";
    assert_eq!(render_chat(wants_text, &plain), "[ab]");
    assert_eq!(render_chat(wants_text, &parts), "[ab]");
    assert_eq!(render_chat(wants_parts, &plain), "[ab]");
    assert_eq!(render_chat(wants_parts, &parts), "[a][b]");

    let call = |arguments| Chat::new(vec![Message::user("Q"), Message::assistant("").with_call("1", "f", arguments)]);
    let as_object = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ c.function.arguments | tojson }}{% endfor %}{% endfor %}";
    let as_text = "{% for m in messages %}{% for c in m.tool_calls or [] %}{{ '<' + c.function.arguments + '>' }}{% endfor %}{% endfor %}";
    for arguments in [json!({"a": 1}), json!("{\"a\": 1}")] {
        assert_eq!(render_chat(as_object, &call(arguments.clone())), "{\"a\": 1}");
        assert_eq!(render_chat(as_text, &call(arguments)).replace(' ', ""), "<{\"a\":1}>");
    }
    let null = Message::from_json(0, json!({"role": "assistant", "content": null})).unwrap();
    assert_eq!(
        render_chat("{% for m in messages %}{{ '<' + m.content + '>' }}{% endfor %}", &Chat::new(vec![null])),
        "<>"
    );
}

#[test]
fn messages_that_no_template_takes_are_named() {
    let cases = [
        (json!("text"), "message 0: message: expected an object, found \"text\""),
        (json!({"content": "x"}), "message 0: `role`: expected a name such as \"user\", found null"),
        (
            json!({"role": "user", "content": 3}),
            "message 0: `content`: expected text, a list of parts, or null, found 3",
        ),
        (
            json!({"role": "user", "content": ["x"]}),
            "message 0: a part of `content`: expected an object with a `type`, found \"x\"",
        ),
        (
            json!({"role": "assistant", "tool_calls": [{}]}),
            "message 0: a call in `tool_calls`: expected an object with `function.name`, found {}",
        ),
    ];
    for (message, expected) in cases {
        assert_eq!(Chat::from_json(vec![message]).unwrap_err().to_string(), expected);
    }
}

#[test]
fn a_folder_has_a_template_a_list_or_none() {
    let folder = std::env::temp_dir().join(format!("chat-template-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    let config = folder.join(find::CONFIG_FILE);
    let text = |name| {
        find::in_folder(&folder, name).map(|t| t.map(|t| t.render(&Chat::new(vec![Message::user("U")])).unwrap()))
    };
    assert_eq!(text(None).unwrap(), None);
    std::fs::write(&config, r#"{"bos_token": {"content": "<b>"}, "chat_template": "{{ bos_token }}one"}"#).unwrap();
    assert_eq!(text(None).unwrap().unwrap(), "<b>one");
    let list = r#"{"chat_template": [{"name": "default", "template": "d"}, {"name": "tool_use", "template": "t"}]}"#;
    std::fs::write(&config, list).unwrap();
    assert_eq!(text(None).unwrap().unwrap(), "d");
    assert_eq!(text(Some("tool_use")).unwrap().unwrap(), "t");
    let unknown = text(Some("rag")).unwrap_err().to_string();
    assert_eq!(unknown, "there is no chat template `rag`: found default, tool_use");
    std::fs::write(folder.join(find::TEMPLATE_FILE), "file").unwrap();
    assert_eq!(text(None).unwrap().unwrap(), "file");
    std::fs::remove_file(folder.join(find::TEMPLATE_FILE)).unwrap();
    for (bad, why) in [
        ("{", "is not JSON"),
        (r#"{"chat_template": 1}"#, "neither a text nor a list"),
        (r#"{"chat_template": [1]}"#, "entries"),
    ] {
        std::fs::write(&config, bad).unwrap();
        let error = text(None).unwrap_err().to_string();
        assert!(error.contains(why), "{error}");
    }
    std::fs::remove_dir_all(folder).unwrap();
}

/// Fuel bounds the steps of a template, not how deep its values and its expressions are: each of these ended the process.
#[test]
fn a_template_cannot_take_the_whole_stack() {
    let nested = "{% set ns = namespace(x=[]) %}{% for i in range(90000) %}{% set ns.x = [ns.x] %}{% endfor %}";
    let doubled = "{% set ns = namespace(x=['a']) %}{% for i in range(40) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}";
    for write in ["{{ ns.x }}", "{{ ns.x | tojson }}", "{{ ns.x | string }}", "{{ raise_exception(ns.x) }}"] {
        for (values, why) in [(nested, "more than 500 levels"), (doubled, "more than 67108864 bytes")] {
            let template = ChatTemplate::new(&format!("{values}{write}")).unwrap();
            let error = template.render(&Chat::new(vec![Message::user("Hi")])).unwrap_err();
            assert!(format!("{error:?}").contains(why), "{write}: {error:?}");
        }
    }
    assert_eq!(render(&format!("{nested}{{{{ ns.x | length }}}}")), "1");

    let n = 100_000;
    assert_eq!(render(&format!("{{{{ 1{} }}}}", "+1".repeat(n))), (n + 1).to_string());
    assert_eq!(render(&format!("{{{{ {}1 }}}}", "not ".repeat(n / 2))), "True");
    assert_eq!(render(&format!("{{{{ 1{} }}}}", "|int".repeat(n / 2))), "1");
    let chain = "{%elif m%}".repeat(n / 5);
    assert_eq!(render(&format!("{{%if m%}}{chain}{{%endif%}}")), "");
    let error = ChatTemplate::new(&" ".repeat(300_000)).unwrap_err();
    assert_eq!(error.to_string(), "the chat template has 300000 bytes, expected at most 262144");
}

/// Each of these made texts until the system had no memory left.
#[test]
fn a_template_cannot_take_the_whole_memory() {
    let grown = |n: usize, by: &str| {
        format!(
            "{{% set ns = namespace(s='0123456789') %}}{{% for i in range({n}) %}}{{% set ns.s = {by} %}}{{% endfor %}}"
        )
    };
    let doubled = grown(20, "ns.s ~ ns.s");
    let cases = [
        (grown(60, "ns.s ~ ns.s"), "OutOfFuel"),
        (grown(60, "ns.s + ns.s"), "OutOfFuel"),
        (grown(60, "ns.s * 2"), "OutOfFuel"),
        (grown(60, "ns.s.join(['', '', ''])"), "more than 67108864 bytes"),
        (grown(60, "ns.s.replace('0', '00')"), "more than 67108864 bytes"),
        (format!("{doubled}{{{{ ns.s.replace('0', ns.s) }}}}"), "more than 67108864 bytes"),
        (format!("{doubled}{{{{ ns.s.replace('', ns.s) }}}}"), "more than 67108864 bytes"),
        (format!("{doubled}{{{{ ''.join([ns.s] * 100000) }}}}"), "more than 67108864 bytes"),
        (format!("{doubled}{{{{ ([ns.s] * 100000) | join }}}}"), "more than 67108864 bytes"),
        (format!("{doubled}{{{{ [1, 2] * 100000 | join(ns.s) }}}}"), ""),
    ];
    for (template, why) in &cases {
        let error = ChatTemplate::new(template).unwrap().render(&Chat::new(vec![Message::user("Hi")])).unwrap_err();
        assert!(format!("{error:?}").contains(why), "{template}: {error:?}");
    }
    assert_eq!(
        render("{{ ', '.join(['a', 'b']) }} {{ ['a', 'b'] | join('-') }} {{ 'aXb'.replace('X', '--') }}"),
        "a, b a-b a--b"
    );
}
