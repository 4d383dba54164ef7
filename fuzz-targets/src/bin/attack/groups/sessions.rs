//! Saved dialogs: damaged, mixed, of another model, in odd places.

use std::path::Path;

use anyhow::Result;
use fuzz_targets::Rng;

use crate::base::{Base, copy, restore, run};
use crate::change::replace_file;
use crate::situation::{Expect, Situation};

/// A session with a change, restored; or saved to an odd place.
pub(super) fn make(base: &Base, room: &Path, rng: &mut Rng) -> Result<Situation> {
    copy(&base.session, &room.join("s"))?;
    let bundle = base.bundle.display().to_string();
    let mut names: Vec<String> =
        std::fs::read_dir(room.join("s"))?.filter_map(|entry| entry.ok()?.file_name().into_string().ok()).collect();
    names.sort();
    let name = rng.pick(&names).clone();
    let path = room.join("s").join(&name);
    let go_on = vec![restore(&bundle, "s")];
    let same = Expect::Same(base.goes_on.clone());
    Ok(match rng.below(9) {
        0..3 => {
            let mut bytes = std::fs::read(&path)?;
            let (at, bit) = (rng.below(bytes.len()), rng.below(8));
            if bytes.is_empty() {
                return Ok(Situation::new("nothing changed", same, go_on));
            }
            bytes[at] ^= 1 << bit;
            std::fs::write(&path, bytes)?;
            Situation::new(format!("{name}: bit {bit} of byte {at} flipped"), same, go_on).named([name])
        }
        3 | 4 => {
            let how = replace_file(&path, rng)?;
            Situation::new(format!("{name} {how}"), same, go_on).named([name])
        }
        5 => {
            let other = base.other.display().to_string();
            let what = "restored into a bundle of other weights";
            Situation::new(what, Expect::Refuse, vec![restore(&other, "s")]).named(["weights", "bundle"])
        }
        6 => {
            // Everything but one file gone.
            for gone in names.iter().filter(|other| **other != name) {
                std::fs::remove_file(room.join("s").join(gone))?;
            }
            let named = names.clone();
            Situation::new(format!("only {name} is left"), same, go_on).named(named).named(["`s`"])
        }
        7 => {
            let place = *rng.pick(&["/dev/null", "/proc/no", "file", "file/below", "", ".", "new/and/deeper", "s"]);
            std::fs::write(room.join("file"), "a file of the user")?;
            let mut save = run(&bundle);
            save.args.extend(["--save".into(), place.into()]);
            let what = format!("saved into {place:?}");
            Situation::new(what, Expect::Open, vec![save]).named(["--save", "save", place])
        }
        _ => {
            let place = *rng.pick(&["no", "/dev/null", "empty", "file", "", "bundle0"]);
            std::fs::create_dir(room.join("empty"))?;
            std::fs::write(room.join("file"), "a file of the user")?;
            let what = format!("restored from {place:?}");
            Situation::new(what, Expect::Refuse, vec![restore(&bundle, place)])
                .named(["--restore", "session"])
                .named([place])
        }
    })
}
