//! Something that is no apiserver, or no good one: it takes connections and answers in a bad way.

use std::io::{Read as _, Write as _};
use std::net::TcpListener;
use std::path::PathBuf;
use std::process::{Command, Output};
use std::thread;
use std::time::Duration;

use crate::binary;

const HTML: &str = "<!DOCTYPE html><html><body>Please log in</body></html>";

/// What it answers to everything.
#[derive(Clone, Copy, Debug)]
enum BadAnswer {
    /// A login page, as a proxy in between would.
    Html,
    /// The beginning of an answer, and the end of the connection.
    Half,
    /// Nothing, for a minute.
    Slow,
    /// Not HTTP.
    Noise,
    /// The credentials are not accepted.
    Unauthorized,
}

impl BadAnswer {
    fn bytes(self) -> Vec<u8> {
        let http = |status: &str, kind: &str, body: &str, length: usize| {
            format!(
                "HTTP/1.1 {status}\r\nContent-Type: {kind}\r\nContent-Length: {length}\r\nConnection: close\r\n\r\n{body}"
            )
        };
        let status = r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"Unauthorized","reason":"Unauthorized","code":401}"#;
        let text = match self {
            Self::Html => http("200 OK", "text/html", HTML, HTML.len()),
            Self::Half => http("200 OK", "application/json", r#"{"major":"1","#, 400),
            Self::Slow => String::new(),
            Self::Noise => "\u{1b}[31mSSH-2.0-OpenSSH_9.9\r\n".to_owned(),
            Self::Unauthorized => http("401 Unauthorized", "application/json", status, status.len()),
        };
        text.into_bytes()
    }
}

/// Starts it on a port of its own; it ends with the process.
fn serve(answer: BadAnswer) -> u16 {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port();
    thread::spawn(move || {
        for connection in listener.incoming() {
            thread::spawn(move || {
                let mut connection = connection.unwrap();
                let _ = connection.read(&mut [0; 4096]);
                if matches!(answer, BadAnswer::Slow) {
                    thread::sleep(Duration::from_mins(1));
                }
                // Whoever does not listen to the end is not the one that is tested.
                let _ = connection.write_all(&answer.bytes());
            });
        }
    });
    port
}

/// What the program with these arguments says; after half a minute it is ended, with the exit code 124.
fn ask(args: &[&str], port: u16) -> Output {
    let command = args[0];
    let path: PathBuf =
        std::env::temp_dir().join(format!("evenkeel-answers-{}-{port}-{command}", std::process::id()));
    let config = format!(
        "{{apiVersion: v1, kind: Config, current-context: c, contexts: [{{name: c, context: {{cluster: c, user: u}}}}], \
         clusters: [{{name: c, cluster: {{server: 'http://127.0.0.1:{port}'}}}}], users: [{{name: u, user: {{}}}}]}}"
    );
    std::fs::write(&path, config).unwrap();
    let output = Command::new("timeout")
        .args(["--kill-after=5", "30"])
        .arg(binary())
        .args(args)
        .arg("--kubeconfig")
        .arg(&path)
        .env_remove("KUBECONFIG")
        .env_remove("KUBERNETES_SERVICE_HOST")
        .output()
        .unwrap();
    std::fs::remove_file(path).unwrap();
    output
}

/// Whatever answers, it is told in one line, and the exit code is that of something that could not be done.
#[test]
fn what_is_no_apiserver_is_told_in_one_line() {
    let cases = [
        (BadAnswer::Html, "is no answer of a Kubernetes API"),
        (BadAnswer::Half, "end of file before message length reached"),
        (BadAnswer::Slow, "time"),
        (BadAnswer::Noise, "invalid HTTP version parsed"),
        (BadAnswer::Unauthorized, "Unauthorized (HTTP 401)"),
    ];
    thread::scope(|scope| {
        for (answer, says) in cases {
            let port = serve(answer);
            scope.spawn(move || {
                let output = ask(&["report"], port);
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                let errors: Vec<&str> = said.lines().filter(|line| !line.starts_with('{')).collect();
                assert_eq!(output.status.code(), Some(1), "{answer:?}: {said}");
                assert_eq!(errors.len(), 1, "{answer:?}: {said}");
                assert!(errors[0].contains(says), "{answer:?}: {said}");
                assert!(!said.contains('\u{1b}') && !said.contains("<html"), "{said}");
                assert!(output.stdout.is_empty(), "nothing on standard output");
            });
            // The operator waits for a better answer, and says in its log what it has.
            scope.spawn(move || {
                let output = ask(&["operator", "--listen", "127.0.0.1:0"], port);
                let said = String::from_utf8_lossy(&output.stderr).into_owned();
                assert_eq!(output.status.code(), Some(124), "{answer:?}: it waits until it is ended: {said}");
                assert!(said.contains(says), "{answer:?}: {said}");
                assert!(!said.contains('\u{1b}') && !said.contains("<html"), "{said}");
            });
        }
    });
}
