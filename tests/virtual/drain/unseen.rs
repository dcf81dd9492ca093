//! A drain that sees its cluster no more, for longer than anybody should wait.

use std::time::Duration;

use super::super::campaign::virtually;
use super::super::script;
use super::interrupted::{Ended, ended, gives_back};

/// Every watch ends after five minutes, and what opens it again is answered so. Until then no pod may leave.
fn unseen(answer: &str) -> Vec<String> {
    let watched = ["nodes", "pods", "poddisruptionbudgets.policy"];
    let asked =
        ["list", "watch"].into_iter().flat_map(|verb| watched.map(|kind| format!("{verb}~{kind} {answer}")));
    asked.chain(["create~pods/eviction budget:10".to_owned()]).collect()
}

#[test]
fn a_server_that_refuses_for_long_ends_a_drain_that_says_what_it_leaves() {
    let ((), wrong) = virtually(async || {
        for answer in ["refuse:401", "refuse:403"] {
            let faults = unseen(answer);
            let faults: Vec<&str> = faults.iter().map(String::as_str).collect();
            let Ended { code, said, took, left, .. } =
                ended((3, &faults), &[], |request| request.policy.timeout = None).await;
            assert_eq!((code, left), (Ok(2), vec![(true, true); 2]), "{said}");
            assert!(took < Duration::from_secs(290 + 60 + 150), "{took:?}: {said}");
            assert!(said.contains(": not drained: the API server has refused for 12"), "{said}");
            assert!(said.contains("left cordoned and not drained: worker-1 worker-2"), "{said}");
            // Whether a node can be given back that nobody sees is not known; it is tried, and not again and again.
            let Ended { code, said, took, calls, .. } = ended((3, &faults), &[], |request| {
                gives_back(request);
                request.policy.timeout = None;
            })
            .await;
            assert_eq!(code, Ok(2), "{said}");
            assert!(took < Duration::from_secs(290 + 60 + 180), "{took:?}: {said}");
            let patches = calls.iter().filter(|call| script::kind_of(call) == "patch nodes").count();
            assert!((4..40).contains(&patches), "{patches}: {said}");
        }
    });
    assert!(wrong.is_empty(), "{wrong:?}");
}

#[test]
fn the_timeout_of_a_drain_counts_while_the_server_is_away() {
    let ((), wrong) = virtually(async || {
        let faults = unseen("refuse:503");
        let faults: Vec<&str> = faults.iter().map(String::as_str).collect();
        let Ended { code, said, took, .. } = ended((3, &faults), &[], |_| ()).await;
        assert_eq!(code, Ok(2), "{said}");
        assert!((600..620).contains(&took.as_secs()), "{took:?}: {said}");
        assert!(
            said.contains(": not drained: the timeout of 600 s is over, and the cluster was not seen "),
            "{said}"
        );
        assert!(said.contains("left cordoned and not drained: worker-1 worker-2"), "{said}");
    });
    assert!(wrong.is_empty(), "{wrong:?}");
}
