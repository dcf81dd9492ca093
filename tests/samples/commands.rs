//! The commands that pages and manifests tell a person to type.
//!
//! Here belongs what all of them must have. That what they do is right is tested where the subject is.

use std::fs;
use std::path::{Path, PathBuf};

/// What kubectl is told to do that changes fields of an object, and leaves others alone.
const CHANGES: [&str; 6] = ["annotate", "edit", "label", "patch", "scale", "set"];

/// Every file below `path` that a person reads: pages and manifests.
fn texts(path: &Path, found: &mut Vec<PathBuf>) {
    if path.is_dir() {
        for entry in fs::read_dir(path).unwrap() {
            texts(&entry.unwrap().path(), found);
        }
    } else if path.extension().is_some_and(|extension| extension == "md" || extension == "yaml") {
        found.push(path.to_owned());
    }
}

/// The words of each command of kubectl's in `text`, those of the lines included on which it goes on.
fn commands(text: &str) -> Vec<Vec<String>> {
    let mut whole = String::new();
    for line in text.lines() {
        // What a demonstration printed is nothing that anybody is told to type.
        let line = line.trim_start().trim_start_matches('#').trim_start();
        match line.strip_suffix('\\') {
            _ if line.starts_with("──") => {}
            Some(begun) => whole.push_str(begun),
            None => whole.extend([line, "\n"]),
        }
    }
    let ends = |c: char| matches!(c, '\n' | '`' | '|');
    let command = |rest: &str| {
        let words = rest.split(ends).next().unwrap_or_default().split_whitespace();
        words.map(str::to_owned).collect::<Vec<_>>()
    };
    whole.split("kubectl ").skip(1).map(command).collect()
}

/// What a command does: its first word that is no flag, and no namespace.
fn verb(words: &[String]) -> Option<&str> {
    let mut words = words.iter().map(String::as_str);
    loop {
        match words.next()? {
            "-n" => _ = words.next(),
            flag if flag.starts_with('-') => {}
            verb => return Some(verb),
        }
    }
}

/// Flux takes away what a field manager set whose name begins with `kubectl`, as it does by default.
#[test]
fn what_a_person_is_told_to_change_stays_under_flux() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut files = Vec::new();
    for at in ["README.md", "docs", "config"] {
        texts(&root.join(at), &mut files);
    }
    let mut found = 0;
    for file in files {
        for words in commands(&fs::read_to_string(&file).unwrap()) {
            // A page that says what `kubectl patch` does tells nobody to type it.
            if verb(&words).is_some_and(|verb| CHANGES.contains(&verb)) && words.len() > 1 {
                found += 1;
                let flags = words.iter().filter(|word| *word == "--field-manager=evenkeel-admin").count();
                assert_eq!(flags, 1, "{}: kubectl {}", file.display(), words.join(" "));
            }
        }
    }
    assert!(found > 7, "only {found} commands were looked at");
}

#[test]
fn a_command_is_read_with_the_lines_on_which_it_goes_on() {
    let text = "#   kubectl -n shop patch pdb cart \\\n#     -p '{}'\n`kubectl edit`, and kubectl get cup";
    let commands = commands(text);
    let verbs: Vec<_> = commands.iter().map(|words| (verb(words).unwrap(), words.len())).collect();
    assert_eq!(verbs, [("patch", 7), ("edit", 1), ("get", 2)]);
}
