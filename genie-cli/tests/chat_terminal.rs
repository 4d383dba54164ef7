//! `genie chat` at a pseudo-terminal, which util-linux's `script` makes: keys go in one by one, as from a keyboard.
#![cfg(target_os = "linux")]

use std::io::{Read, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::{Arc, Mutex};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal};

use crate::program;

/// A chat with what it has shown so far.
struct Terminal {
    child: Child,
    keys: ChildStdin,
    shown: Arc<Mutex<String>>,
    reader: Option<JoinHandle<()>>,
}

impl Terminal {
    fn chat(folder: &std::path::Path, flags: &str) -> Self {
        let genie = program::path().to_str().unwrap().to_owned();
        // The shell says how the chat ended: the code of `script` also tells of troubles of its own. Ctrl-C reaches both.
        let chat = format!("{genie} chat demo --chat-template plain --greedy {flags}");
        Self::shell(folder, &format!("trap : INT; {chat}; echo ended with $?"))
    }

    /// A line for a shell at a terminal of its own.
    fn shell(folder: &std::path::Path, line: &str) -> Self {
        // A shell's background job ignores Ctrl-C, and so would all that it starts.
        let mut child = Command::new("env")
            .args(["--default-signal=INT", "script", "-qfc", line, "/dev/null"])
            .current_dir(folder)
            .env("XDG_STATE_HOME", folder.join("state"))
            .env("TERM", "xterm")
            .env_remove("GENIE_LOG")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .expect("util-linux has `script`");
        let (keys, mut screen) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let shown = Arc::new(Mutex::new(String::new()));
        let to = Arc::clone(&shown);
        let reader = std::thread::spawn(move || {
            let mut bytes = [0; 4096];
            while let Ok(n @ 1..) = screen.read(&mut bytes) {
                to.lock().unwrap().push_str(&String::from_utf8_lossy(&bytes[..n]));
            }
        });
        Self { child, keys, shown, reader: Some(reader) }
    }

    fn press(&mut self, keys: &str) {
        self.keys.write_all(keys.as_bytes()).unwrap();
        self.keys.flush().unwrap();
    }

    /// Asserts that the chat ends with success; else all that was shown says why.
    fn ends_well(&mut self) {
        let script = self.child.wait().unwrap();
        self.reader.take().unwrap().join().unwrap();
        assert!(self.text().contains("ended with 0"), "script: {script}; shown: {}", self.text());
    }

    fn text(&self) -> String {
        self.shown.lock().unwrap().clone()
    }

    /// Waits until something is shown behind the first `from` bytes; where it ends. The bound is for a chat that hangs.
    fn wait(&self, from: usize, wanted: &str) -> usize {
        let began = Instant::now();
        loop {
            let text = self.text();
            let rest = text.get(from..).unwrap_or_default();
            if let Some(at) = rest.find(wanted) {
                return from + at + wanted.len();
            }
            assert!(began.elapsed() < Duration::from_secs(120), "`{wanted}` is not shown: {rest:?}");
            std::thread::sleep(Duration::from_millis(20));
        }
    }
}

/// What a terminal shows when a line can be typed: keys that come earlier are lost as it changes its mode.
const READY: &str = "\u{1b}[?2004h";

fn messages(folder: &std::path::Path) -> Vec<(String, String)> {
    let text = std::fs::read_to_string(folder.join("messages.json")).unwrap();
    let document: serde_json::Value = serde_json::from_str(&text).unwrap();
    let of = |m: &serde_json::Value, key: &str| m[key].as_str().unwrap_or_default().to_owned();
    document["messages"].as_array().unwrap().iter().map(|m| (of(m, "role"), of(m, "content"))).collect()
}

#[test]
fn a_chat_is_typed_stopped_edited_saved_and_loaded() {
    let folder = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::chat(folder.path(), "-n 12");
    // A key that is taken back does not come into the message.
    let lines = [
        "ROMEOX\u{7f}:",
        "/save one",
        "/regen",
        "/save two",
        "/load one",
        "/save three",
        // The message comes back to be changed: more is typed behind it.
        "/edit",
        " JULIET:",
        "/save four",
        "/exit",
    ];
    let mut at = 0;
    for line in lines {
        at = terminal.wait(at, READY);
        terminal.press(&format!("{line}\r"));
    }
    terminal.ends_well();
    let first = messages(&folder.path().join("one"));
    assert_eq!(first[0], ("user".to_owned(), "ROMEO:".to_owned()));
    assert_eq!(first.len(), 2);
    assert!(!first[1].1.is_empty());
    assert_eq!(messages(&folder.path().join("two")), first, "the most likely reply is the same again");
    assert_eq!(messages(&folder.path().join("three")), first);
    let edited = messages(&folder.path().join("four"));
    assert_eq!(edited[0], ("user".to_owned(), "ROMEO: JULIET:".to_owned()), "{}", terminal.text());
    assert!(edited.len() == 2 && edited[1].0 == "assistant" && edited[1].1 != first[1].1, "{edited:?}");
}

