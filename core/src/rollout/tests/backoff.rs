//! How long a node is left alone whose drain did not end.

use jiff::SignedDuration;

use super::super::nodes::retried_after;
use super::cluster::Toy;
use crate::fixture::pod;

/// For how many seconds the node of the only kubelet's claim was parked, each time.
fn parked(toy: &mut Toy, times: usize) -> Vec<i64> {
    (0..times)
        .map(|_| {
            toy.run_until(20_000, |toy| toy.kubelets("Parked") == 1);
            let since = toy.seconds;
            toy.run_until(30_000, |toy| toy.kubelets("Parked") == 0);
            toy.seconds - since
        })
        .collect()
}

#[test]
fn a_node_whose_drain_never_ends_is_tried_again_after_twice_as_long_each_time() {
    let mut toy = Toy::new(1, 1);
    toy.cluster.set_pod(pod("slow", 1, "n-1"));
    toy.lingers = 10_000_000;
    // The drain may take forty seconds.
    assert_eq!(parked(&mut toy, 6), [40, 80, 160, 320, 640, 1280]);
    assert_eq!(toy.evictions, 1, "a pod that is leaving is not asked again");
}

#[test]
fn a_parked_node_is_left_alone_no_longer_than_six_hours_or_its_drain_may_take() {
    let after =
        |timeout: i64, attempt: u32| retried_after(SignedDuration::from_secs(timeout), attempt).as_secs();
    let hours = |count: i64| count * 60 * 60;
    assert_eq!([1, 2, 3, 4].map(|attempt| after(1800, attempt)), [1800, 3600, 7200, 14_400]);
    assert_eq!([5, 6, 100, u32::MAX].map(|attempt| after(1800, attempt)), [hours(6); 4]);
    // A drain that may take days is not tried more often than that.
    assert_eq!([1, 2].map(|attempt| after(hours(48), attempt)), [hours(48); 2]);
    // However short a drain is, its node has some seconds.
    assert_eq!([0, 1, 2].map(|attempt| after(1, attempt)), [10, 10, 20]);
}
