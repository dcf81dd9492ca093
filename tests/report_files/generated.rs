//! Inputs that are too large or too strange to keep as files.

use std::fs;
use std::process::Stdio;

use super::{Output, evenkeel};

/// Runs on one file of that name and content: exit code, standard output and standard error.
fn on(name: &str, content: &[u8], args: &[&str]) -> (i32, String, String) {
    let folder = std::env::temp_dir().join(format!("evenkeel-files-{}-{name}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    fs::write(folder.join(name), content).unwrap();
    let mut all = vec!["report", "-f", name];
    all.extend(args);
    let Output { status, stdout, stderr } = evenkeel(&folder, &all, Stdio::null());
    fs::remove_dir_all(folder).unwrap();
    (status.code().unwrap(), String::from_utf8(stdout).unwrap(), String::from_utf8(stderr).unwrap())
}

const SERVER: [&str; 2] = ["--apiserver-version", "v1.36.4"];

fn node(name: &str, kubelet: &str) -> String {
    let version = format!("{{\"nodeInfo\": {{\"kubeletVersion\": \"{kubelet}\"}}}}");
    format!("{{\"kind\": \"Node\", \"metadata\": {{\"name\": \"{name}\"}}, \"status\": {version}}}")
}

#[test]
fn nothing_of_a_file_reaches_the_terminal_raw() {
    let megabyte = "x".repeat(1 << 20);
    for evil in
        [megabyte.as_str(), "v1.36.4<script>", "v1.36.4\\u001b[31m", "v1.36.4\u{202e}4.63.1v", "\u{9b}2J"]
    {
        for text in [
            node("n1", evil),
            node(evil, "v1.36.4"),
            // Where a number is expected the error tells what it found.
            format!(
                "[{}, {{\"kind\": \"Node\", \"metadata\": {{\"name\": \"x\"}}, \"spec\": \"{evil}\"}}]",
                node("n1", "v1.36.4")
            ),
            format!(
                "{{\"kind\": \"Node\", \"metadata\": {{\"name\": \"n1\", \"labels\": {{\"pool\": \"{evil}\"}}}}}}"
            ),
            format!(
                r#"[{}, {{"apiVersion": "admissionregistration.k8s.io/v1", "kind": "ValidatingWebhookConfiguration",
                "metadata": {{"name": "x"}}, "webhooks": [{{"name": "{evil}", "matchPolicy": "Exact",
                "failurePolicy": "Fail", "rules": [{{"apiVersions": ["v1"]}}]}}]}}]"#,
                node("n1", "unknown")
            ),
            format!(
                r#"[{}, {{"apiVersion": "config.openshift.io/v1", "kind": "ClusterOperator",
                "metadata": {{"name": "kube-scheduler"}},
                "status": {{"versions": [{{"name": "kube-scheduler", "version": "{evil}"}}]}}}}]"#,
                node("n1", "unknown")
            ),
        ] {
            for form in ["table", "wide", "json", "yaml", "markdown", "sarif", "junit"] {
                let (code, out, err) = on("evil.json", text.as_bytes(), &["-o", form, SERVER[0], SERVER[1]]);
                assert_eq!((code, err.as_str()), (0, ""), "{form}");
                let all = format!("{out}{err}");
                assert!(all.len() < 16_000, "{form}: {} bytes", all.len());
                let raw = |c: char| (c.is_control() && c != '\n') || c == '\u{202e}' || c == '\u{9b}';
                assert!(!all.contains(raw), "{form}: {all:?}");
                assert!(!all.contains("<script>") || form != "markdown" && form != "junit", "{form}: {all}");
                assert!(all.contains("nknown") || all.contains("UNKNOWN"), "{form}: {all}");
            }
        }
    }
}

#[test]
fn a_hundred_thousand_nodes() {
    let items: Vec<String> = (0..100_000).map(|i| node(&format!("n{i:06}"), "v1.35.1")).collect();
    let list = format!("{{\"apiVersion\": \"v1\", \"items\": [{}], \"kind\": \"List\"}}", items.join(", "));
    let (code, out, err) = on("many.json", list.as_bytes(), &SERVER);
    assert_eq!((code, err.as_str()), (0, ""));
    assert!(out.contains("kubelet          default         v1.35.1   100000"), "{out}");
    let cut = list.get(..list.len() / 2).unwrap();
    let (code, out, err) = on("half.json", cut.as_bytes(), &SERVER);
    assert_eq!((code, out.as_str()), (1, ""));
    assert_eq!(err, "error: half.json: ends in the middle of its JSON (line 1); write the file again\n");
}

#[test]
fn encodings() {
    let text = node("n1", "v1.36.4");
    let utf16: Vec<u8> = [0xfeff].into_iter().chain(text.encode_utf16()).flat_map(u16::to_le_bytes).collect();
    let bom = format!("\u{feff}{text}");
    for bytes in [text.as_bytes(), &utf16, bom.as_bytes()] {
        assert_eq!(on("nodes.json", bytes, &SERVER).0, 0);
    }
    for (bytes, why) in [
        (&[0x1f, 0x8b, 8][..], "is compressed; unpack it first"),
        (&[0, 1, 2], "is neither JSON nor YAML: it is not text"),
        (&[0xc3, 0x28], "is neither JSON nor YAML: it is not text"),
        (&[], "is empty"),
    ] {
        assert_eq!(on("in", bytes, &SERVER), (1, String::new(), format!("error: in: {why}\n")));
    }
}
