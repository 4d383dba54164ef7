//! The repository's Dockerfile keeps rules that hadolint has too, and fits the workspace: no linter of it can be had here.

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::workspace::root;

    /// Instructions with their lines joined, comments left out.
    fn instructions(text: &str) -> Vec<(String, String)> {
        let plain: Vec<&str> = text.lines().filter(|line| !line.trim_start().starts_with('#')).collect();
        let joined = plain.join("\n").replace("\\\n", " ");
        let lines = joined.lines().map(str::trim).filter(|line| !line.is_empty());
        lines.filter_map(|line| line.split_once(' ')).map(|(name, rest)| (name.into(), rest.trim().into())).collect()
    }

    /// What is wrong with a Dockerfile.
    fn faults(text: &str, rust: &str, exists: impl Fn(&str) -> bool) -> Vec<String> {
        const KNOWN: [&str; 12] = [
            "FROM",
            "RUN",
            "COPY",
            "WORKDIR",
            "ENV",
            "ARG",
            "USER",
            "EXPOSE",
            "VOLUME",
            "ENTRYPOINT",
            "CMD",
            "HEALTHCHECK",
        ];
        let all = instructions(text);
        let mut faults = Vec::new();
        let mut user = None;
        let mut stages: Vec<String> = Vec::new();
        for (name, rest) in &all {
            match name.as_str() {
                "FROM" => {
                    let mut words = rest.split_whitespace();
                    let image = words.next().unwrap_or_default();
                    let pinned = image.split_once(':').is_some_and(|(_, tag)| tag != "latest");
                    if !pinned && !stages.iter().any(|stage| stage == image) {
                        faults.push(format!("`{image}` has no version"));
                    }
                    if image.starts_with("rust:") && !image.starts_with(&format!("rust:{rust}")) {
                        faults.push(format!("`{image}` is not Rust {rust}"));
                    }
                    stages.extend(rest.split_once(" AS ").map(|(_, stage)| stage.trim().to_owned()));
                    user = None;
                }
                "RUN" if rest.contains("apt-get install") => {
                    for wanted in ["apt-get update", "--no-install-recommends", "rm -rf /var/lib/apt/lists"] {
                        if !rest.contains(wanted) {
                            faults.push(format!("`apt-get install` without `{wanted}`"));
                        }
                    }
                }
                "COPY" if !rest.starts_with("--from=") => {
                    let mut words: Vec<&str> = rest.split_whitespace().collect();
                    words.pop();
                    faults.extend(
                        words.iter().filter(|path| !exists(path)).map(|path| format!("`{path}` does not exist")),
                    );
                }
                "USER" => user = Some(rest.clone()),
                "ENTRYPOINT" | "CMD" if !rest.starts_with('[') => faults.push(format!("`{name}` is no list")),
                other if !KNOWN.contains(&other) => faults.push(format!("unknown instruction `{other}`")),
                _ => {}
            }
        }
        if user.is_none_or(|user| user == "root" || user == "0") {
            faults.push("the last stage runs as root".into());
        }
        faults
    }

    #[test]
    fn the_dockerfile_keeps_the_rules() {
        let root = root();
        let manifest = fs::read_to_string(root.join("Cargo.toml")).unwrap();
        let rust = manifest.lines().find_map(|line| line.strip_prefix("rust-version = \"")).unwrap();
        let text = fs::read_to_string(root.join("Dockerfile")).unwrap();
        let found = faults(&text, rust.trim_end_matches('"'), |path| root.join(path).exists());
        assert_eq!(found, Vec::<String>::new());
    }

    #[test]
    fn each_rule_finds_its_fault() {
        let bad = "FROM debian AS build\nRUN apt-get install -y curl\nCOPY nothing /x\nADD a b\nCMD genie\n";
        let expected = [
            "`debian` has no version",
            "`apt-get install` without `apt-get update`",
            "`apt-get install` without `--no-install-recommends`",
            "`apt-get install` without `rm -rf /var/lib/apt/lists`",
            "`nothing` does not exist",
            "unknown instruction `ADD`",
            "`CMD` is no list",
            "the last stage runs as root",
        ];
        assert_eq!(faults(bad, "1.95", |_| false), expected);
        assert_eq!(faults("FROM rust:1.80-slim\nUSER 1\n", "1.95", |_| true), ["`rust:1.80-slim` is not Rust 1.95"]);
    }
}
