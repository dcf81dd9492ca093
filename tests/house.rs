//! The house's own rules that no compiler keeps: who may send a write, what is shared, and who knows whom.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::{Path, PathBuf};

fn root() -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
}

/// Every Rust file below `folder`: its path from the root, and its text.
fn sources(folder: &str) -> Vec<(String, String)> {
    fn walk(folder: &Path, found: &mut Vec<PathBuf>) {
        for entry in fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() && !path.ends_with("target") {
                walk(&path, found);
            } else if path.extension().is_some_and(|extension| extension == "rs") {
                found.push(path);
            }
        }
    }
    let mut found = Vec::new();
    walk(&root().join(folder), &mut found);
    found.sort();
    let name = |path: &Path| path.strip_prefix(root()).unwrap().display().to_string();
    found.into_iter().map(|path| (name(&path), fs::read_to_string(path).unwrap())).collect()
}

/// The lines of `files` that contain one of `words` and none of `but`, comments aside.
fn lines(files: &[(String, String)], words: &[&str], but: &[&str]) -> Vec<String> {
    let mut found = Vec::new();
    for (name, text) in files {
        for (at, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            if words.iter().any(|word| code.contains(word)) && !but.iter().any(|word| code.contains(word)) {
                found.push(format!("{name}:{}: {}", at + 1, line.trim()));
            }
        }
    }
    found
}

/// The client for writes is reached with an `Authority` alone, which the compiler keeps. But any client could send a
/// write, so no request that changes something stands anywhere else. In the demonstration a person changes a cluster that
/// does not exist.
#[test]
fn every_write_is_sent_from_act() {
    let mut files = sources("src");
    files.retain(|(name, _)| !name.starts_with("src/act/") && !name.starts_with("src/demo/"));
    assert!(files.len() > 50);
    let writes = [
        ".patch(",
        ".patch_status(",
        ".patch_scale(",
        ".patch_subresource(",
        ".create(",
        ".create_subresource",
        ".delete(",
        ".delete_collection(",
        ".evict(",
        ".replace_status(",
        "Request::post(",
        "Request::put(",
        "Request::delete(",
    ];
    // The fold of a watch forgets what was deleted.
    assert_eq!(lines(&files, &writes, &["fold.delete(&object"]), Vec::<String>::new());
}

/// Every function of `act` that sends something goes through `Authority::send`; the election alone may not need what it is
/// there to give.
#[test]
fn every_request_of_act_needs_an_authority() {
    let mut files = sources("src/act");
    let exempt = ["src/act/authority.rs", "src/act/elect.rs"];
    files.retain(|(name, _)| !exempt.contains(&name.as_str()) && !name.ends_with("/tests.rs"));
    assert!(files.len() > 5);
    assert_eq!(
        lines(&files, &["within(", "client.clone()", ": &Client", "Client::"], &[]),
        Vec::<String>::new()
    );
}

/// The operator never writes as a person would.
#[test]
fn only_a_command_that_somebody_runs_writes_as_a_person() {
    let mut files = sources("src");
    files.retain(|(name, _)| !name.starts_with("src/cli/drain/") && name != "src/act/authority.rs");
    assert_eq!(lines(&files, &["Authority::Person"], &[]), Vec::<String>::new());
}

/// A test double that agrees with itself proves nothing.
#[test]
fn the_product_knows_nothing_of_the_virtual_cluster() {
    let mut files = sources("src");
    files.retain(|(name, _)| !name.starts_with("src/demo/") && !name.starts_with("src/cli/demo/"));
    assert_eq!(lines(&files, &["evenkeel_sim"], &[]), Vec::<String>::new());
    let core = sources("core");
    assert_eq!(lines(&core, &["evenkeel_sim"], &[]), Vec::<String>::new());
}

#[test]
fn what_tests_share_is_a_crate_and_texts_are_written_anew_in_one_way() {
    let mut files: Vec<_> = ["benches", "core", "devcluster", "examples", "sim", "src", "tests"]
        .iter()
        .flat_map(|at| sources(at))
        .collect();
    files.retain(|(name, _)| name != "tests/house.rs");
    assert_eq!(lines(&files, &["#[path"], &[]), Vec::<String>::new());
    assert_eq!(lines(&files, &["\"UPDATE"], &["\"UPDATE_EXPECT\""]), Vec::<String>::new());
}

/// A function fits on a screen: the lines of its body, without comments and empty ones.
#[test]
fn no_function_is_longer_than_a_screen() {
    const MOST: usize = 80;
    let mut long = Vec::new();
    let mut files = [sources("core/src"), sources("src")].concat();
    // The core's tests are tables of cases.
    files.retain(|(name, _)| name.starts_with("src/") || !name.ends_with("/tests.rs"));
    for (name, text) in files {
        let lines: Vec<&str> = text.lines().collect();
        for (at, line) in lines.iter().enumerate() {
            let code = line.trim_start();
            let before = code.split("fn ").next().unwrap_or_default();
            let words = ["pub", "pub(super)", "pub(crate)", "pub(in", "super::super)", "const", "async"];
            if !code.contains("fn ") || !before.split_whitespace().all(|word| words.contains(&word)) {
                continue;
            }
            // It ends at the first line that is a brace below its own beginning; without a body it ends at once.
            let brace = format!("{}}}", &line[..line.len() - code.len()]);
            let rest = lines[at..].iter();
            let body: Vec<_> = rest.skip_while(|line| !line.ends_with(['{', ';', '}'])).collect();
            if !body.first().is_some_and(|line| line.ends_with('{')) {
                continue;
            }
            let length = body[1..].iter().take_while(|line| ***line != brace);
            let length =
                length.filter(|line| !line.trim().is_empty() && !line.trim().starts_with("//")).count();
            if length > MOST {
                long.push(format!("{name}:{}: {length} lines", at + 1));
            }
        }
    }
    assert_eq!(long, Vec::<String>::new());
}

