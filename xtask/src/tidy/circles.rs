//! No import circle between files of different folders of a crate.
//!
//! A file points to the file that defines what it names; a `pub use` on the way is followed, so that a facade is no stop, and
//! a module's `pub use` of what lies below it is no import. Files of one folder may name each other freely. Tests are left out.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::Path;

use super::imports::{self, Imports, Use};

/// How many `pub use` may lead to a name.
const MAX_HOPS: usize = 8;

/// The files of a crate's `src`, by module path.
struct Crate {
    modules: BTreeMap<Vec<String>, Module>,
}

struct Module {
    file: String,
    imports: Imports,
}

/// Checks one crate: `files` are paths below `src`, with their texts.
pub fn check(name: &str, files: &[(&Path, &str)], faults: &mut Vec<String>) {
    let crate_ = Crate::new(files);
    let edges = crate_.edges();
    for circle in circles(&edges) {
        faults.push(format!("{name}/src: import circle between folders: {}", circle.join(" -> ")));
    }
}

impl Crate {
    fn new(files: &[(&Path, &str)]) -> Self {
        let mut modules = BTreeMap::new();
        for (path, text) in files {
            let mut module: Vec<String> =
                path.with_extension("").iter().map(|p| p.to_string_lossy().into_owned()).collect();
            if module.first().is_some_and(|first| first == "bin") {
                continue;
            }
            if matches!(module.last().map(String::as_str), Some("mod"))
                || matches!(&module[..], [one] if one == "lib" || one == "main")
            {
                module.pop();
            }
            modules.insert(module, Module { file: path.display().to_string(), imports: imports::read(text) });
        }
        let tests: Vec<Vec<String>> = modules
            .iter()
            .flat_map(|(path, module)| {
                module.imports.test_modules.iter().map(|name| [&path[..], std::slice::from_ref(name)].concat())
            })
            .collect();
        modules.retain(|path, _| !tests.iter().any(|test| path.starts_with(test)));
        Self { modules }
    }

    /// Who names whom, by file.
    fn edges(&self) -> BTreeMap<String, Vec<String>> {
        let mut edges: BTreeMap<String, Vec<String>> = BTreeMap::new();
        for (path, module) in &self.modules {
            let used = module.imports.uses.iter().filter_map(|one| {
                let target = self.resolve(path, &one.path, 0)?;
                let facade = one.public && target.starts_with(path);
                (!facade).then_some(target)
            });
            let named = module.imports.paths.iter().filter_map(|one| self.resolve(path, one, 0));
            let targets = edges.entry(module.file.clone()).or_default();
            targets.extend(
                used.chain(named).filter(|target| target != path).map(|target| self.modules[&target].file.clone()),
            );
            targets.sort();
            targets.dedup();
        }
        edges
    }

    /// The module whose file defines what a path means in a module; none if it is not of this crate.
    fn resolve(&self, from: &[String], path: &[String], hops: usize) -> Option<Vec<String>> {
        let (first, rest) = path.split_first()?;
        match first.as_str() {
            "crate" => self.walk(&[], rest, hops),
            "self" => self.walk(from, rest, hops),
            "super" => {
                let parent = from.split_last()?.1;
                if rest.first().is_some_and(|next| next == "super") {
                    self.resolve(parent, rest, hops)
                } else {
                    self.walk(parent, rest, hops)
                }
            }
            name => {
                let child = [from, &[name.to_owned()]].concat();
                if self.modules.contains_key(&child) { self.walk(&child, rest, hops) } else { None }
            }
        }
    }

    fn walk(&self, module: &[String], path: &[String], hops: usize) -> Option<Vec<String>> {
        let here = self.modules.get(module)?;
        let Some((name, rest)) = path.split_first().filter(|(name, _)| *name != "*") else {
            return Some(module.to_vec());
        };
        let child = [module, std::slice::from_ref(name)].concat();
        // A module and a function may share a name; the last segment is then the function.
        if self.modules.contains_key(&child)
            && !(rest.is_empty() && here.imports.uses.iter().any(|one| one.name == *name))
        {
            return self.walk(&child, rest, hops);
        }
        if hops < MAX_HOPS && !here.imports.items.contains(name) {
            for one in &here.imports.uses {
                let target = if one.name == *name {
                    [&one.path[..], rest].concat()
                } else if one.name == "*" && self.defines(module, one, name, hops) {
                    [&one.path[..one.path.len() - 1], path].concat()
                } else {
                    continue;
                };
                if let Some(found) = self.resolve(module, &target, hops + 1) {
                    return Some(found);
                }
            }
        }
        Some(module.to_vec())
    }

