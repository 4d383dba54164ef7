//! Chat templates in `genie run`, and `genie chat` over a pipe.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::OnceLock;

use serde_json::{Value, json};

use crate::program::{command, stderr};

const TEMPLATE: &str = "{% for m in messages %}{% if m.role == 'tool' %}{{ raise_exception('no tools') }}{% endif %}\
    {{ m.role | upper }}:\n{{ m.content }}\n\n{% endfor %}{% if add_generation_prompt %}ASSISTANT:\n{% endif %}";

struct Place {
    folder: tempfile::TempDir,
}

impl Place {
    /// A bundle of the demo with a chat template; compiled once.
    fn get() -> &'static Self {
        static PLACE: OnceLock<Place> = OnceLock::new();
        PLACE.get_or_init(|| {
            let place = Self { folder: tempfile::tempdir().unwrap() };
            let demo = Path::new(env!("CARGO_MANIFEST_DIR")).join("../models/demo");
            let model = place.path("model");
            std::fs::create_dir(&model).unwrap();
            for name in ["config.json", "generation_config.json", "model.safetensors", "tokenizer.json"] {
                std::fs::copy(demo.join(name), model.join(name)).unwrap();
            }
            std::fs::write(model.join("tokenizer_config.json"), json!({ "chat_template": TEMPLATE }).to_string())
                .unwrap();
            place.done(&["compile", "model", "-o", "bundle", "--ar", "1,32", "--cl", "64,256"]);
            place
        })
    }

    fn path(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    fn command(&self, args: &[&str]) -> Command {
        let mut command = command(self.folder.path(), args);
        command.env("XDG_STATE_HOME", self.path("state"));
        command
    }

    fn run(&self, args: &[&str]) -> Output {
        self.command(args).output().unwrap()
    }

    fn done(&self, args: &[&str]) -> Output {
        let output = self.run(args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        output
    }

    fn record(&self, args: &[&str]) -> Value {
        serde_json::from_slice(&self.done(&[&["run", "-c", "bundle", "--json"], args].concat()).stdout).unwrap()
    }

    /// A chat of these lines.
    fn chat(&self, args: &[&str], lines: &str) -> Output {
        let mut command = self.command(&[&["chat", "-c", "bundle", "-n", "6"], args].concat());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        child.stdin.take().unwrap().write_all(lines.as_bytes()).unwrap();
        child.wait_with_output().unwrap()
    }

    fn messages(&self, folder: &str) -> Vec<(String, String)> {
        let text = std::fs::read_to_string(self.path(folder).join("messages.json")).unwrap();
        let document: Value = serde_json::from_str(&text).unwrap();
        let text = |m: &Value, key: &str| m[key].as_str().unwrap().to_owned();
        document["messages"].as_array().unwrap().iter().map(|m| (text(m, "role"), text(m, "content"))).collect()
    }
}

/// libGenie knows no messages: a prompt that is written from those of before would drop its turns.
#[test]
fn messages_that_are_older_than_the_dialog_are_not_used() {
    let place = Place::get();
    let quick = ["-n", "6", "--greedy"];
    let run = |args: &[&str]| place.run(&[&["run", "-c", "bundle"], args, &quick].concat());
    let done = |args: &[&str]| {
        let output = run(args);
        assert!(output.status.success(), "{args:?}: {}", stderr(&output));
        stderr(&output).to_owned()
    };
    done(&["-p", "first", "--save", "ours"]);
    done(&["-p", "first, and a second turn", "--raw", "--save", "theirs"]);
    for entry in std::fs::read_dir(place.path("theirs")).unwrap().map(Result::unwrap) {
        if entry.file_name() != "open-genie.kvs" {
            std::fs::copy(entry.path(), place.path("ours").join(entry.file_name())).unwrap();
        }
    }
    assert_eq!(place.messages("ours").len(), 2);
    let said = done(&["-p", "third", "--restore", "ours", "--save", "next"]);
    assert!(said.contains("taken as saved later by Genie") && said.contains("older than Genie's files"), "{said}");
    assert!(!place.path("next").join("messages.json").exists(), "its messages are not known");
    let refused = run(&["-p", "third", "--restore", "ours", "--chat-template", "chatml"]);
    assert_eq!(refused.status.code(), Some(1));
    assert!(stderr(&refused).contains("are older than the dialog"), "{}", stderr(&refused));
    let chat = place.chat(&["--restore", "ours"], "third\n");
    assert_eq!(chat.status.code(), Some(1));
    assert!(stderr(&chat).contains("libGenie went on with it"), "{}", stderr(&chat));
}

/// Who pipes messages learns from the status that one had no reply, or that a command failed; the others are answered.
#[test]
fn a_piped_chat_with_a_failure_ends_with_one() {
    let place = Place::get();
    for lines in ["/load nowhere\nhi\n", "/nonsense\nhi\n", "/set temp hot\nhi\n"] {
        let output = place.chat(&["--greedy"], lines);
        assert_eq!(output.status.code(), Some(1), "{lines}: {}", stderr(&output));
        assert!(!output.stdout.is_empty(), "{lines}: the message behind it is answered");
    }
    let long = format!("{}\nhi\n", "word ".repeat(400));
    assert_eq!(place.chat(&["--greedy"], &long).status.code(), Some(1));
    assert_eq!(place.chat(&["--greedy"], "hi\n").status.code(), Some(0));
}

#[test]
fn run_writes_the_prompt_as_the_bundles_template_does() {
    let place = Place::get();
    let by_template = place.record(&["-p", "Hello", "-n", "4", "--greedy"]);
    let by_hand = place.record(&["-p", "USER:\nHello\n\nASSISTANT:\n", "-n", "4", "--greedy", "--raw"]);
    assert_eq!(by_template, {
        let mut same = by_hand.clone();
        same["kpis"] = by_template["kpis"].clone();
        same
    });
    let raw = place.record(&["-p", "Hello", "-n", "4", "--greedy", "--raw"]);
    assert!(raw["input"].as_array().unwrap().len() < by_hand["input"].as_array().unwrap().len());
    let system = place.record(&["-p", "Hello", "--system", "Be brief.", "-n", "4", "--greedy"]);
    let by_hand =
        place.record(&["-p", "SYSTEM:\nBe brief.\n\nUSER:\nHello\n\nASSISTANT:\n", "-n", "4", "--greedy", "--raw"]);
    assert_eq!((&system["input"], &system["tokens"]), (&by_hand["input"], &by_hand["tokens"]));
    let named = place.record(&["-p", "Hello", "--chat-template", "vicuna", "-n", "4", "--greedy"]);
    let by_hand = place.record(&["-p", "USER: Hello\nASSISTANT:", "-n", "4", "--greedy", "--raw"]);
    assert_eq!((&named["input"], &named["tokens"]), (&by_hand["input"], &by_hand["tokens"]));
}

#[test]
fn a_saved_conversation_goes_on_with_its_messages() {
    let place = Place::get();
    let first = place.record(&["-p", "Hello", "-n", "4", "--greedy", "--save", "talk"]);
    let reply = first["text"].as_str().unwrap();
    assert_eq!(place.messages("talk"), [("user".into(), "Hello".into()), ("assistant".into(), reply.to_owned())]);
    let second = place.record(&["-p", "And you?", "-n", "4", "--greedy", "--restore", "talk"]);
    let whole = format!("USER:\nHello\n\nASSISTANT:\n{reply}\n\nUSER:\nAnd you?\n\nASSISTANT:\n");
    let alone = place.record(&["-p", &whole, "-n", "4", "--greedy", "--raw"]);
    assert_eq!(second["tokens"], alone["tokens"]);
    // What the cache holds is not processed again.
    let n = |record: &Value| record["input"].as_array().unwrap().len();
    assert!(n(&second) + n(&first) <= n(&alone) + 1, "{} after {}, {} alone", n(&second), n(&first), n(&alone));
    // Saved without messages: they would be another conversation's.
    place.done(&["run", "-c", "bundle", "-p", "x", "--raw", "-n", "2", "--save", "talk"]);
    assert!(!place.path("talk/messages.json").exists());
    let output = place.done(&["run", "-c", "bundle", "-p", "y", "-n", "2", "--restore", "talk"]);
    assert!(stderr(&output).contains("saved without messages"), "{}", stderr(&output));
}

#[test]
fn a_chat_answers_edits_saves_and_goes_on() {
    let place = Place::get();
    let lines =
        "Hello\n/stats\n/undo\n/undo\n/set temp 0\nOne\\\ntwo\n/regen\n/system Be kind.\nThree\n/save kept\n/exit\n";
    let output = place.chat(&[], lines);
    assert!(output.status.success(), "{}", stderr(&output));
    let said = stderr(&output);
    for part in ["stopped by     max-num-tokens", "there is nothing to undo", "saved in `kept`"] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let messages = place.messages("kept");
    let asked: Vec<_> = messages.iter().filter(|(role, _)| role != "assistant").cloned().collect();
    let expected = [("system", "Be kind."), ("user", "One\ntwo"), ("user", "Three")].map(|(a, b)| (a.into(), b.into()));
    assert_eq!(asked, expected);
    // The replies are those of the same conversation given at once.
    let prompt = |messages: &[(String, String)]| {
        let text: String =
            messages.iter().map(|(role, text)| format!("{}:\n{text}\n\n", role.to_uppercase())).collect();
        text + "ASSISTANT:\n"
    };
    let alone = place.record(&["-p", &prompt(&messages[..4]), "-n", "6", "--temp", "0", "--raw"]);
    assert_eq!(alone["text"].as_str().unwrap(), messages[4].1);
    let before = [("user".to_owned(), "One\ntwo".to_owned())];
    let alone = place.record(&["-p", &prompt(&before), "-n", "6", "--temp", "0", "--raw"]);
    assert_eq!(alone["text"].as_str().unwrap(), messages[2].1, "a reply generated again is the same when greedy");

    // Another model goes on with what was set.
    let output = place.chat(&[], "/set temp 0\n/set max-tokens 3\n/model bundle\nOne\\\ntwo\n/save moved\n");
    assert!(stderr(&output).contains("the conversation goes on with `bundle`"), "{}", stderr(&output));
    let alone = place.record(&["-p", &prompt(&before), "-n", "3", "--temp", "0", "--raw"]);
    assert_eq!(alone["text"].as_str().unwrap(), place.messages("moved")[1].1);

    let output = place.chat(&["--restore", "kept"], "/save again\n");
    assert!(output.status.success() && stderr(&output).contains("> Three"), "{}", stderr(&output));
    assert_eq!(place.messages("again"), messages);
    place.chat(&["--restore", "kept", "--system", "Be brief."], "/save third\n");
    let [first, rest @ ..] = &place.messages("third")[..] else { panic!("there are messages") };
    assert_eq!(first, &("system".into(), "Be brief.".into()));
    assert_eq!(rest, &messages[1..]);
}

#[test]
fn what_a_chat_cannot_do_is_said_and_it_goes_on() {
    let place = Place::get();
    let long = "word ".repeat(400);
    let lines = format!(
        "/sve x\n/load nowhere\n/set temp hot\n/set colour red\n/regen\n/model nowhere\n{long}\nShort\n\
         /system {long}\n/regen\n/system\n/save after\n"
    );
    let output = place.chat(&[], &lines);
    assert_eq!(output.status.code(), Some(1), "{}", stderr(&output));
    let said = stderr(&output);
    for part in [
        "did you mean `/save`?",
        "`nowhere/messages.json` does not exist",
        "invalid value 'hot'",
        "unexpected argument 'colour'",
        "there is no reply",
        "`nowhere`",
        "context limit exceeded",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let messages = place.messages("after");
    assert_eq!(messages[0], ("user".into(), "Short".into()), "the message that did not fit is gone");
    let roles: Vec<_> = messages.iter().map(|(role, _)| role.as_str()).collect();
    assert_eq!(roles, ["user", "assistant"], "the reply that could not be generated again is kept");
}

#[test]
fn templates_that_are_missing_or_broken_are_named() {
    let place = Place::get();
    let refused = |args: &[&str]| {
        let output = place.run(args);
        assert_eq!(output.status.code(), Some(1), "{args:?}");
        stderr(&output).to_owned()
    };
    let error = refused(&["run", "-p", "x", "--system", "y", "-n", "1"]);
    assert!(error.contains("`--system`: the bundle has no chat template"), "{error}");
    let error = refused(&["run", "-c", "bundle", "-p", "x", "--chat-template", "chatmI"]);
    assert!(error.contains("found chatml, llama3"), "{error}");
    std::fs::write(place.path("broken.jinja"), "a\n{% if %}").unwrap();
    let error = refused(&["run", "-c", "bundle", "-p", "x", "--chat-template", "broken.jinja"]);
    assert!(error.contains("the chat template is invalid at line 2"), "{error}");
    std::fs::write(place.path("no.jinja"), "{{ raise_exception('only on Sundays') }}").unwrap();
    let error = refused(&["run", "-c", "bundle", "-p", "x", "--chat-template", "no.jinja"]);
    assert!(error.contains("only on Sundays") && error.contains("--raw"), "{error}");
    let error = refused(&["run", "-c", "bundle", "--prompt-tokens", "1,2", "--system", "y"]);
    assert!(error.contains("token ids are no message"), "{error}");
}

#[cfg(unix)]
#[test]
fn ctrl_c_ends_the_reply_and_not_the_chat() {
    let place = Place::get();
    // No end token, and seconds of a reply: one that ends before the signal would leave nothing to stop.
    place.done(&["compile", "model", "-o", "long", "--ar", "1,32", "--cl", "8192"]);
    let mut command = place.command(&["chat", "-c", "long", "-n", "7000", "--ignore-eos"]);
    let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
    let (mut stdin, mut stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
    let mut said = BufReader::new(child.stderr.take().unwrap());
    let mut notes = String::new();
    for _ in 0..2 {
        // What the reply before has written is in the pipe by now, so that the next byte is this reply's.
        let rest = rustix::io::ioctl_fionread(&stdout).unwrap();
        stdout.read_exact(&mut vec![0; usize::try_from(rest).unwrap()]).unwrap();
        stdin.write_all(b"Hello\n").unwrap();
        stdout.read_exact(&mut [0]).unwrap();
        rustix::process::kill_process(rustix::process::Pid::from_child(&child), rustix::process::Signal::INT).unwrap();
        next_line(&mut said, &mut notes, "stopped");
    }
    stdin.write_all(b"/set max-tokens 3\nShort\n/save stopped\n").unwrap();
    drop(stdin);
    stdout.read_to_end(&mut Vec::new()).unwrap();
    said.read_to_string(&mut notes).unwrap();
    assert_eq!(child.wait().unwrap().code(), Some(0), "{notes}");
    assert_eq!(place.messages("stopped").len(), 6);
}

/// Reads lines until one contains the text; one that says that a reply ended by itself is a failure.
#[cfg(unix)]
fn next_line(said: &mut impl BufRead, notes: &mut String, text: &str) {
    loop {
        let from = notes.len();
        assert!(said.read_line(notes).unwrap() > 0, "the chat ended: {notes}");
        assert!(!notes[from..].contains("was cut"), "the reply was not stopped: {notes}");
        if notes[from..].contains(text) {
            return;
        }
    }
}
