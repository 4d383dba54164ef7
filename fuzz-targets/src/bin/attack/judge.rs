//! Clear, right, vague, wrong or died: from exit codes, messages and outputs.

use std::path::Path;

use crate::child::Ended;
use crate::situation::{Expect, Situation};

/// An answer's worth; the number is its column in the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verdict {
    Clear,
    Right,
    Vague,
    Wrong,
    Died,
}

impl Verdict {
    pub(crate) const fn word(self) -> &'static str {
        match self {
            Self::Clear => "clear",
            Self::Right => "right",
            Self::Vague => "VAGUE",
            Self::Wrong => "WRONG",
            Self::Died => "DIED ",
        }
    }
}

/// A verdict, and what to print about it.
#[derive(Clone, Debug)]
pub(crate) struct Judgement {
    pub(crate) verdict: Verdict,
    pub(crate) text: String,
}

/// What only this program's source explains.
const INTERNAL: [&str; 17] = [
    "usize",
    "u64",
    "i64",
    "u32,",
    "struct ",
    "enum ",
    "invalid type",
    "invalid digit",
    "invalid float literal",
    "missing field",
    "Some(",
    "None,",
    "Idx(",
    "panicked",
    "unwrap",
    "untagged",
    "RUST_BACKTRACE",
];

/// Signals that end a program because it does something that it must not: or that it did not handle.
const HANDLED: [i32; 2] = [2, 15];

/// Judges the steps that ran.
pub(crate) fn judge(situation: Situation, ended: &[Ended], room: &Path) -> Judgement {
    let (verdict, why) = verdict(&situation, ended, room);
    let mut text = format!("{why}\n  {}", situation.what);
    for end in ended {
        let code = match (end.code, end.signal) {
            (Some(code), _) => format!("{code}"),
            (None, signal) => format!("signal {}", signal.unwrap_or_default()),
        };
        text += &format!("\n  {code}: {}", end.command);
        for line in end.stderr.lines().take(6) {
            let line: String = line.chars().take(300).collect();
            text += &format!("\n      {line}");
        }
    }
    Judgement { verdict, text }
}

fn verdict(situation: &Situation, ended: &[Ended], room: &Path) -> (Verdict, String) {
    if let Some(end) = ended.iter().find(|end| died(end)) {
        let how = if end.timeout { "no end within the time" } else { "it died" };
        return (Verdict::Died, how.into());
    }
    if let Some(left) = leftover(room) {
        return (Verdict::Wrong, format!("`{left}` is left behind"));
    }
    let Some(last) = ended.last() else { return (Verdict::Wrong, "nothing ran".into()) };
    if ended.iter().any(|end| end.sent.is_some() && end.code != Some(0)) && last.code == Some(0) {
        return (Verdict::Right, "ended by the signal, and went on".into());
    }
    let all: String = ended.iter().map(|end| end.stderr.as_str()).collect();
    let named = situation.names.iter().find(|name| !name.is_empty() && all.contains(name.as_str()));
    if ended.iter().any(|end| end.stderr.contains('\u{1b}')) {
        return (Verdict::Wrong, "an escape code from outside is printed raw".into());
    }
    if last.code != Some(0) {
        return refused(situation, ended, last, named.is_some());
    }
    match &situation.expect {
        Expect::Refuse => (Verdict::Wrong, "accepted".into()),
        Expect::Used(base) if *base == last.stdout && named.is_none() => {
            (Verdict::Wrong, "accepted, and the output is as without the change".into())
        }
        Expect::Same(base) | Expect::Works(base) if *base != last.stdout => {
            let shown = |text: &str| text.chars().take(200).collect::<String>().escape_debug().to_string();
            (Verdict::Wrong, format!("another output: `{}`, expected `{}`", shown(&last.stdout), shown(base)))
        }
        _ => (Verdict::Right, "success".into()),
    }
}

