//! What the operator's metrics say of a look that saw too little.

use std::io::{Read as _, Write as _};
use std::net::{SocketAddr, TcpListener, TcpStream};
use std::time::Duration;

use evenkeel::operator::{Options, operate};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::super::campaign::{Wrong, virtually};
use super::super::replica::{clients, clock, options};
use super::super::script;
use super::base::{self, Setting};

/// The page of metrics at `address`. The virtual clock stands still meanwhile.
async fn page(address: SocketAddr) -> String {
    let ask = move || {
        let mut server = TcpStream::connect(address).unwrap();
        server.write_all(b"GET /metrics HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n").unwrap();
        let mut page = String::new();
        server.read_to_string(&mut page).unwrap();
        page
    };
    tokio::task::spawn_blocking(ask).await.unwrap()
}

#[test]
fn a_look_that_saw_too_little_is_counted_as_an_error() {
    let (page, wrong) = virtually(async || {
        let (cluster, _) = base::start(&Setting::of(&[]), 1).await;
        for verb in ["list", "watch"] {
            let refused = format!("like evenkeel-a {verb}~persistentvolumes refuse:403");
            script::arm(&cluster, &[refused.parse().unwrap()]);
        }
        let listen = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
        let (process, stop) = (cluster.process("evenkeel-a"), CancellationToken::new());
        let options = Options { listen, ..options("a", 1, true) };
        let running = tokio::spawn(operate(clients(&process), options, clock(&cluster), stop.clone()));
        sleep(Duration::from_mins(2)).await;
        let page = page(listen).await;
        stop.cancel();
        assert!(running.await.unwrap().is_ok());
        page
    });
    assert_eq!(wrong, Wrong::new());
    let looks = |result: &str| {
        let name = format!(
            "evenkeel_reconcile_duration_seconds_count{{controller=\"upgrade\",result=\"{result}\"}} "
        );
        let found = page.lines().find_map(|line| line.strip_prefix(&name));
        found.and_then(|count| count.parse::<u64>().ok()).unwrap_or_else(|| panic!("no {name} in\n{page}"))
    };
    assert!(looks("error") > 0 && looks("ok") == 0, "{page}");
}
