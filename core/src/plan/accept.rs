//! Risks that a person takes upon them.
//!
//! The invariants: what would break the skew policy stays a block whoever accepts it, and what is accepted stays in the
//! plan, with the person's reason.

use std::cmp::Reverse;

use jiff::Timestamp;

use super::finding::{Accepted, PlanFinding, Weight};
use super::finding_id::FindingCode;
use crate::upgrade::AcceptedRisk;

/// `findings` with what `risks` accept at `now`, in order, and a finding for each acceptance that does nothing.
pub(super) fn accept(findings: &mut Vec<PlanFinding>, risks: &[AcceptedRisk], now: Timestamp) {
    let mut useless = Vec::new();
    for risk in risks {
        let id = FindingCode::Acceptance.of(&risk.finding);
        // One thing may be found at several hops.
        let mut of_risk = findings.iter_mut().filter(|finding| finding.id.is(&risk.finding)).peekable();
        let Some(first) = of_risk.peek() else { continue };
        if !first.acceptable {
            let what = format!("finding {} is accepted and cannot be", risk.finding);
            useless.push(
                PlanFinding::new(id, Weight::Warns, what)
                    .remedy("take it out of acceptedRisks; nothing may break the version skew policy"),
            );
        } else if risk.until <= now {
            let what = format!("the acceptance of {} ended on {}", risk.finding, risk.until);
            useless.push(
                PlanFinding::new(id, Weight::Warns, what)
                    .remedy("accept it again, or change what it is about"),
            );
        } else {
            for finding in of_risk {
                let (until, reason) = (risk.until, risk.reason.clone());
                finding.accepted = Some(Accepted { until, reason, instead_of: finding.weight });
                finding.weight = Weight::Warns;
            }
        }
    }
    findings.append(&mut useless);
    sort(findings);
}

/// The gravest first, then by hop and id; one of each id.
pub(super) fn sort(findings: &mut Vec<PlanFinding>) {
    findings.sort_by(|a, b| {
        (a.weight, Reverse(a.hop.is_none()), a.hop, &a.id).cmp(&(
            b.weight,
            Reverse(b.hop.is_none()),
            b.hop,
            &b.id,
        ))
    });
    findings.dedup_by(|a, b| a.id == b.id && a.hop == b.hop);
}
