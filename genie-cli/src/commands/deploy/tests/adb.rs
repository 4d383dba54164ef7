//! Over a stand-in for `adb`, a script that keeps a record of its calls and acts on a folder of this machine. Programs in
//! its `bin` folder come before the system's, so that a test may give the device another face.

use std::fs;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use tempfile::TempDir;

use super::{bundle, config, error, foreign_program, genie, hollow, run, sent_from, text};

struct Phone {
    folder: TempDir,
}

impl Phone {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        fs::create_dir(folder.path().join("bin")).unwrap();
        let phone = Self { folder };
        let script = r#"#!/bin/sh
cd HOME && printf '%s\n' "$*" >> calls
[ "$1" = -s ] || { echo 'adb: more than one device/emulator' >&2; exit 1; }
[ "$2" = FAKE01 ] || { echo "adb: device '$2' not found" >&2; exit 1; }
shift 2
case $1 in
get-state) if [ -f locked ]; then echo 'adb: device unauthorized.' >&2; exit 1; fi; echo device ;;
shell) shift; PATH="HOME/bin:$PATH" exec sh -c "$*" ;;
push)
    if [ -f cut ] && [ "$(basename "$3")" = "$(cat cut).part" ]; then
        rm cut; head -c 1000 "$2" > "$3"
        echo "adb: error: failed to copy '$2' to '$3': remote couldn't write: Broken pipe" >&2; exit 1
    fi
    cp "$2" "$3" && if [ -f flip ] && [ "$(basename "$3")" = "$(cat flip).part" ]; then
        rm flip; printf 'x' | dd of="$3" bs=1 seek=500 conv=notrunc 2>/dev/null
    fi ;;
*) echo "adb: unknown command $1" >&2; exit 1 ;;
esac
"#;
        phone.program("adb", &script.replace("HOME", &text(phone.path())));
        fs::rename(phone.path().join("bin/adb"), phone.path().join("adb")).unwrap();
        phone
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }

    /// Puts a program before the system's on the device.
    fn program(&self, name: &str, script: &str) {
        let path = self.path().join("bin").join(name);
        fs::write(&path, script).unwrap();
        fs::set_permissions(&path, fs::Permissions::from_mode(0o755)).unwrap();
    }

    fn misbehave(&self, what: &str, text: &str) {
        fs::write(self.path().join(what), text).unwrap();
    }

    fn dir(&self) -> PathBuf {
        self.path().join("data/my genie")
    }

    /// The flags that reach it.
    fn flags(&self) -> [String; 4] {
        ["--to".into(), format!("adb:FAKE01:{}", text(&self.dir())), "--adb".into(), text(&self.path().join("adb"))]
    }

    /// The pushes since the last look.
    fn pushed(&self) -> Vec<String> {
        let path = self.path().join("calls");
        let calls = fs::read_to_string(&path).unwrap();
        fs::remove_file(path).unwrap();
        let pushes = calls.lines().filter(|line| line.starts_with("-s FAKE01 push "));
        pushes.map(|line| line.rsplit('/').next().unwrap().trim_end_matches(".part").to_owned()).collect()
    }
}

fn strs(flags: &[String]) -> Vec<&str> {
    flags.iter().map(String::as_str).collect()
}

#[test]
#[ignore = "builds genie: cargo test -p genie-cli deploy -- --ignored"]
fn a_prompt_runs_on_the_device() {
    let phone = Phone::new();
    let (bundle, genie) = (text(&bundle(phone.path())), text(&genie()));
    let flags = phone.flags();
    let args = [&strs(&flags)[..], &["--genie", &genie, "-p", "ROMEO:", "-n", "5", &bundle]].concat();
    let report = run(&args).unwrap();
    let first = report.first_run.as_ref().unwrap();
    assert!(first.version.starts_with("genie "), "{first:?}");
    assert_eq!(first.n_tokens, 5);
    assert!(first.time_to_first_token_ms > 0.0 && !first.text.is_empty(), "{first:?}");
    let pushed = phone.pushed();
    assert_eq!(pushed.len(), report.files.len());
    assert_eq!(pushed[0], "genie");
    for file in &report.files {
        let found = super::super::parcel::digest(&phone.dir().join(&file.file), u64::MAX).unwrap();
        assert_eq!(found, file.sha256, "{}", file.file);
    }
    // Again: all of it is there.
    let again = run(&args).unwrap();
    assert!(again.files.iter().all(|file| file.sent_from.is_none()), "{again:?}");
    assert_eq!(phone.pushed(), [""; 0]);
    assert_eq!(again.first_run.unwrap().n_tokens, 5);
}

/// A bundle without a model, and this test's own program.
fn parcel(phone: &Phone) -> (String, String) {
    let binary = [b"\x89OGHOST\n".as_slice(), &[7; 5000]].concat();
    let bundle =
        hollow(phone.path(), &config(&["a.bin", "b.bin"]), &[("a.bin", &binary), ("b.bin", &binary), ("c", b"")]);
    (text(&bundle), text(&std::env::current_exe().unwrap()))
}

