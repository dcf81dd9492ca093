//! The house's own rules that no compiler keeps: who may send a write, what is shared, and who knows whom.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

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
    files.retain(|(name, _)| !["src/act/authority.rs", "src/act/elect.rs"].contains(&name.as_str()));
    assert!(files.len() > 5);
    assert_eq!(
        lines(&files, &["within(", "client.clone()", ": &Client", "Client::"], &[]),
        Vec::<String>::new()
    );
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
