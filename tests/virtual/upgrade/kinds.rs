//! The same attacks on the other kinds of upgrades: by Jobs, of a control plane that runs on hosts, and of whole nodes of a
//! control plane as kubeadm moves them.

use super::attacks::{Attacked, at, spread};
use super::campaign;

/// What every kind meets: of each attack a few, and in a long campaign all.
fn meets_everything(kind: &str, begins: &[&str]) {
    let attacked = Attacked::of(begins.iter().map(|word| at(0, word)).collect());
    let mut scripts = spread(attacked.faults(), 4);
    scripts.extend(spread(attacked.lasting(), 3));
    scripts.extend(spread(attacked.crashes(), 3));
    scripts.extend(spread(attacked.pauses(), 2));
    scripts.extend(spread(attacked.cuts(), 2));
    scripts.extend(spread(attacked.stale(), 3));
    scripts.extend(spread(attacked.events(), 3));
    campaign(&format!("upgrade: everything, by or of {kind}"), scripts);
}

#[test]
fn jobs_meet_everything() {
    meets_everything("Jobs", &["jobs"]);
}

#[test]
fn a_control_plane_of_hosts_meets_everything() {
    meets_everything("hosts", &["hosts", "accept"]);
}

#[test]
fn whole_nodes_meet_everything() {
    meets_everything("whole nodes", &["whole", "jobs", "first"]);
}
