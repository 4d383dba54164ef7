//! Against a real `sshd` on a port of 127.0.0.1, with keys and config of its own in a temporary folder. Debian has it as
//! `openssh-server`; `.ci/run` installs it.

use std::fs;
use std::net::{TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use tempfile::TempDir;

use super::wire::Cable;
use super::{bundle, error, foreign_program, genie, root, run, sent_from, text};

struct Sshd {
    folder: TempDir,
    child: Child,
    cable: Cable,
}

impl Sshd {
    fn start() -> Self {
        let folders = std::env::var_os("PATH").unwrap_or_default();
        let folders = std::env::split_paths(&folders).chain([PathBuf::from("/usr/sbin")]);
        let program = folders.map(|folder| folder.join("sshd")).find(|path| path.is_file());
        let program = program.expect("needs `sshd`: apt-get install openssh-server");
        // Where sshd locks itself in as root; a service script makes it otherwise.
        let _ = fs::create_dir_all("/run/sshd");
        let folder = tempfile::tempdir().unwrap();
        let at = |name: &str| text(&folder.path().join(name));
        for name in ["host_key", "user_key", "stranger"] {
            let keygen = Command::new("ssh-keygen").args(["-q", "-t", "ed25519", "-N", "", "-f", &at(name)]).status();
            assert!(keygen.unwrap().success());
        }
        fs::copy(at("user_key.pub"), at("authorized_keys")).unwrap();
        let port = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
        let config = format!(
            "Port {port}\nListenAddress 127.0.0.1\nHostKey {}\nAuthorizedKeysFile {}\nPidFile none\nUsePAM no\n\
             StrictModes no\nPasswordAuthentication no\nKbdInteractiveAuthentication no\nPermitRootLogin yes\n",
            at("host_key"),
            at("authorized_keys")
        );
        fs::write(at("sshd_config"), config).unwrap();
        let mut command = Command::new(program);
        command.args(["-D", "-e", "-f", &at("sshd_config")]).stderr(fs::File::create(at("log")).unwrap());
        let mut child = command.stdin(Stdio::null()).spawn().unwrap();
        let start = Instant::now();
        while TcpStream::connect(("127.0.0.1", port)).is_err() {
            let log = || fs::read_to_string(at("log")).unwrap();
            assert!(child.try_wait().unwrap().is_none(), "sshd ended: {}", log());
            assert!(start.elapsed() < Duration::from_secs(30), "sshd does not listen: {}", log());
            std::thread::sleep(Duration::from_millis(20));
        }
        let cable = Cable::to(port);
        let host_key = fs::read_to_string(at("host_key.pub")).unwrap();
        fs::write(at("known_hosts"), format!("[127.0.0.1]:{} {host_key}", cable.port)).unwrap();
        Self { folder, child, cable }
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    fn dir(&self) -> PathBuf {
        self.path().join("my device")
    }

    /// The flags that reach it with a key and a list of known hosts.
    fn flags(&self, key: &str, known: &str) -> Vec<String> {
        let mut flags = vec!["--to".to_owned(), format!("ssh:127.0.0.1:{}", text(&self.dir()))];
        let options = [
            format!("UserKnownHostsFile={}", text(&self.path().join(known))),
            "StrictHostKeyChecking=yes".into(),
            "IdentitiesOnly=yes".into(),
            "BatchMode=yes".into(),
        ];
        let port = format!("-p{}", self.cable.port);
        let key = format!("-i{}", text(&self.path().join(key)));
        let args = ["-F/dev/null".to_owned(), port, key].into_iter().chain(options.map(|option| format!("-o{option}")));
        flags.extend(args.map(|arg| format!("--ssh-arg={arg}")));
        flags
    }
}

impl Drop for Sshd {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn strs(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}

#[test]
#[ignore = "builds genie and needs sshd: cargo test -p genie-cli deploy -- --ignored"]
fn a_cut_transfer_is_continued_and_a_prompt_runs() {
    let sshd = Sshd::start();
    let (bundle, genie) = (text(&bundle(sshd.path())), genie());
    let n_bytes = fs::metadata(&genie).unwrap().len();
    let flags = sshd.flags("user_key", "known_hosts");
    let genie = text(&genie);
    let args = [&strs(&flags)[..], &["--genie", &genie, "-p", "ROMEO:", "-n", "5", &bundle]].concat();

    sshd.cable.cut_after(n_bytes / 2);
    let output = error(&args);
    assert!(output.contains("`bin/genie` was cut off") && output.contains("the connection failed"), "{output}");
    let part = sshd.dir().join("bin/genie.part");
    // The far side may still be writing what it got.
    let settled = || {
        let before = fs::metadata(&part).unwrap().len();
        std::thread::sleep(Duration::from_millis(300));
        (before == fs::metadata(&part).unwrap().len()).then_some(before)
    };
    let n_there = std::iter::repeat_with(settled).flatten().next().unwrap();
    assert!(0 < n_there && n_there <= n_bytes / 2, "{n_there} of {n_bytes}");
    assert!(!sshd.dir().join("bin/genie").exists(), "a cut file must not bear its name");

    sshd.cable.mend();
    let report = run(&args).unwrap();
    assert_eq!(sent_from(&report, "bin/genie"), Some(n_there), "continued where it stopped");
    assert_eq!(sent_from(&report, "bundle/genie_config.json"), Some(0));
    let first = report.first_run.as_ref().unwrap();
    assert!(first.version.starts_with("genie ") && first.n_tokens == 5, "{first:?}");
    assert!(first.time_to_first_token_ms > 0.0 && !first.text.is_empty(), "{first:?}");

    let again = run(&args).unwrap();
    assert!(again.files.iter().all(|file| file.sent_from.is_none()), "{again:?}");
    assert!(!again.first_run.unwrap().text.is_empty());

    // A part that does not begin as the file does is not continued; a damaged file is sent again.
    fs::remove_file(sshd.dir().join("bin/genie")).unwrap();
    fs::write(&part, "something else").unwrap();
    fs::write(sshd.dir().join("bundle/genie_config.json"), "{}").unwrap();
    let mended = run(&args).unwrap();
    assert_eq!(sent_from(&mended, "bin/genie"), Some(0));
    assert_eq!(sent_from(&mended, "bundle/genie_config.json"), Some(0));
    assert_eq!(mended.files.iter().filter(|file| file.sent_from.is_some()).count(), 2);
}

#[test]
#[ignore = "builds genie and needs sshd: cargo test -p genie-cli deploy -- --ignored"]
fn a_host_that_will_not_do_is_reported() {
    let sshd = Sshd::start();
    let bundle = text(&bundle(sshd.path()));
    fs::write(sshd.path().join("no_known_hosts"), "").unwrap();
    let foreign = text(&foreign_program(sshd.path()));
    let genie = text(&genie());
    let usual = sshd.flags("user_key", "known_hosts");
    let to = |flags: &[String], dir: &str| [&[flags[0].clone(), dir.to_owned()], &flags[2..]].concat();
    let closed = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let refused = [vec![format!("--ssh-arg=-p{closed}")], usual.clone()].concat();
    let cases = [
        (sshd.flags("stranger", "known_hosts"), &genie, "Permission denied (publickey)", "names a key"),
        (sshd.flags("user_key", "no_known_hosts"), &genie, "Host key verification failed", "accept the key"),
        (refused, &genie, "Connection refused", "is sshd running"),
        (to(&usual, "ssh:no-such-host.invalid:x"), &genie, "Could not resolve hostname", "check the name"),
        (to(&usual, "ssh:127.0.0.1:/proc/genie"), &genie, "does not print its machine", "/proc/genie"),
        (usual.clone(), &foreign, "wrong architecture", "`--genie FILE` sends another"),
    ];
    for (flags, program, expected, hint) in cases {
        let output = error(&[&strs(&flags)[..], &["--genie", program, &bundle]].concat());
        assert!(output.contains(expected) && output.contains(hint), "{output}");
    }
    assert!(!sshd.dir().join("bin").exists(), "nothing was sent");
    // A program that fails there is quoted: here its library is no library.
    let broken = sshd.path().join("broken prompt");
    fs::create_dir(&broken).unwrap();
    for entry in fs::read_dir(&bundle).unwrap().flatten() {
        fs::copy(entry.path(), broken.join(entry.file_name())).unwrap();
    }
    fs::write(broken.join("tokenizer.json"), "{}").unwrap();
    let output = error(&[&strs(&usual)[..], &["--genie", &genie, &text(&broken)]].concat());
    assert!(
        output.contains("cannot run a first prompt on `127.0.0.1`: exit status 1") && output.contains("tokenizer"),
        "{output}"
    );
}

#[test]
#[ignore = "builds genie, needs sshd and the QNN runtime: cargo test -p genie-cli deploy -- --ignored"]
fn a_bundle_of_the_htp_brings_its_libraries() {
    let sshd = Sshd::start();
    let golden = std::env::var_os("GENIE_GOLDEN_DIR").map_or_else(|| root().join("../shared/golden"), PathBuf::from);
    let bundle = text(&golden.join("w8a16"));
    let (flags, genie) = (sshd.flags("user_key", "known_hosts"), text(&genie()));
    let report = run(&[&strs(&flags)[..], &["--genie", &genie, "-p", "hello", "-n", "4", &bundle]].concat()).unwrap();
    assert_eq!(report.backend, "htp");
    let library = report.files.iter().find(|file| file.file == "lib/libQnnHtp.so").unwrap();
    assert!(library.build.as_ref().unwrap().starts_with("v2."), "{library:?}");
    assert!(sshd.dir().join("lib/libQnnSystem.so").exists());
    assert_eq!(report.first_run.unwrap().n_tokens, 4);
}
