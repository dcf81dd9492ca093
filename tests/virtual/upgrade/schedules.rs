//! An upgrade that waits for everything that time brings: its gate opens late, its window closes on the way, a freeze lies
//! over the beginning of the next one, and its control plane and its canaries soak. With a crash at every write, and with clocks
//! that jump. That nothing is begun while it may not be is checked by the watcher after every write.

use super::super::campaign::is_long;
use super::attacks::{Attacked, clocks, spread, steps};
use super::campaign;
use super::ends::{ends, said};

/// The first window has room for the control plane, and in the second one the freeze ends after two minutes.
const WAITS: &str = "at 0 window 0 500; at 0 window 30 14400; at 0 freeze 1700 1900; at 0 soak controlPlane 45; \
                     at 0 soak canary 60; at 0 gated; at 0 gate kind; at 0 gate False; at 0 gate True after 60";

#[test]
fn an_upgrade_waits_for_its_gate_its_window_its_soaks_and_its_freeze() {
    let run = ends(WAITS);
    assert_eq!(said(&run), ("Completed", false, "9/9"));
    for reason in ["GateClosed", "WaitingForWindow", "Soaking", "Frozen"] {
        assert!(run.reasons.contains(reason), "{reason}: {:?}", run.said);
    }
}

#[test]
fn what_waits_for_its_time_dies_at_every_write() {
    let attacked = Attacked::of(steps(WAITS));
    let mut scripts = spread(attacked.crashes(), 6);
    scripts.extend(spread(attacked.pauses(), 2));
    campaign("upgrade: windows, freezes, soaks and gates", scripts);
}

#[test]
fn what_waits_for_its_time_meets_clocks_that_jump() {
    let moments = if is_long() { 60 } else { 6 };
    let scripts = Attacked::of(steps(WAITS)).happens(moments, 700, clocks);
    campaign("upgrade: windows and clocks that jump", spread(scripts, 6));
}
