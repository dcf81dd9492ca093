//! Statuses where nothing can be decided. One at its longest is given to a server in `tests/virtual/upgrade/bounds.rs`.

use serde_json::json;

use super::*;

fn object() -> ClusterUpgrade {
    let object = json!({
        "apiVersion": "evenkeel.dev/v1alpha1", "kind": "ClusterUpgrade", "metadata": { "name": "up" },
        "spec": { "version": "v1.37.1", "controlPlane": { "executor": "x" }, "nodeGroups": [] },
    });
    serde_json::from_value(object).unwrap()
}

#[test]
fn what_is_not_seen_leaves_the_rest_of_the_status_as_it_was() {
    let mut object = object();
    object.metadata.generation = Some(1);
    let mut before = status_of_invalid(&object, "why", None, Timestamp::UNIX_EPOCH);
    let paused = Condition { type_: "Paused".to_owned(), ..before.conditions[0].clone() };
    before.conditions.push(paused);
    object.status = Some(before.clone());
    object.metadata.generation = Some(2);
    for (refused, ready, stalled) in [(true, "False", "True"), (false, "Unknown", "False")] {
        let told = status_of_unseen(&object, "volumes: not allowed", refused, Timestamp::UNIX_EPOCH);
        let of = |type_: &str| told.conditions.iter().find(|of| of.type_ == type_).unwrap();
        assert_eq!((of("Ready").status.as_str(), of("Stalled").status.as_str()), (ready, stalled));
        assert_eq!(
            (of("Ready").message.as_str(), told.observed_generation),
            ("volumes: not allowed", Some(1))
        );
        assert_eq!(told.conditions.len(), before.conditions.len());
        let [only] = told.waiting_for.as_slice() else { panic!("{:?}", told.waiting_for) };
        let ended_by = if refused { "Person" } else { "Cluster" };
        assert_eq!((only.message.as_str(), only.ended_by.as_str()), ("volumes: not allowed", ended_by));
        assert_eq!(only.reason, of("Ready").reason);
    }
}
