//! Writes that the server refuses. Jobs: before anything begins, where a trial meets it, and after it, when a node is
//! cordoned and empty. Claims, cordons and what gives nodes back. What the server said is what a person reads.

use serde_json::Value;

use super::super::script::Step;
use super::condition;
use super::ends::{ends, said};
use super::installed::{Story, story};

fn message(claim: &Value) -> &str {
    claim["status"]["message"].as_str().unwrap_or_default()
}

fn is_failed(claim: &Value) -> bool {
    claim["status"]["state"] == "Failed"
}

/// From now on the server refuses every Job so.
fn refuses(story: &Story, fault: &str) {
    refuses_to(story, "create~jobs.batch", fault);
}

/// From now on the server refuses every such request so.
fn refuses_to(story: &Story, request: &str, fault: &str) {
    let refuses: Step = format!("like evenkeel-a {request} {fault}").parse().unwrap();
    story.arm(&[refuses]);
}

#[test]
fn a_job_that_is_refused_after_its_trial_fails_its_node_in_the_servers_words() {
    for (fault, words) in [
        ("refuse:403", "forbidden by a fault (HTTP 403)"),
        ("refuse:422", "(HTTP 422)"),
        ("deny", "admission webhook \"no.example\" denied the request"),
    ] {
        story("at 0 jobs", "Automatic", async |story| {
            let drains = |claim: &Value| {
                claim["spec"]["component"] == "kubelet" && claim["status"]["state"] == "Draining"
            };
            story.until("a node drains", |_, claims| claims.iter().any(drains)).await;
            refuses(story, fault);
            let refused = |claims: &[Value]| {
                claims.iter().any(|claim| message(claim).starts_with("its Job is refused"))
            };
            // The status of the upgrade is written a moment after the claim.
            let waits = |of: &Value| of["status"]["waitingFor"].to_string().contains("its Job is refused");
            story.until("both say so", |upgrade, claims| refused(claims) && waits(upgrade)).await;
            let failed = |claims: &[Value]| {
                claims.iter().any(|claim| is_failed(claim) && message(claim).contains(words))
            };
            story.until(words, |_, claims| failed(claims)).await;
            story.is("WritesRefused", words).await;
        });
    }
}

#[test]
fn a_step_of_the_control_plane_whose_job_is_refused_after_its_trial_fails_in_the_servers_words() {
    story("at 0 jobs", "Automatic", async |story| {
        story.until("a step begins", |_, claims| !claims.is_empty()).await;
        refuses(story, "refuse:403");
        story.until("it fails", |_, claims| claims.iter().any(is_failed)).await;
        story.is("ControlPlaneFailed", "forbidden by a fault (HTTP 403)").await;
    });
}

#[test]
fn a_webhook_that_is_down_is_named_before_anything_begins() {
    story("at 0 jobs", "Automatic", async |story| {
        refuses(story, "webhook-down");
        let names =
            |upgrade: &Value| upgrade["status"]["waitingFor"].to_string().contains("failed calling webhook");
        story.until("it is named", |upgrade, _| names(upgrade)).await;
    });
    assert_eq!(said(&ends("at 0 jobs; like evenkeel-a create~jobs.batch webhook-down")).0, "Completed");
}

/// It is busy, or something fails in a way that does not tell whether it will again.
#[test]
fn a_server_that_does_not_answer_about_a_job_is_named_and_calls_for_a_person_when_that_lasts() {
    story("at 0 jobs", "Automatic", async |story| {
        refuses(story, "refuse:503");
        let names = |upgrade: &Value| {
            upgrade["status"]["waitingFor"].to_string().contains("says whether it would take its Job")
        };
        story.until("it is named", |upgrade, _| names(upgrade)).await;
        story.is("WritesRefused", "(HTTP 503)").await;
        story.heal();
        story.is("Completed", "").await;
    });
}

#[test]
fn a_webhook_that_is_down_after_the_trial_is_named() {
    story("at 0 jobs", "Automatic", async |story| {
        story.until("a step begins", |_, claims| !claims.is_empty()).await;
        refuses(story, "webhook-down");
        let names =
            |upgrade: &Value| upgrade["status"]["waitingFor"].to_string().contains("failed calling webhook");
        story.until("it is named", |upgrade, _| names(upgrade)).await;
        story.heal();
        story.is("Completed", "").await;
    });
}

#[test]
fn claims_that_are_refused_are_told_in_the_servers_words_and_nothing_is_touched() {
    for (fault, words) in [
        ("refuse:403", "forbidden by a fault (HTTP 403)"),
        ("refuse:422", "(HTTP 422)"),
        ("deny", "admission webhook \"no.example\" denied the request"),
    ] {
        story("at 0 jobs", "Automatic", async |story| {
            refuses_to(story, "create~nodeupgrades.evenkeel.dev", fault);
            let told = story.is("WritesRefused", words).await;
            assert_eq!(condition(&told, "Stalled").unwrap()["status"], "True");
            let waiting = &told["status"]["waitingFor"][0];
            let line = waiting["message"].as_str().unwrap();
            assert!(line.starts_with("the server refuses to create NodeUpgrade up."), "{line}");
            assert_eq!(
                (&waiting["reason"], &waiting["endedBy"]),
                (&"WritesRefused".into(), &"Person".into())
            );
            story.heal();
            story.is("Completed", "").await;
        });
    }
}

#[test]
fn a_node_that_must_not_be_cordoned_is_parked_and_taken_up_later() {
    story("at 0 jobs", "Automatic", async |story| {
        story.until("a step of the control plane begins", |_, claims| !claims.is_empty()).await;
        refuses_to(story, "patch~nodes", "deny");
        let parked = |claims: &[Value]| {
            let says = |claim: &Value| message(claim).starts_with("the server refuses to cordon it: ");
            claims.iter().any(|claim| claim["status"]["state"] == "Parked" && says(claim))
        };
        story.until("a node is parked with the reason", |_, claims| parked(claims)).await;
        story.heal();
        story.is("Completed", "").await;
    });
}

#[test]
fn a_node_that_must_not_be_given_back_keeps_the_upgrade_from_being_complete() {
    story("at 0 jobs", "Automatic", async |story| {
        let upgrading = |claim: &Value| {
            claim["spec"]["component"] == "kubelet" && claim["status"]["state"] == "Upgrading"
        };
        story.until("an executor works", |_, claims| claims.iter().any(upgrading)).await;
        refuses_to(story, "patch~nodes", "refuse:422");
        let told = story.is("WritesRefused", "the server refuses to uncordon node ").await;
        assert_eq!(condition(&told, "Stalled").unwrap()["status"], "True");
        story.heal();
        story.is("Completed", "").await;
    });
}