#[test]
fn ctrl_c_stops_a_reply_and_the_chat_goes_on() {
    let folder = tempfile::tempdir().unwrap();
    let mut terminal = Terminal::chat(folder.path(), "-n -1 --ignore-eos --threads 1");
    let at = terminal.wait(0, READY);
    terminal.press("ROMEO:\r");
    let mut at = terminal.wait(at, "ROMEO:");
    // A reply that has ended before the key comes is generated again: 500 tokens take a tenth of a second.
    for attempt in 1.. {
        // The reply has begun: some letters of it are shown.
        terminal.wait(at + 20, "e");
        terminal.press("\u{3}");
        let end = terminal.wait(at, READY);
        if terminal.text()[at..end].contains("stopped") {
            at = end;
            break;
        }
        assert!(attempt < 20, "no reply is stopped: {}", terminal.text());
        // That Ctrl-C gives up the empty line, maybe after `end`.
        std::thread::sleep(Duration::from_millis(500));
        at = terminal.text().len();
        terminal.press("/regen\r");
        at = terminal.wait(at, "/regen");
    }
    terminal.press("/save kept\r");
    let at = terminal.wait(at, "saved in");
    terminal.wait(at, READY);
    terminal.press("/exit\r");
    terminal.ends_well();
    assert_eq!(messages(&folder.path().join("kept"))[0].1, "ROMEO:");
}

#[test]
fn sigterm_at_the_prompt_leaves_the_terminal_as_it_was() {
    let folder = tempfile::tempdir().unwrap();
    let genie = program::path().to_str().unwrap().to_owned();
    let chat = format!("sh -c 'echo $$ > pid; exec {genie} chat demo --chat-template plain'");
    let mut terminal =
        Terminal::shell(folder.path(), &format!("{chat}; echo ended with $?; stty -a; echo that is all"));
    terminal.wait(0, READY);
    let pid = std::fs::read_to_string(folder.path().join("pid")).unwrap().trim().parse().unwrap();
    rustix::process::kill_process(Pid::from_raw(pid).unwrap(), Signal::TERM).unwrap();
    let at = terminal.wait(0, "ended with 143");
    let end = terminal.wait(at, "that is all");
    let mode = terminal.text()[at..end].to_owned();
    for flag in ["icanon", "echo", "isig"] {
        assert!(mode.split_whitespace().any(|word| word == flag), "`{flag}` is off: {mode}");
    }
    terminal.child.wait().unwrap();
}

/// `genie run` without a prompt begins a chat there, unless a flag is given that a chat has not.
#[test]
fn a_run_without_a_prompt_is_a_chat_unless_its_flags_want_one() {
    let folder = tempfile::tempdir().unwrap();
    let genie = program::path().to_str().unwrap().to_owned();
    let flags =
        ["--profile p.json", "--prefix-cache prefixes", "--kv-mode smart-mask", "--save saved", "--stats", "-e"];
    let runs: Vec<String> = flags.iter().map(|flag| format!("{genie} run demo {flag}; echo ended with $?")).collect();
    let mut terminal = Terminal::shell(folder.path(), &runs.join("; "));
    let mut at = 0;
    for flag in flags {
        let begins = at;
        at = terminal.wait(at, "ended with ");
        at = terminal.wait(at, "1");
        let shown = terminal.text()[begins..at].to_owned();
        assert!(shown.contains(": no prompt"), "{flag}: {shown}"); // behind `error`, in colour
    }
    terminal.child.wait().unwrap();
    for made in ["p.json", "prefixes", "saved"] {
        assert!(!folder.path().join(made).exists(), "{made} is made though nothing ran");
    }
    let mut terminal = Terminal::shell(folder.path(), &format!("{genie} run demo --greedy; echo ended with $?"));
    terminal.wait(0, READY);
    terminal.press("/exit\r");
    terminal.ends_well();
}
