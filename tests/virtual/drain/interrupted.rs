//! A drain that somebody ends, once or twice: what it gives back, and what it says of the rest.

use std::time::Duration;

use evenkeel::clock::Clock;
use evenkeel_core::cluster::CORDON_ANNOTATION;
use evenkeel_core::drain::DrainRequest;
use evenkeel_sim::faults::Call;
use futures::stream;
use tokio::time::{Instant, sleep_until, timeout};

use super::super::campaign::virtually;
use super::super::script;
use super::watcher::{DRAINER, TARGETS};
use super::{FOREVER, Paper, base, request};

/// A drain that has ended.
pub(super) struct Ended {
    pub(super) code: Result<u8, String>,
    pub(super) said: String,
    /// How long it took from its beginning.
    pub(super) took: Duration,
    /// Of each node that was to be drained, whether it is cordoned and whether it carries a mark.
    pub(super) left: Vec<(bool, bool)>,
    pub(super) calls: Vec<Call>,
}

/// Drains while `faults` happen from so many seconds after the beginning, and is interrupted at these.
pub(super) async fn ended(
    (from, faults): (u64, &[&str]),
    at: &[u64],
    change: impl FnOnce(&mut DrainRequest),
) -> Ended {
    let (cluster, kube) = base().start(7).await;
    cluster.faults().record();
    let faults: Vec<script::Step> =
        faults.iter().map(|fault| format!("like {DRAINER} {fault}").parse().unwrap()).collect();
    let begun = Instant::now();
    script::arm_while(&cluster, &faults, move || begun.elapsed() >= Duration::from_secs(from));
    let process = cluster.process(DRAINER);
    let (seen, paper) = (cluster.clone(), Paper::default());
    let clock = Clock::new(move || seen.now());
    let mut at: Vec<Instant> = at.iter().map(|&seconds| begun + Duration::from_secs(seconds)).collect();
    at.reverse();
    let interrupts = stream::unfold(at, async |mut at| {
        sleep_until(at.pop()?).await;
        Some(((), at))
    });
    let (out, notes) = (Box::new(paper.clone()), Box::new(paper.clone()));
    let (client, mut asked) = (process.client(), request(&clock));
    change(&mut asked);
    let run = evenkeel::cli::drain::run(&client, process.client(), clock, asked, interrupts, out, notes);
    let code = timeout(FOREVER, run).await.unwrap_or(Err("goes on for ever".to_owned()));
    let took = begun.elapsed();
    let said = String::from_utf8_lossy(&paper.0.lock().unwrap()).into_owned();
    let calls = cluster.faults().record().into_iter().filter(|call| call.agent == DRAINER).collect();
    let mut left = Vec::new();
    for node in kube.list("/api/v1/nodes").await {
        if TARGETS.iter().any(|name| node["metadata"]["name"] == *name) {
            let mark = &node["metadata"]["annotations"][CORDON_ANNOTATION];
            left.push((node["spec"]["unschedulable"] == true, mark.is_string()));
        }
    }
    Ended { code, said, took, left, calls }
}

pub(super) fn gives_back(request: &mut DrainRequest) {
    (request.give_back, request.concurrency) = (true, 1);
}

#[test]
fn who_interrupts_a_drain_that_gives_back_finds_its_nodes_schedulable() {
    let ((), wrong) = virtually(async || {
        // The second node waits for its turn.
        let Ended { code, said, took, left, .. } = ended((0, &[]), &[3], gives_back).await;
        assert_eq!((code, left), (Ok(130), vec![(false, false); 2]), "{said}");
        assert!(took < Duration::from_secs(10), "{took:?}: {said}");
        for node in TARGETS {
            assert!(said.contains(&format!("node/{node}: uncordoned")), "{said}");
            assert!(said.contains(&format!("node/{node}: not drained: interrupted")), "{said}");
        }
        assert!(!said.contains("left cordoned") && !said.contains("by someone else"), "{said}");
    });
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn who_interrupts_a_drain_that_does_not_give_back_is_told_what_stays_cordoned() {
    let ((), wrong) = virtually(async || {
        let Ended { code, said, left, .. } = ended((0, &[]), &[3], |request| request.concurrency = 1).await;
        assert_eq!((code, left), (Ok(130), vec![(true, true); 2]), "{said}");
        assert!(said.ends_with("to undo: evenkeel uncordon worker-1 worker-2\n"), "{said}");
    });
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn a_drain_that_cannot_give_back_ends_nevertheless_and_says_what_stays_cordoned() {
    let ((), wrong) = virtually(async || {
        for (at, longest) in [(&[3][..], 50), (&[3, 5][..], 6)] {
            let fault = (1, &["patch~nodes~worker-2 refuse:503"][..]);
            let Ended { code, said, took, calls, .. } = ended(fault, at, gives_back).await;
            assert_eq!(code, Ok(130), "{said}");
            assert!(took <= Duration::from_secs(longest), "{took:?}: {said}");
            assert!(said.ends_with("to undo: evenkeel uncordon worker-2\n"), "{said}");
            let patches = calls.iter().filter(|call| call.line() == "patch nodes worker-2").count();
            // A server that comes back in time is asked again.
            let least = if at.len() == 1 { 5 } else { 2 };
            assert!((least..25).contains(&patches), "{patches} patches: {said}");
        }
    });
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn who_interrupts_twice_is_told_what_may_be_cordoned() {
    let ((), wrong) = virtually(async || {
        let late = (0, &["patch~nodes~worker-2 late:8"][..]);
        let Ended { code, said, took, .. } = ended(late, &[2, 4], |_| ()).await;
        assert_eq!(code, Ok(130), "{said}");
        assert!(took < Duration::from_secs(5), "{took:?}: {said}");
        assert!(said.contains("left cordoned and not drained: worker-1\n"), "{said}");
        let perhaps = "perhaps left cordoned, because no answer came yet: worker-2\n";
        assert!(said.contains(perhaps), "{said}");
        assert!(said.ends_with("to undo: evenkeel uncordon worker-1 worker-2\n"), "{said}");
    });
    assert!(wrong.is_empty(), "{wrong:?}");
}