#[test]
fn what_was_cut_off_is_sent_again_and_what_was_whole_is_not() {
    let phone = Phone::new();
    let (bundle, program) = parcel(&phone);
    let flags = phone.flags();
    let args = [&strs(&flags)[..], &["--genie", &program, "--no-run", &bundle]].concat();
    phone.misbehave("cut", "b.bin");
    let output = error(&args);
    assert!(output.contains("`bundle/b.bin` was cut off") && output.contains("Broken pipe"), "{output}");
    assert!(output.contains("hint: run the command again"), "{output}");
    assert_eq!(phone.pushed(), ["genie", "a.bin", "b.bin"]);
    assert_eq!(fs::metadata(phone.dir().join("bundle/b.bin.part")).unwrap().len(), 1000);
    assert!(!phone.dir().join("bundle/b.bin").exists(), "a cut file must not bear its name");

    let report = run(&args).unwrap();
    assert_eq!(phone.pushed(), ["b.bin", "c", "genie_config.json"]);
    assert_eq!(sent_from(&report, "bundle/a.bin"), None);
    assert_eq!(sent_from(&report, "bundle/b.bin"), Some(0), "adb cannot continue a file");
    assert!(!phone.dir().join("bundle/b.bin.part").exists());

    // A file that changed here is sent, and no other.
    fs::write(Path::new(&bundle).join("a.bin"), b"\x89OGHOST\n new").unwrap();
    run(&args).unwrap();
    assert_eq!(phone.pushed(), ["a.bin"]);
}

#[test]
fn bytes_that_changed_on_the_way_are_noticed() {
    let phone = Phone::new();
    let (bundle, program) = parcel(&phone);
    let flags = phone.flags();
    let args = [&strs(&flags)[..], &["--genie", &program, "--no-run", &bundle]].concat();
    phone.misbehave("flip", "a.bin");
    let output = error(&args);
    assert!(output.contains("checksum mismatch of `bundle/a.bin` on `FAKE01`: expected "), "{output}");
    assert!(output.contains("run the command again"), "{output}");
    assert!(!phone.dir().join("bundle/a.bin.part").exists() && !phone.dir().join("bundle/a.bin").exists());
    assert_eq!(sent_from(&run(&args).unwrap(), "bundle/a.bin"), Some(0));
    // Damage after the fact is mended as well.
    fs::write(phone.dir().join("bundle/b.bin"), "damaged").unwrap();
    let report = run(&args).unwrap();
    assert_eq!((sent_from(&report, "bundle/a.bin"), sent_from(&report, "bundle/b.bin")), (None, Some(0)));
}

#[test]
fn a_device_that_will_not_do_is_reported() {
    struct Case {
        face: fn(&Phone),
        args: &'static [&'static str],
        expected: &'static [&'static str],
    }
    let cases = [
        Case {
            face: |p| p.misbehave("locked", ""),
            args: &[],
            expected: &["device unauthorized", "allow USB debugging"],
        },
        Case {
            face: |p| p.program("df", "#!/bin/sh\necho h\necho /dev/x 1000 980 20 98% /data\n"),
            args: &[],
            expected: &["not enough space in", "on `FAKE01`", "0.0 MB free"],
        },
        Case {
            face: |p| p.program("uname", "#!/bin/sh\n[ \"$1\" = -m ] && echo riscv64 || echo Linux 6.1\n"),
            args: &[],
            expected: &["wrong architecture", "`FAKE01` is riscv64"],
        },
        Case { face: |p| p.program("sha256sum", "#!/bin/sh\nexit 127\n"), args: &[], expected: &["expected", "found"] },
        Case {
            face: |_| (),
            args: &["--to", "adb:OTHER:/data"],
            expected: &["device 'OTHER' not found", "`adb devices` lists"],
        },
        Case {
            face: |_| (),
            args: &["--adb", "/no/such/adb"],
            expected: &["cannot start `/no/such/adb`", "platform-tools"],
        },
        Case {
            face: |_| (),
            args: &["--to", "adb:FAKE01:/proc/genie"],
            expected: &["does not print its machine", "/proc/genie"],
        },
    ];
    for Case { face, args, expected } in cases {
        let phone = Phone::new();
        face(&phone);
        let (bundle, program) = parcel(&phone);
        let flags = phone.flags();
        // A flag of the case replaces the usual one.
        let usual = strs(&flags);
        let kept = usual.chunks(2).filter(|pair| !args.contains(&pair[0])).flatten().copied();
        let all: Vec<&str> =
            kept.chain(args.iter().copied()).chain(["--genie", &program, "--no-run", &bundle]).collect();
        let output = error(&all);
        for part in expected {
            assert!(output.contains(part), "{output}");
        }
    }
}

#[test]
fn a_program_that_cannot_start_there_is_not_sent() {
    let phone = Phone::new();
    let (bundle, program) = parcel(&phone);
    let flags = phone.flags();
    let with = |program: &str| error(&[&strs(&flags)[..], &["--genie", program, &bundle]].concat());
    let output = with(&text(&foreign_program(phone.path())));
    assert!(output.contains("wrong architecture: ") && output.contains("`--genie FILE` sends another"), "{output}");
    // Another loader: a program of glibc on a phone.
    let mut bytes = fs::read(&program).unwrap();
    let at = bytes.windows(8).position(|window| window == b"ld-linux").unwrap();
    bytes[at..at + 8].copy_from_slice(b"ld-bsdxx");
    let odd = phone.path().join("odd");
    fs::write(&odd, bytes).unwrap();
    let output = with(&text(&odd));
    assert!(
        output.contains("it asks for the loader") && output.contains("ld-bsdxx") && output.contains("NDK"),
        "{output}"
    );
    assert_eq!(phone.pushed(), [""; 0]);
}