/// What the Dockerfile copies is a whole workspace to cargo; a package that is left out would break the image's build.
#[test]
fn the_image_is_built_from_a_whole_workspace() {
    let folder = tempfile::tempdir().unwrap();
    let ignored = fs::read_to_string(root().join(".dockerignore")).unwrap();
    for path in ignored.lines().filter_map(|line| line.strip_prefix('!')) {
        let at = folder.path().join(path);
        fs::create_dir_all(at.parent().unwrap()).unwrap();
        std::os::unix::fs::symlink(root().join(path), at).unwrap();
    }
    let mut cargo = std::process::Command::new(env!("CARGO"));
    cargo.args(["metadata", "--no-deps", "--offline", "--locked", "--format-version", "1"]);
    let output = cargo.current_dir(folder.path()).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

/// The paths of one `use`, braces resolved: `a::{b, c::d}` is `a::b` and `a::c::d`.
fn expanded(tree: &str, before: &str, all: &mut Vec<String>) {
    let Some((head, rest)) = tree.split_once('{') else {
        let name = tree.split(" as ").next().unwrap_or_default().trim();
        all.push(format!("{before}{name}"));
        return;
    };
    let inner = rest.rsplit_once('}').map_or(rest, |(inner, _)| inner);
    let (mut depth, mut from) = (0, 0);
    let before = format!("{before}{}", head.trim());
    for (at, c) in inner.char_indices().chain([(inner.len(), ',')]) {
        match c {
            '{' => depth += 1,
            '}' => depth -= 1,
            ',' if depth == 0 => {
                let one = inner[from..at].trim();
                if !one.is_empty() {
                    expanded(one, &before, all);
                }
                from = at + 1;
            }
            _ => {}
        }
    }
}

/// Which modules of the crate the file of `module` imports, by the longest path that is one.
fn imports(module: &[String], text: &str, known: &BTreeMap<Vec<String>, String>) -> BTreeSet<Vec<String>> {
    let code = text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    let code: Vec<&str> = code.lines().map(|line| line.split("//").next().unwrap_or_default()).collect();
    let mut paths = Vec::new();
    for statement in code.join("\n").split(';') {
        let at = statement.rfind("\nuse ").map(|at| at + 5);
        let at = at.or_else(|| statement.rfind("\npub use ").map(|at| at + 9));
        if let Some(at) = at {
            expanded(&statement[at..].replace('\n', " "), "", &mut paths);
        }
    }
    let resolved = paths.into_iter().filter_map(|path| {
        let mut words: Vec<String> = path.split("::").map(|word| word.trim().to_owned()).collect();
        let mut at = match words.first()?.as_str() {
            "crate" => Vec::new(),
            "super" | "self" => module.to_vec(),
            child if known.contains_key(&[module, &[child.to_owned()]].concat()) => module.to_vec(),
            _ => return None,
        };
        while ["crate", "super", "self"].contains(&words.first()?.as_str()) {
            if words.remove(0) == "super" {
                at.pop();
            }
        }
        at.extend(words);
        while !at.is_empty() && !known.contains_key(&at) {
            at.pop();
        }
        (!at.is_empty() && at != module).then_some(at)
    });
    resolved.collect()
}

/// Floors: who is imported does not import back. What a module hands on is imported from the file that defines it.
#[test]
fn no_two_files_import_each_other() {
    for (folder, at_least) in [("src", 150), ("core/src", 150), ("sim/src", 150)] {
        let files = sources(folder);
        let module = |name: &str| -> Vec<String> {
            let path = name.trim_start_matches(folder).trim_start_matches('/');
            let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
            path.split('/').filter(|word| !["lib", "main"].contains(word)).map(str::to_owned).collect()
        };
        let known: BTreeMap<_, _> = files.iter().map(|(name, _)| (module(name), name.clone())).collect();
        let all: BTreeMap<_, _> =
            files.iter().map(|(name, text)| (module(name), imports(&module(name), text, &known))).collect();
        let found: usize = all.values().map(BTreeSet::len).sum();
        assert!(found > at_least, "{found} imports are found in {folder}");
        let mut mutual = Vec::new();
        for (one, imported) in &all {
            for other in imported.iter().filter(|other| *other > one && all[*other].contains(one)) {
                mutual.push(format!("{} and {}", known[one], known[other]));
            }
        }
        assert_eq!(mutual, Vec::<String>::new());
    }
}
