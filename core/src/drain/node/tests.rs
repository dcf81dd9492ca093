//! One node whose pods the server refuses to let go: what is sent, when, and how it ends.

use super::*;
use crate::disruption::answer::Answer;
use crate::disruption::{Rules, Sent};
use crate::fixture::{at, budget, node, pod};
use crate::toy::ToyCluster;

const TIMEOUT: i64 = 100;

/// How a drain that begins at second 0 ends, and what was sent in which second. The node is looked at only when something
/// asks for that, and an answer comes a second after its request.
struct Story {
    sent: Vec<(i64, &'static str)>,
    end: Option<(i64, GivenUp)>,
}

impl Story {
    fn tries(&self, what: &str) -> Vec<i64> {
        self.sent.iter().filter(|(_, of)| *of == what).map(|(at, _)| *at).collect()
    }
}

/// The drain of a node with one pod, within 300 seconds. `answer` says what the server answers to what in which second.
fn drained(
    policy: (Option<i64>, OnTimeout),
    closed: bool,
    answer: impl Fn(&'static str, i64) -> Answer,
) -> Story {
    let (timeout, on_timeout) = policy;
    let policy = DrainPolicy {
        rules: Rules::default(),
        timeout: timeout.map(SignedDuration::from_secs),
        on_timeout,
        settle: SignedDuration::ZERO,
        await_volumes: false,
    };
    let node = Node { unschedulable: true, ..node("n-1", "v1.37.1") };
    let mut budgets = vec![budget("cart", 1, 3, 2)];
    if closed {
        budgets[0].disruptions_allowed = 0;
    }
    let parts = crate::cluster::Parts {
        nodes: vec![node.clone().into()],
        pods: vec![pod("cart", 1, "n-1")],
        budgets,
        ..Default::default()
    };
    let mut cluster = ToyCluster(parts.seal());
    let (mut sent, mut drain) = (Sent::default(), NodeDrain::new(at(0), at(0)));
    let mut story = Story { sent: Vec::new(), end: None };
    let mut unanswered: Vec<(&'static str, Arc<str>, Option<crate::disruption::Charge>)> = Vec::new();
    let mut seconds = 0;
    while seconds < 300 {
        let now = at(seconds);
        for (what, uid, charge) in std::mem::take(&mut unanswered) {
            let answer = answer(what, seconds);
            if matches!(answer, Answer::Accepted(_)) {
                cluster.retain_pods(|pod| pod.uid != uid);
            }
            match what {
                "evict" => sent.answered(uid, charge, &answer, now),
                _ => sent.deleted(uid, &answer, now),
            }
        }
        let memory = sent.memory(&cluster, now);
        let seen = DrainView {
            cluster: &cluster,
            memory: &memory,
            policy: &policy,
            stopped: false,
            reread: Some(now),
            now,
        };
        let mut budgets = Budgets::new(&cluster, memory.budgets.clone(), now);
        let (step, mut again_at) = drain.step(&node, seen, &budgets);
        match step {
            DrainStep::Empty => return story,
            DrainStep::GivenUp { why, .. } => return Story { end: Some((seconds, why)), ..story },
            DrainStep::Leaving => {}
            other => panic!("{other:?}"),
        }
        let asks = drain.ask(&node, seen, &mut budgets);
        again_at = earliest([again_at, asks.again_at]);
        drain = asks.drain;
        for permit in asks.permits {
            story.sent.push((seconds, "evict"));
            sent.sends(&permit, now);
            unanswered.push(("evict", permit.uid().clone(), permit.charge().cloned()));
        }
        for forced in asks.forced {
            story.sent.push((seconds, "delete"));
            sent.deletes(forced.asked(), now);
            unanswered.push(("delete", forced.uid().clone(), None));
        }
        let answered = (!unanswered.is_empty()).then(|| at(seconds + 1));
        let next = earliest([earliest([again_at, sent.next()]), answered]).expect("somebody looks again");
        assert!(next > now, "{seconds}: looks again and again");
        seconds = next.duration_since(at(0)).as_secs();
    }
    story
}

fn forbidden() -> Answer {
    Answer::Forbidden { why: "no right".to_owned() }
}

fn webhook_down() -> Answer {
    Answer::WebhookDown { why: "connection refused".to_owned() }
}

/// A budget that is shut keeps the pod until the deadline.
fn forced(answer: impl Fn(i64) -> Answer) -> Story {
    drained((Some(TIMEOUT), OnTimeout::Force), true, |what, seconds| {
        assert_eq!(what, "delete");
        answer(seconds)
    })
}

#[test]
fn a_deletion_that_is_refused_for_a_moment_is_tried_again() {
    let denied = || Answer::Denied { why: "not today".to_owned(), by_webhook: true };
    for refusal in [forbidden, webhook_down, denied] {
        let story = forced(|seconds| match seconds {
            ..120 => refusal(),
            _ => Answer::Accepted(None),
        });
        assert_eq!((story.end, story.sent.len()), (None, 5), "{:?}: {:?}", refusal(), story.sent);
    }
    // The server has no time for it in between, and refuses anew after that.
    let story = forced(|seconds| match seconds {
        ..110 | 115..120 => forbidden(),
        110..115 => Answer::Throttled { wait: SignedDuration::from_secs(1) },
        _ => Answer::Accepted(None),
    });
    assert_eq!(story.end, None, "{:?}", story.sent);
}

#[test]
fn a_deletion_that_is_refused_for_half_a_minute_gives_the_node_up() {
    let given_up = |why: &str, lasting| {
        Some(GivenUp::NotDeleted { pod: "shop/cart-1".to_owned(), why: why.to_owned(), lasting })
    };
    for (answer, why) in [
        (forbidden(), given_up("no right", true)),
        // It may be back for the next try.
        (webhook_down(), given_up("connection refused", false)),
    ] {
        let story = forced(|_| answer.clone());
        assert_eq!(story.tries("delete"), [100, 103, 107, 115, 131], "{answer:?}");
        let (seconds, end) = story.end.unzip();
        assert_eq!((seconds, end), (Some(132), why));
    }
}

/// The pod's budget lets it go, and `answer` is what its evictions get.
fn evicted(policy: (Option<i64>, OnTimeout), answer: impl Fn(i64) -> Answer) -> Story {
    drained(
        policy,
        false,
        |what, seconds| if what == "evict" { answer(seconds) } else { Answer::Accepted(None) },
    )
}

/// What the server says to an eviction, and whether that gives the node up.
fn refusals() -> Vec<(Answer, bool)> {
    let denied = |by_webhook| Answer::Denied { why: "not today".to_owned(), by_webhook };
    let wait = SignedDuration::from_secs(5);
    vec![
        (forbidden(), true),
        (denied(false), true),
        (Answer::Invalid { why: "no such field".to_owned() }, true),
        (Answer::TwoBudgets, true),
        // It may have the pod moved otherwise.
        (denied(true), false),
        (webhook_down(), false),
        (Answer::NamespaceTerminating { wait }, false),
        (Answer::ServerTrouble { wait }, false),
        (Answer::Unknown { why: "tea".to_owned() }, false),
    ]
}

#[test]
fn a_node_whose_pod_the_server_refuses_to_evict_is_given_up() {
    for (answer, gives_up) in refusals() {
        let story = evicted((None, OnTimeout::Park), |_| answer.clone());
        let Some((seconds, why)) = story.end else {
            assert!(!gives_up, "{answer:?}: {:?}", story.sent);
            continue;
        };
        assert!(gives_up && matches!(why, GivenUp::Stalled(_)), "{answer:?}: {why:?}");
        assert_eq!(
            (seconds, story.sent.len()),
            (62, 2),
            "{answer:?}: half a minute after its second refusal"
        );
    }
}

#[test]
fn an_eviction_that_is_refused_for_a_moment_gives_no_node_up() {
    for (answer, _) in refusals() {
        for until in [2, 31] {
            let story = evicted((None, OnTimeout::Park), |seconds| {
                if seconds < until { answer.clone() } else { Answer::Accepted(None) }
            });
            assert_eq!(story.end, None, "{answer:?} until {until}: {:?}", story.sent);
        }
    }
}

#[test]
fn a_refusal_of_long_ago_counts_no_more() {
    // Its eviction is refused, unanswered for long, and refused again.
    let story = evicted((None, OnTimeout::Park), |seconds| match seconds {
        ..2 | 140..155 => forbidden(),
        ..140 => Answer::NoAnswer { wait: SignedDuration::from_secs(119) },
        _ => Answer::Accepted(None),
    });
    assert_eq!((story.end.as_ref(), story.tries("evict")), (None, vec![0, 31, 151, 182]));
}

#[test]
fn a_drain_that_forces_deletes_at_its_deadline_what_it_may_not_evict() {
    for (answer, _) in refusals() {
        let story = evicted((Some(TIMEOUT), OnTimeout::Force), |_| answer.clone());
        assert_eq!((story.end.as_ref(), story.tries("delete")), (None, vec![TIMEOUT]), "{answer:?}");
    }
}

#[test]
fn the_refusals_of_evictions_do_not_count_for_deletions() {
    let story = drained((Some(TIMEOUT), OnTimeout::Force), false, |_, seconds| match seconds {
        ..110 => forbidden(),
        _ => Answer::Accepted(None),
    });
    assert_eq!((story.end.as_ref(), story.tries("delete")), (None, vec![100, 103, 107, 115]));
}
