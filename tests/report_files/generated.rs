//! Inputs that are too large or too strange to keep as files.

use std::fs;
use std::io::{BufRead as _, BufReader, Write as _};
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
            // Of a Node whose name was taken out, the pool is shown all the same.
            format!(
                "{{\"kind\": \"Node\", \"metadata\": {{\"name\": \"***HIDDEN***\", \"labels\": {{\"pool\": \"{evil}\"}}}}}}"
            ),
            // On OpenShift the key of a label names the pool.
            format!(
                r#"{{"kind": "Node", "metadata": {{"name": "n1", "labels":
                {{"node.openshift.io/os_id": "rhcos", "node-role.kubernetes.io/{evil}": ""}}}}}}"#
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
    let tar = [&[b'n'; 257][..], b"ustar\x0000", &[0; 248]].concat();
    for (bytes, why) in [
        (&[0x1f, 0x8b, 8][..], "is packed by gzip; unpack it first"),
        (b"PK\x03\x04\x14", "is packed by zip; unpack it first"),
        (b"\xfd7zXZ\x00\x00", "is packed by xz; unpack it first"),
        (b"\x28\xb5\x2f\xfd\x04", "is packed by zstd; unpack it first"),
        (b"BZh91AY", "is packed by bzip2; unpack it first"),
        (&tar, "is a tar archive; unpack it, and give the folder"),
        (&[0, 1, 2], "is neither JSON nor YAML: it is not text"),
        (&[0xc3, 0x28], "is neither JSON nor YAML: it is not text"),
        (&[], "is empty"),
    ] {
        assert_eq!(on("in", bytes, &SERVER), (1, String::new(), format!("error: in: {why}\n")));
    }
}

/// Runs on what `write` writes to its standard input.
fn piped(args: &[&str], write: impl FnOnce(std::process::ChildStdin) + Send + 'static) -> (i32, String) {
    let mut child = std::process::Command::new(super::binary())
        .args(args)
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let input = child.stdin.take().unwrap();
    let writing = std::thread::spawn(move || write(input));
    let output = child.wait_with_output().unwrap();
    writing.join().unwrap();
    (output.status.code().unwrap(), String::from_utf8(output.stderr).unwrap())
}

#[test]
fn what_has_no_end_is_not_read_to_it() {
    for command in ["report", "preflight"] {
        let (code, said) = piped(&[command, "-f", "/dev/zero"], drop);
        assert_eq!(
            (code, said.as_str()),
            (1, "error: /dev/zero: is neither JSON nor YAML: it is not text\n")
        );
        let (code, said) = piped(&[command, "-f", "-"], |mut input| {
            input.write_all(b"{\"kind\": \"").unwrap();
            while input.write_all(&[b'x'; 1 << 12]).is_ok() {}
        });
        let why = "error: standard input: has a text of over 16 MiB, which no object of a cluster has\n";
        assert_eq!((code, said.as_str()), (1, why), "{command}");
    }
}

#[test]
fn a_file_that_is_too_large_is_not_begun() {
    let folder = tempfile::tempdir().unwrap();
    let file = fs::File::create(folder.path().join("huge.json")).unwrap();
    file.set_len((2 << 30) + 1).unwrap();
    let Output { status, stderr, .. } =
        evenkeel(folder.path(), &["report", "-f", "huge.json"], Stdio::null());
    assert_eq!(
        (status.code(), String::from_utf8(stderr).unwrap().as_str()),
        (
            Some(1),
            "error: huge.json: is over 2 GiB, the most that is read of one file; give fewer kinds or namespaces a \
             file\n"
        )
    );
}

#[test]
fn a_pipe_that_nobody_writes_into_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let pipe = folder.path().join("pipe");
    assert!(std::process::Command::new("mkfifo").arg(&pipe).status().unwrap().success());
    let mut child = std::process::Command::new(super::binary())
        .args(["report", "-f", "pipe", SERVER[0], SERVER[1]])
        .current_dir(folder.path())
        .env_clear()
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stderr.take().unwrap()).read_line(&mut line).unwrap();
    assert_eq!(line, "pipe is a pipe into which nobody writes yet; waits for that (Ctrl-C ends it)\n");
    fs::write(&pipe, node("n1", "v1.36.4")).unwrap();
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert!(String::from_utf8(output.stdout).unwrap().contains("v1.36.4"));
}
