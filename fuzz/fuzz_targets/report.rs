//! From the bytes of a file to every text that a person or a program reads.
//!
//! The input is the file. What must hold: no panic; a text or one line that says what is wrong; nothing that moves a
//! terminal's cursor or turns the direction of writing; JSON, YAML and XML that their readers take, the first two
//! saying the same; no finding twice; and no Node lost without being counted.

#![no_main]

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::LazyLock;

use evenkeel::cli::every_form;
use evenkeel::observe::stated_versions::StatedVersion;
use evenkeel_core::cluster::Component;
use libfuzzer_sys::fuzz_target;
use serde_json::Value;
use tempfile::TempDir;

/// In memory, where the system has a place for it.
static FOLDER: LazyLock<TempDir> = LazyLock::new(|| {
    tempfile::tempdir_in("/dev/shm").or_else(|_| tempfile::tempdir()).expect("a folder for the input")
});
static FILE: LazyLock<PathBuf> = LazyLock::new(|| FOLDER.path().join("input"));

fuzz_target!(|bytes: &[u8]| {
    std::fs::write(&*FILE, bytes).expect("a place for the input");
    // Most files name no kube-apiserver: every second one is judged by a version that a person gave.
    let given = StatedVersion {
        component: Component::KubeApiserver,
        name: None,
        version: "v1.36.4".parse().expect("a version"),
    };
    let given = if bytes.len() % 2 == 0 { vec![given] } else { Vec::new() };
    match every_form(std::slice::from_ref(&*FILE), &given) {
        Ok(texts) => texts.iter().for_each(|(form, text)| shown(form, text, &texts)),
        Err(line) => assert!(plain(&line) && !line.contains('\n') && line.len() < 1024, "{line:?}"),
    }
});

/// Without anything that a terminal does not print as itself, but for newlines.
fn plain(text: &str) -> bool {
    let marks = |c: char| {
        matches!(c, '\u{ad}' | '\u{61c}' | '\u{200b}'..='\u{200f}' | '\u{2028}'..='\u{202e}'
            | '\u{2060}'..='\u{206f}' | '\u{feff}' | '\u{fff9}'..='\u{fffb}' | '\u{e0000}'..='\u{e007f}')
    };
    !text.contains(|c: char| (c.is_control() && c != '\n') || marks(c))
}

fn shown(form: &str, text: &str, all: &[(String, String)]) {
    assert!(plain(text), "{form}: {text:?}");
    assert!(text.ends_with('\n'), "{form}: {text:?}");
    match form {
        "report json" => {
            let json: Value = serde_json::from_str(text).unwrap_or_else(|error| panic!("{error}: {text}"));
            let yaml = all.iter().find(|(form, _)| form == "report yaml").map_or("", |(_, yaml)| yaml);
            let yaml: Value = serde_saphyr::from_str(yaml).unwrap_or_else(|error| panic!("{error}: {yaml}"));
            // When a condition changed is the time of looking where a file tells none; the two looks differ by that.
            assert_eq!(timeless(yaml), timeless(json.clone()));
            document(&json);
        }
        "report sarif" => {
            drop(serde_json::from_str::<Value>(text).unwrap_or_else(|error| panic!("{error}: {text}")))
        }
        "report junit" => {
            drop(roxmltree::Document::parse(text).unwrap_or_else(|error| panic!("{error}: {text}")))
        }
        _ => {}
    }
}

fn timeless(mut document: Value) -> Value {
    for condition in document["conditions"].as_array_mut().into_iter().flatten() {
        condition["lastTransitionTime"].take();
    }
    document
}

fn document(json: &Value) {
    let list = |key: &str| json[key].as_array().into_iter().flatten();
    let ids: Vec<&str> = list("findings").filter_map(|finding| finding["id"].as_str()).collect();
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len(), "{ids:?}");
    if json["omitted"]["components"] == 0 {
        let kubelets = list("components").filter(|row| row["component"] == "kubelet");
        let counted: i64 = kubelets.filter_map(|row| row["count"].as_i64()).sum();
        assert_eq!(json["nodes"].as_i64(), Some(counted), "{json}");
    }
}