fn refused(situation: &Situation, ended: &[Ended], last: &Ended, named: bool) -> (Verdict, String) {
    if matches!(situation.expect, Expect::Works(_) | Expect::Runs) {
        return (Verdict::Wrong, "refused, but nothing is wrong with it".into());
    }
    if situation.early && ended.len() > 1 {
        return (Verdict::Wrong, "refused too late".into());
    }
    if last.stderr.trim().is_empty() && last.stdout.trim().is_empty() {
        return (Verdict::Vague, "refused without a word".into());
    }
    // `doctor` and `verify` give their verdict on stdout.
    let named = named || situation.names.iter().any(|name| !name.is_empty() && last.stdout.contains(name.as_str()));
    if !named {
        return (Verdict::Vague, format!("refused, none of {:?} is named", situation.names));
    }
    match INTERNAL.iter().find(|word| last.stderr.contains(**word)) {
        Some(word) if !situation.names.iter().any(|name| name.contains(word)) => {
            (Verdict::Vague, format!("refused, the message has `{word}`"))
        }
        _ => (Verdict::Clear, "refused".into()),
    }
}

fn died(end: &Ended) -> bool {
    let handled = |signal: i32| HANDLED.contains(&signal) && end.sent == Some(signal);
    match (end.code, end.signal) {
        _ if end.timeout => true,
        (None, Some(signal)) => end.sent != Some(signal) || !handled(signal),
        (Some(code), _) if code > 128 => !handled(code - 128) && code != 141,
        (Some(code), _) => code == 101,
        (None, None) => true,
    }
}

/// A temporary of ours in the folder, two levels deep.
fn leftover(room: &Path) -> Option<String> {
    let names = |dir: &Path| -> Vec<std::path::PathBuf> {
        std::fs::read_dir(dir).into_iter().flatten().flatten().map(|entry| entry.path()).collect()
    };
    let mut all = names(room);
    let below: Vec<_> =
        all.iter().filter(|path| path.is_dir() && !path.is_symlink()).flat_map(|dir| names(dir)).collect();
    all.extend(below);
    all.iter()
        .filter_map(|path| path.file_name()?.to_str())
        .find(|name| [".partial", ".tmp", ".part", ".replaced"].iter().any(|part| name.contains(part)))
        .map(Into::into)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::situation::Step;

    fn end(code: i32, stdout: &str, stderr: &str) -> Ended {
        Ended { code: Some(code), stdout: stdout.into(), stderr: stderr.into(), ..Ended::default() }
    }

    fn of(expect: Expect, ended: &[Ended]) -> Verdict {
        let situation = Situation::new("a change", expect, vec![Step::default()]).named(["rope_theta"]).early();
        judge(situation, ended, &tempfile::tempdir().unwrap().keep()).verdict
    }

    #[test]
    fn answers_are_distinguished() {
        let used = || Expect::Used("1.5".into());
        assert_eq!(of(used(), &[end(0, "1.5", "")]), Verdict::Wrong);
        assert_eq!(of(used(), &[end(0, "1.5", "note: `rope_theta` is not read")]), Verdict::Right);
        assert_eq!(of(used(), &[end(0, "1.7", "")]), Verdict::Right);
        assert_eq!(of(used(), &[end(1, "", "error: bad `rope_theta`")]), Verdict::Clear);
        assert_eq!(of(used(), &[end(1, "", "error: bad file")]), Verdict::Vague);
        assert_eq!(of(used(), &[end(1, "", "error: `rope_theta`: invalid type")]), Verdict::Vague);
        assert_eq!(of(used(), &[end(0, "", ""), end(1, "", "error: bad `rope_theta`")]), Verdict::Wrong);
        assert_eq!(of(used(), &[end(101, "", "`rope_theta`")]), Verdict::Died);
        assert_eq!(of(Expect::Refuse, &[end(0, "", "")]), Verdict::Wrong);
        assert_eq!(of(Expect::Works("x".into()), &[end(1, "x", "error: `rope_theta`")]), Verdict::Wrong);
        assert_eq!(of(Expect::Runs, &[end(0, "x", ""), end(1, "", "error: `rope_theta`")]), Verdict::Wrong);
        assert_eq!(of(Expect::Runs, &[end(0, "x", ""), end(0, "y", "")]), Verdict::Right);
        assert_eq!(of(Expect::Same("x".into()), &[end(0, "y", "")]), Verdict::Wrong);
    }
}
