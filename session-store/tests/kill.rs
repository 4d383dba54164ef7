//! A process killed while it writes a snapshot leaves the old file or the new one, valid, 200 times over (20 under an
//! emulator); and two processes share a prefix store.

use genie_types::TokenId;
use kvmanager::{Cell, GroupImage, KvDtype, KvImage, KvKind, KvTensor, SeqId};
use session_store::{
    CacheSchema, DialogState, GenieFolder, ModelHash, PrefixStore, SavedSequence, SavedToken, Snapshot, read_session,
    save_session,
};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

const MODEL: ModelHash = ModelHash([3; 32]);
const ROWS: usize = 300;

/// A snapshot whose every byte of rows is `fill`.
fn snapshot(fill: u8, n: usize) -> Snapshot {
    let tensor = KvTensor::new(KvKind::Key, 0, 8, 64, KvDtype::U8);
    let cells = (0..n).map(|pos| Cell { pos, rotated_pos: pos, seqs: 1 }).collect();
    let image = KvImage {
        groups: vec![GroupImage::of_cells(cells)],
        next: vec![(SeqId(0), n)],
        tensors: vec![tensor; 4],
        data: vec![vec![fill; tensor.rows_bytes(n)]; 4],
        ..KvImage::default()
    };
    let tokens = SavedToken::prompt(&vec![TokenId(u32::from(fill)); n]);
    let sequences = vec![SavedSequence { seq: SeqId(0), tokens }];
    Snapshot { model: MODEL, image, sequences, ..Snapshot::default() }
}

fn is_whole(s: &Snapshot) -> bool {
    let fill = s.tokens().next().unwrap().0 as u8;
    s.tokens().len() == ROWS && s.image.data.iter().flatten().all(|&b| b == fill)
}

/// Runs one of the ignored tests below in a process of its own; under the emulator that `TEST_RUNNER` names, if it does.
fn child(name: &str, path: &Path) -> Child {
    let program = std::env::current_exe().unwrap();
    let mut command = match std::env::var_os("TEST_RUNNER") {
        Some(runner) => {
            let mut command = Command::new(runner);
            command.arg(program);
            command
        }
        None => Command::new(program),
    };
    command.args(["--exact", name, "--ignored", "--test-threads=1"]).env("KV_KILL_PATH", path);
    command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap()
}

/// Under an emulator a process takes half a second to start.
fn n_kills() -> usize {
    if std::env::var_os("TEST_RUNNER").is_some() { 20 } else { 200 }
}

fn path_of_child() -> std::path::PathBuf {
    std::env::var_os("KV_KILL_PATH").expect("run by the tests of this file only").into()
}

/// Temporary files of that process.
fn temporaries(folder: &Path, pid: u32) -> Vec<String> {
    let names = std::fs::read_dir(folder).unwrap().map(|e| e.unwrap().file_name().to_string_lossy().into_owned());
    names.filter(|name| name.ends_with(".tmp") && name.contains(&format!(".{pid}-"))).collect()
}

#[test]
#[ignore = "the process that is killed"]
fn write_repeatedly() {
    let path = path_of_child();
    for fill in (0..=255u8).cycle() {
        snapshot(fill, ROWS).write(&path).unwrap();
    }
}

/// A session of `ROWS` tokens whose every byte and token is `fill`, in a form that libGenie has too.
fn session(fill: u8) -> Snapshot {
    let mut snapshot = snapshot(fill, ROWS);
    let tensors = [(KvKind::Key, 0), (KvKind::Value, 0), (KvKind::Key, 1), (KvKind::Value, 1)];
    snapshot.image.tensors = tensors.map(|(kind, layer)| KvTensor::new(kind, layer, 8, 64, KvDtype::U8)).to_vec();
    snapshot.dialog = Some(DialogState { unprocessed: Some(TokenId(u32::from(fill))), ..DialogState::default() });
    snapshot
}

#[test]
#[ignore = "the process that is killed"]
fn save_repeatedly() {
    let path = path_of_child();
    for fill in (0..=255u8).cycle() {
        let report = save_session(&path, &session(fill)).unwrap();
        assert_eq!(report.without_genie, None, "the set has libGenie's files");
    }
}

