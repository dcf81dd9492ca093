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
        // What every write of a client takes, whatever it is called by: `.replace(` is a word of texts, too.
        "PostParams",
        "PatchParams",
        "DeleteParams",
        "EvictParams",
        "Request::post(",
        "Request::put(",
        "Request::patch(",
        "Request::delete(",
    ];
    // The fold of a watch forgets what was deleted.
    assert_eq!(lines(&files, &writes, &["fold.delete(&object"]), Vec::<String>::new());
}

/// Every function of `act` that sends something goes through `Authority::send`; the election alone may not need what it is
/// there to give. A recorder of events sends with a client of its own.
#[test]
fn every_request_of_act_needs_an_authority() {
    let mut files = sources("src/act");
    let exempt = ["src/act/authority.rs", "src/act/elect.rs"];
    files.retain(|(name, _)| !exempt.contains(&name.as_str()) && !name.ends_with("/tests.rs"));
    assert!(files.len() > 5);
    let clients = ["within(", "client.clone()", "&Client", "kube::Client", "Client::", "Recorder"];
    assert_eq!(lines(&files, &clients, &[]), Vec::<String>::new());
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

/// A function fits on a screen, from its first line to its last.
#[test]
fn no_function_is_longer_than_a_screen() {
    const MOST: usize = 80;
    let mut long = Vec::new();
    let folders = ["core/src", "src", "sim/src", "devcluster/src"];
    let mut files: Vec<_> = folders.into_iter().flat_map(sources).collect();
    // Tests are tables of cases.
    files.retain(|(name, _)| !name.ends_with("/tests.rs") && !name.contains("/tests/"));
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
            let head = lines[at..].iter().take_while(|line| !line.ends_with(['{', ';', '}'])).count();
            if !lines.get(at + head).is_some_and(|line| line.ends_with('{')) {
                continue;
            }
            let body = lines[at + head + 1..].iter().take_while(|line| **line != brace).count();
            let length = head + 1 + body + 1;
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

/// How long the comment, text or character is with which `rest` begins; `None` if it begins with code.
fn no_code(before: Option<char>, rest: &str) -> Option<usize> {
    let through =
        |from: usize, end: &str| Some(rest[from..].find(end).map_or(rest.len(), |at| from + at + end.len()));
    let escaped = |quote: char| {
        let mut characters = rest.char_indices().skip(1);
        while let Some((at, c)) = characters.next() {
            match c {
                '\\' => drop(characters.next()),
                c if c == quote => return Some(at + 1),
                _ => {}
            }
        }
        Some(rest.len())
    };
    let word = before.is_some_and(|c| c != 'b' && (c.is_alphanumeric() || c == '_'));
    if rest.starts_with("//") {
        return Some(rest.find('\n').unwrap_or(rest.len()));
    } else if rest.starts_with("/*") {
        return through(2, "*/");
    } else if let Some(raw) = rest.strip_prefix('r').filter(|_| !word) {
        let hashes = raw.len() - raw.trim_start_matches('#').len();
        return raw[hashes..]
            .starts_with('"')
            .then(|| through(hashes + 2, &format!("\"{}", "#".repeat(hashes))))?;
    } else if rest.starts_with('"') {
        return escaped('"');
    }
    // A character, unless it is a lifetime.
    let mut after = rest.strip_prefix('\'')?.chars();
    let first = after.next()?;
    (first == '\\' || after.next() == Some('\'')).then(|| escaped('\''))?
}

/// The code in `text`, without its unit tests.
fn code(text: &str) -> String {
    let (mut code, mut rest) = (String::with_capacity(text.len()), text);
    while let Some(c) = rest.chars().next() {
        let length = no_code(code.chars().next_back(), rest);
        code.push(if length.is_some() { ' ' } else { c });
        rest = &rest[length.unwrap_or(c.len_utf8())..];
    }
    let code = code.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default();
    // How far something can be seen is no import.
    let mut parts = code.split("pub(in ");
    let first = parts.next().unwrap_or_default().to_owned();
    parts.fold(first, |all, part| all + "pub" + part.split_once(')').map_or("", |(_, rest)| rest))
}

/// What is in `statement` before a `use`, of any visibility and perhaps in a function, and what is after it.
fn around_use(statement: &str) -> (&str, Option<&str>) {
    let mut at = 0;
    for line in statement.split_inclusive('\n') {
        let rest = line.trim_start();
        let rest = rest.strip_prefix("pub").map_or(rest, |rest| {
            let scope = rest.strip_prefix('(').and_then(|rest| rest.split_once(')'));
            scope.map_or(rest, |(_, rest)| rest).trim_start()
        });
        if let Some(tree) = rest.strip_prefix("use ") {
            return (&statement[..at], Some(&statement[at + line.len() - tree.len()..]));
        }
        at += line.len();
    }
    (statement, None)
}

/// The paths in the code of `text`: those of every `use`, and all others.
fn paths(text: &str) -> (Vec<String>, Vec<String>) {
    let (mut uses, mut others) = (Vec::new(), Vec::new());
    for statement in code(text).split(';') {
        let (before, tree) = around_use(statement);
        let words = before.split(|c: char| !c.is_alphanumeric() && c != '_' && c != ':');
        let words = words.map(|word| word.trim_end_matches(':').to_owned());
        others.extend(words.filter(|word| word.contains("::")));
        if let Some(tree) = tree {
            expanded(&tree.replace('\n', " "), "", &mut uses);
        }
    }
    for path in &mut uses {
        path.truncate(path.strip_suffix("::self").unwrap_or(path).len());
    }
    (uses, others)
}

type Module = Vec<String>;

/// The files of a crate as modules: their names, and the paths that each of them uses, by their last words.
struct Tree {
    names: BTreeMap<Module, String>,
    uses: BTreeMap<(Module, String), String>,
}

impl Tree {
    /// Where `path` leads from `module`: the longest part of it that is a module, and the word after it.
    fn followed(&self, module: &Module, path: &str) -> Option<(Module, Option<String>)> {
        let relative = |word: &str| ["crate", "super", "self"].contains(&word);
        let mut words: Vec<String> = path.split("::").map(|word| word.trim().to_owned()).collect();
        let first = words.first()?.clone();
        let mut at = match first.as_str() {
            "crate" => Vec::new(),
            "super" | "self" => module.clone(),
            child if self.names.contains_key(&[&module[..], &[child.to_owned()]].concat()) => module.clone(),
            // What was imported may go on.
            _ => {
                let before = self.uses.get(&(module.clone(), first))?;
                let is_ours = relative(before.split("::").next()?);
                let whole = words[1..].iter().fold(before.clone(), |path, word| path + "::" + word);
                return is_ours.then(|| self.followed(module, &whole))?;
            }
        };
        while words.first().is_some_and(|word| relative(word)) {
            if words.remove(0) == "super" {
                at.pop();
            }
        }
        at.extend(words);
        let mut after = None;
        while !at.is_empty() && !self.names.contains_key(&at) {
            after = at.pop();
        }
        Some((at, after))
    }

    /// The modules that `module` imports by `path`: the one that it names, and the one that defines what that one hands on.
    fn imported(&self, module: &Module, path: &str) -> Vec<Module> {
        let mut all = Vec::new();
        let mut next = self.followed(module, path);
        while let Some((at, word)) = next.filter(|(at, _)| !all.contains(at)) {
            let handed_on = word.and_then(|word| self.uses.get(&(at.clone(), word)));
            next = handed_on.and_then(|path| self.followed(&at, path));
            all.push(at);
        }
        all.retain(|at| !at.is_empty() && at != module);
        all
    }
}

/// How many imports there are among the files of the crate in `folder`, and which two files import each other.
fn mutual(folder: &str, files: &[(String, String)]) -> (usize, Vec<String>) {
    let module = |name: &str| -> Module {
        let path = name.trim_start_matches(folder).trim_start_matches('/');
        let path = path.trim_end_matches(".rs").trim_end_matches("/mod");
        path.split('/').filter(|word| !["lib", "main"].contains(word)).map(str::to_owned).collect()
    };
    let mut tree = Tree { names: BTreeMap::new(), uses: BTreeMap::new() };
    let mut all = BTreeMap::new();
    for (name, text) in files {
        let (module, (uses, others)) = (module(name), paths(text));
        let last = |path: &String| path.rsplit("::").next().unwrap_or_default().to_owned();
        tree.uses.extend(uses.iter().map(|path| ((module.clone(), last(path)), path.clone())));
        tree.names.insert(module.clone(), name.clone());
        all.insert(module, [uses, others].concat());
    }
    let imported = |(module, paths): (&Module, &Vec<String>)| {
        (module.clone(), paths.iter().flat_map(|path| tree.imported(module, path)).collect::<BTreeSet<_>>())
    };
    let all: BTreeMap<Module, BTreeSet<Module>> = all.iter().map(imported).collect();
    let mut mutual = Vec::new();
    for (one, imported) in &all {
        for other in imported.iter().filter(|other| *other > one && all[*other].contains(one)) {
            mutual.push(format!("{} and {}", tree.names[one], tree.names[other]));
        }
    }
    (all.values().map(BTreeSet::len).sum(), mutual)
}

/// Floors: who is imported does not import back, neither by a `use` nor by a path where it is needed. What a module hands
/// on is imported from the file that defines it.
#[test]
fn no_two_files_import_each_other() {
    let crates =
        [("src", 500), ("core/src", 700), ("sim/src", 350), ("devcluster/src", 150), ("tests/kit/src", 5)];
    // Every folder of tests is a crate of its own.
    let tests = fs::read_dir(root().join("tests")).unwrap().map(|entry| entry.unwrap().file_name());
    let tests = tests.map(|name| format!("tests/{}", name.to_str().unwrap()));
    let tests = tests.filter(|folder| root().join(folder).join("main.rs").is_file());
    let crates = crates.map(|(folder, at_least)| (folder.to_owned(), at_least)).into_iter();
    let crates: Vec<_> = crates.chain(tests.map(|folder| (folder, 0))).collect();
    assert!(crates.len() > 10, "{crates:?}");
    let mut all = Vec::new();
    for (folder, at_least) in &crates {
        let (found, mutual) = mutual(folder, &sources(folder));
        assert!(found >= *at_least, "{found} imports are found in {folder}");
        all.extend(mutual);
    }
    assert_eq!(all, Vec::<String>::new());
}

#[test]
fn every_form_of_an_import_is_seen() {
    // `text` is that of `a/b.rs`; whether it imports `a/c.rs`, which imports it, is the question.
    let seen = |text: &str| {
        let file = |name: &str, text: &str| (format!("src/{name}"), text.to_owned());
        let files = [
            file("lib.rs", "mod a;\nuse a::b;\n"),
            file("a/mod.rs", "mod b;\nmod c;\nmod d;\nuse c::Handed;\n"),
            file("a/b.rs", text),
            file("a/c.rs", "use super::b::Back;\n"),
            file("a/d.rs", ""),
        ];
        let (_, mutual) = mutual("src", &files);
        assert!(mutual.iter().all(|pair| pair == "src/a/b.rs and src/a/c.rs"), "{text}: {mutual:?}");
        mutual.len() == 1
    };
    for text in [
        "use super::c::X;\n",
        "pub use crate::a::c::X;\n",
        "pub(crate) use super::c;\n",
        "pub(super) use super::{d, c::{X, Y}};\n",
        "pub(in crate::a) use super::{\n    c::X,\n    d,\n};\n",
        "fn f() {\n    use super::{c::X, d};\n}\n",
        "fn f() -> u8 {\n    super::c::f(b';', '\\'', \"\\\"\")\n}\n",
        "struct X<'a>(&'a crate::a::c::Y);\n",
        "use super::d;\nfn f(x: super::c::X<d::Y>) {}\n",
        "const X: &str = r#\"a\"b\"#;\nfn f() { super::c::f::<u8>() }\n",
        "use crate::a;\nfn f() { a::c::f() }\n",
        "use super::Handed;\n",
        "fn f() { super::Handed::new() }\n",
    ] {
        assert!(seen(text), "{text}");
    }
    for text in [
        "// super::c::f()\n/* use super::c::X; */\n//! [`super::c`]\nuse super::d;\n",
        "const X: &str = \"super::c::X\";\nconst Y: &str = r#\"\"super::c::X\"#;\n",
        "pub(in super::super) use std::c::X;\npub(in crate::a::c) fn f() {}\n",
        "fn f() {}\n\n#[cfg(test)]\nmod tests {\n    use super::super::c::X;\n}\n",
        "use other::c::X;\nfn f() { c::X() }\n",
    ] {
        assert!(!seen(text), "{text}");
    }
    // A parent and its child are two files; to declare the child is no import.
    let parent = |text: &str| {
        let of = |name: &str, text: &str| (format!("src/{name}"), text.to_owned());
        mutual("src", &[of("a.rs", text), of("a/b.rs", "use super::X;\n")]).1
    };
    assert_eq!(parent("mod b;\npub struct X;\n"), [""; 0]);
    assert_eq!(parent("mod b;\npub struct X;\nfn f() { b::g() }\n"), ["src/a.rs and src/a/b.rs"]);
    assert_eq!(parent("pub(crate) mod b;\npub(crate) use b::Y;\n"), ["src/a.rs and src/a/b.rs"]);
}

/// People look a finding up by its code.
#[test]
fn every_code_of_a_finding_is_explained() {
    let read = |path: &str| fs::read_to_string(root().join(path)).unwrap();
    let enums = ["core/src/plan/finding_id.rs", "core/src/disruption/preflight/code.rs"].map(read).concat();
    let code = |line: &str| {
        let (_, text) = line.trim().strip_prefix("Self::")?.split_once(" => \"")?;
        Some(text.split('"').next()?.to_owned())
    };
    let mut codes: BTreeSet<String> = enums.lines().filter_map(code).collect();
    assert!(codes.len() > 60);
    codes.insert(evenkeel_core::skew::policy::WEBHOOKS_BEFORE_UPGRADE.id.to_owned());
    let page = read("docs/findings.md");
    let row = |line: &str| Some(line.strip_prefix("| `")?.split('`').next()?.to_owned());
    let explained: BTreeSet<String> = page.lines().filter_map(row).collect();
    assert_eq!(explained, codes);
}