    /// Whether the module behind a `use ..::*` has the name.
    fn defines(&self, from: &[String], glob: &Use, name: &str, hops: usize) -> bool {
        let Some(target) = self.resolve(from, &glob.path, hops + 1).filter(|target| target != from) else {
            return false;
        };
        let imports = &self.modules[&target].imports;
        imports.items.iter().any(|item| item == name) || imports.uses.iter().any(|one| one.public && one.name == name)
    }
}

/// For each set of folders that files reach each other over: one shortest circle.
fn circles(edges: &BTreeMap<String, Vec<String>>) -> Vec<Vec<String>> {
    let mut found: Vec<(BTreeSet<String>, Vec<String>)> = Vec::new();
    for (from, targets) in edges {
        for to in targets.iter().filter(|to| folder(to) != folder(from)) {
            let Some(back) = shortest(edges, to, from) else { continue };
            let folders: BTreeSet<String> = back.iter().map(|file| folder(file).to_owned()).collect();
            if !found.iter().any(|(known, _)| *known == folders) {
                found.push((folders, [vec![from.clone()], back].concat()));
            }
        }
    }
    found.into_iter().map(|(_, circle)| circle).collect()
}

fn folder(file: &str) -> &str {
    file.rsplit_once('/').map_or("", |(folder, _)| folder)
}

/// The files on a shortest way, both ends included.
fn shortest(edges: &BTreeMap<String, Vec<String>>, from: &str, to: &str) -> Option<Vec<String>> {
    let mut before: BTreeMap<&str, &str> = BTreeMap::new();
    let mut todo = VecDeque::from([from]);
    while let Some(file) = todo.pop_front() {
        if file == to {
            let mut way = vec![to.to_owned()];
            let mut at = to;
            while at != from {
                at = before[at];
                way.push(at.to_owned());
            }
            way.reverse();
            return Some(way);
        }
        for next in edges.get(file).into_iter().flatten() {
            if next != from && !before.contains_key(next.as_str()) {
                before.insert(next, file);
                todo.push_back(next);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn faults(files: &[(&str, &str)]) -> Vec<String> {
        let files: Vec<_> = files.iter().map(|(path, text)| (Path::new(*path), *text)).collect();
        let mut faults = Vec::new();
        check("x", &files, &mut faults);
        faults
    }

    #[test]
    fn a_circle_over_folders_is_named() {
        let found = faults(&[
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "use crate::b::f; pub fn g() {}"),
            ("b/mod.rs", "pub fn f() { crate::a::g() }"),
        ]);
        assert_eq!(found.len(), 1, "{found:?}");
        assert!(found[0].contains("a/mod.rs -> b/mod.rs -> a/mod.rs"), "{found:?}");
    }

    #[test]
    fn a_circle_in_one_folder_and_one_by_tests_are_fine() {
        let one_folder = [("lib.rs", ""), ("a.rs", "use crate::b::B;"), ("b.rs", "use super::a::A; pub struct B;")];
        assert!(faults(&one_folder).is_empty());
        let tests = [
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "pub struct A; #[cfg(test)] mod tests;\n#[cfg(test)]\nmod more { use crate::b::B; }"),
            ("a/tests.rs", "use crate::b::B;"),
            ("b/mod.rs", "use crate::a::A; pub struct B;"),
        ];
        assert!(faults(&tests).is_empty());
    }

    #[test]
    fn a_facade_is_seen_through() {
        let files = [
            ("lib.rs", "mod a; mod b; pub use a::A; pub use b::*;"),
            ("a/mod.rs", "mod inner; pub use inner::A;"),
            ("a/inner.rs", "use crate::B; pub struct A;"),
            ("b/mod.rs", "pub struct B;"),
        ];
        assert!(faults(&files).is_empty(), "{:?}", faults(&files));
        let mut closed = files;
        closed[3].1 = "use crate::A; pub struct B;";
        assert!(faults(&closed)[0].contains("a/inner.rs -> b/mod.rs -> a/inner.rs"), "{:?}", faults(&closed));
    }

    #[test]
    fn a_long_circle_is_found_through_files_of_one_folder() {
        let files = [
            ("lib.rs", "mod a; mod b;"),
            ("a/mod.rs", "mod x; mod y;"),
            ("a/x.rs", "use super::y::Y; pub struct X;"),
            ("a/y.rs", "use crate::b::B; pub struct Y;"),
            ("b/mod.rs", "use crate::a::x::X; pub struct B;"),
        ];
        assert!(faults(&files)[0].contains("a/y.rs -> b/mod.rs -> a/x.rs -> a/y.rs"), "{:?}", faults(&files));
    }
}