/// Row 17: the files of a session are one set. Killed at any moment, one whole session is there, and the next save leaves
/// nothing of the killed one.
#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn a_killed_save_leaves_a_whole_session() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("session");
    let begin = Instant::now();
    save_session(&path, &session(0)).unwrap();
    // Kills fall within the time of two saves.
    let span = 2 * begin.elapsed().as_micros().max(1) as u64;
    let n_files = std::fs::read_dir(&path).unwrap().count();
    let schema = CacheSchema { model: MODEL, tensors: session(0).image.tensors };
    let (mut n_new, mut n_cut, mut last) = (0, 0, session(0));
    let mut random = 0x9E37_79B9_u64;
    // Where saves are short beside the start of a process, a few more are needed until one falls within a save.
    for round in 0..20 * n_kills() {
        if round >= n_kills() && n_new > 0 && n_cut > 0 {
            break;
        }
        let mut writer = child("save_repeatedly", &path);
        let start = Instant::now();
        while temporaries(&path, writer.id()).is_empty() && start.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_micros(100));
        }
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(Duration::from_micros((random >> 24) % span));
        writer.kill().unwrap();
        writer.wait().unwrap();
        n_cut += usize::from(!temporaries(&path, writer.id()).is_empty());
        let found = read_session(&path, &schema, &[]).unwrap_or_else(|e| panic!("round {round}: {e}"));
        assert!(is_whole(&found.snapshot), "round {round}: a mixture");
        n_new += usize::from(found.snapshot != last);
        last = found.snapshot;
        // libGenie's files alone: a whole dialog, or none.
        let folder = GenieFolder::new(&path);
        if folder.exists() {
            let dialog = folder.read_dialog(&[]).unwrap_or_else(|e| panic!("round {round}: {e}"));
            let image = folder.read_cache(&schema.tensors, dialog.tokens.len()).unwrap();
            let fill = dialog.tokens[0].0 as u8;
            assert!(dialog.tokens.iter().all(|t| t.0 == u32::from(fill)), "round {round}: tokens of two sets");
            assert!(image.data.iter().flatten().all(|&b| b == fill), "round {round}: cache and tokens of two sets");
        }
    }
    assert!(n_new > 0, "no round ever got as far as a new session");
    assert!(n_cut > 0, "no round was cut off while saving");
    save_session(&path, &session(1)).unwrap();
    assert_eq!(std::fs::read_dir(&path).unwrap().count(), n_files, "nothing is left of killed saves");
}

#[test]
#[ignore = "one of the processes that share a store"]
fn insert_and_find() {
    let dir = path_of_child();
    let store = PrefixStore::open(&dir, MODEL, 400_000).unwrap();
    for i in 0..150usize {
        let (fill, n) = ((i % 7) as u8, 20 + i % 5);
        store.insert(&snapshot(fill, n)).unwrap();
        if let Some(hit) = store.find(&[TokenId(u32::from(fill)); 40], 1).unwrap() {
            assert!(hit.image.data.iter().flatten().all(|&b| b == fill));
        }
    }
}

#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn a_killed_writer_leaves_a_valid_snapshot() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("dialog.kvs");
    snapshot(0, ROWS).write(&path).unwrap();
    let start = Instant::now();
    snapshot(0, ROWS).write(&path).unwrap();
    let several_writes = (start.elapsed() * 4).max(Duration::from_millis(8));
    let (mut n_new, mut n_left, mut last) = (0, 0, snapshot(0, ROWS));
    // Pseudo-random moments, spread over several writes.
    let mut random = 0x2545_F491_u64;
    for round in 0..n_kills() {
        let mut writer = child("write_repeatedly", &path);
        // Wait until it writes: its first temporary file, or a changed snapshot.
        let start = Instant::now();
        let busy = || !temporaries(dir.path(), writer.id()).is_empty();
        while !busy() && start.elapsed() < Duration::from_secs(20) {
            std::thread::sleep(Duration::from_micros(200));
        }
        random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        std::thread::sleep(several_writes.mul_f64((random >> 40) as f64 / (1 << 24) as f64));
        writer.kill().unwrap();
        writer.wait().unwrap();
        let found = Snapshot::read(&path).unwrap_or_else(|e| panic!("round {round}: {e}"));
        assert!(is_whole(&found), "round {round}: a mixture");
        n_new += usize::from(found != last);
        let left = std::fs::read_dir(dir.path()).unwrap().count() - 1;
        assert!(left <= 1, "round {round}: {left} files left, but each writer removes what the one before left");
        n_left += left;
        last = found;
    }
    assert!(n_new > 0, "no round ever got as far as a new snapshot");
    assert!(n_left > 0, "no round was cut off while writing");
    snapshot(0, ROWS).write(&path).unwrap();
    assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 1, "the next writer leaves its file only");
}

#[test]
#[cfg_attr(miri, ignore = "starts processes")]
fn two_processes_share_a_store() {
    let dir = tempfile::tempdir().unwrap();
    let mut children = [child("insert_and_find", dir.path()), child("insert_and_find", dir.path())];
    for child in &mut children {
        assert!(child.wait().unwrap().success());
    }
    let store = PrefixStore::open(dir.path(), MODEL, 400_000).unwrap();
    let (n, bytes) = store.usage().unwrap();
    assert!(n > 0 && bytes <= 400_000, "{n} files, {bytes} bytes");
}
