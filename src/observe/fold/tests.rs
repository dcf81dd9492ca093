//! What is held after events, lists and writes of our own, in any order.

use kube::core::DynamicObject;
use serde_json::json;

use super::*;

type Test = Fold<DynamicObject>;

fn object(name: &str, version: &str, uid: &str) -> DynamicObject {
    let object =
        json!({"metadata": {"name": name, "namespace": "shop", "resourceVersion": version, "uid": uid}});
    serde_json::from_value(object).unwrap()
}

/// A fold after a complete list of `names` at version 10.
fn listed(names: &[&str]) -> Test {
    let mut fold = Test::default();
    fold.list_begins();
    for name in names {
        fold.listed(object(name, "5", name));
    }
    fold.list_ends("10");
    fold
}

fn held(fold: &Test) -> Vec<(String, String)> {
    let text = |text: &Option<String>| text.clone().unwrap();
    fold.values().map(|o| (text(&o.metadata.name), text(&o.metadata.resource_version))).collect()
}

fn pairs(pairs: &[(&str, &str)]) -> Vec<(String, String)> {
    pairs.iter().map(|(name, version)| ((*name).to_owned(), (*version).to_owned())).collect()
}

#[test]
fn nothing_is_complete_before_the_end_of_a_list() {
    let mut fold = Test::default();
    assert_eq!(fold.state(), SyncState::Syncing);
    fold.list_begins();
    fold.listed(object("a", "5", "a"));
    assert_eq!(fold.state(), SyncState::Syncing);
    fold.list_ends("10");
    assert_eq!(fold.state(), SyncState::Synced);
}

#[test]
fn a_new_list_drops_what_vanished_and_keeps_what_is_newer_than_it() {
    let mut fold = listed(&["a", "b", "c"]);
    fold.list_begins();
    assert_eq!(fold.state(), SyncState::Syncing, "history was lost: what is held may be gone");
    fold.listed(object("a", "5", "a"));
    fold.apply(object("ours", "21", "ours"));
    fold.apply(object("b", "15", "b"));
    fold.list_ends("20");
    assert_eq!(held(&fold), pairs(&[("a", "5"), ("ours", "21")]));
}

#[test]
fn an_undecodable_object_taints_until_a_clean_list() {
    let mut fold = Test::default();
    fold.list_begins();
    fold.listed(object("good", "5", "good"));
    fold.undecodable("bad");
    fold.list_ends("10");
    assert_eq!(fold.state(), SyncState::Tainted("bad".into()));
    fold.apply(object("good", "11", "good"));
    fold.failing("refused", None);
    assert_eq!(fold.state(), SyncState::Failing { why: "refused".into(), code: None });
    assert!(fold.following());
    assert_eq!(fold.state(), SyncState::Tainted("bad".into()), "a watch that resumes does not clean");
    fold.list_begins();
    assert_eq!(fold.state(), SyncState::Tainted("bad".into()));
    fold.list_ends("20");
    assert_eq!(fold.state(), SyncState::Synced);

    fold.undecodable("worse");
    assert_eq!(fold.state(), SyncState::Tainted("worse".into()), "while watching, one event is lost");
    fold.failing("no connection", None);
    fold.undecodable("worst");
    assert_eq!(fold.state(), SyncState::Tainted("worst".into()), "the server answers, and so is not away");
}

#[test]
fn a_set_whose_history_is_gone_is_not_relied_on_until_the_next_list() {
    let mut fold = listed(&["a"]);
    fold.history_is_gone();
    assert_eq!(fold.state(), SyncState::Syncing);
    assert!(!fold.following(), "a watch alone does not tell what was missed");
    assert_eq!(fold.state(), SyncState::Syncing);
    fold.list_begins();
    fold.list_ends("20");
    assert_eq!(fold.state(), SyncState::Synced);
}

#[test]
fn what_is_older_than_held_is_ignored() {
    let mut fold = listed(&["a"]);
    assert!(fold.apply(object("a", "12", "a")), "our own write");
    assert!(!fold.apply(object("a", "11", "a")), "its watch event comes after");
    assert!(!fold.apply(object("a", "12", "a")));
    assert_eq!(held(&fold), pairs(&[("a", "12")]));
    assert!(fold.apply(object("a", "100", "a")), "compared as numbers, not as text");
    assert!(fold.apply(object("a", "opaque", "a")), "what cannot be compared is taken as it comes");
}

#[test]
fn an_object_that_is_created_again_is_another() {
    let mut fold = listed(&["a"]);
    assert!(fold.apply(object("a", "13", "second")), "our create answered first");
    assert!(!fold.delete(&object("a", "12", "a")), "the first one's end comes late");
    assert_eq!(held(&fold), pairs(&[("a", "13")]));
    assert!(fold.delete(&object("a", "14", "second")));
    assert!(fold.is_empty());
}

#[test]
fn what_we_deleted_does_not_come_back() {
    let mut fold = listed(&["a"]);
    assert!(!fold.deleted_own("shop", "a", "another"), "only the one that was deleted");
    assert!(fold.deleted_own("shop", "a", "a"));
    assert!(!fold.apply(object("a", "11", "a")), "an event from before the deletion");
    assert!(fold.is_empty());
    assert!(fold.apply(object("a", "13", "second")));
    fold.delete(&object("a", "12", "a"));
    assert_eq!(held(&fold), pairs(&[("a", "13")]));
}

/// An answer to a request of ours may be from before a deletion that the watch has told.
#[test]
fn what_a_watch_said_is_gone_does_not_come_back_by_an_older_answer() {
    let mut fold = listed(&["a", "b"]);
    assert!(fold.delete(&object("a", "12", "a")));
    assert!(!fold.apply(object("a", "11", "a")), "it was read before its end");
    assert!(!fold.apply(object("a", "opaque", "a")), "however its versions are written");
    assert!(!fold.delete(&object("late", "13", "late")), "it was not held");
    assert!(!fold.apply(object("late", "5", "late")));
    assert_eq!(held(&fold), pairs(&[("b", "5")]));
    assert!(fold.apply(object("a", "14", "second")), "another of its name");
    assert!(!fold.apply(object("a", "11", "a")));
    fold.list_begins_anew();
    fold.listed(object("a", "14", "second"));
    fold.listed(object("b", "5", "b"));
    fold.list_ends("20");
    assert!(!fold.apply(object("late", "5", "late")), "and after another list");
    assert_eq!(held(&fold), pairs(&[("a", "14"), ("b", "5")]));
}

#[test]
fn what_the_server_does_not_know_is_dropped_until_it_is_told_of_again() {
    let mut fold = listed(&["a", "b"]);
    fold.news();
    assert!(!fold.absent("shop", "a", "second"), "another of its name may have come since");
    assert!(fold.absent("shop", "a", "a"));
    assert!(!fold.absent("shop", "a", "a"));
    assert_eq!(held(&fold), pairs(&[("b", "5")]));
    assert_eq!(fold.news(), News::These([("shop".into(), "a".into())].into()));
    assert!(fold.apply(object("a", "12", "a")));
}

/// Its label is taken away, and put back: a watch by that label tells of a deletion, and then of the same object.
#[test]
fn what_leaves_the_selection_of_its_watch_may_come_back() {
    let mut fold = listed(&["a"]);
    assert!(fold.delete(&object("a", "8", "a")));
    assert!(!fold.apply(object("a", "7", "a")), "an answer from before");
    assert!(fold.apply(object("a", "9", "a")), "it is selected again");
    assert!(fold.delete(&object("a", "10", "a")), "and goes");
}

/// A storage that is restored has again what was deleted after it had been saved.
#[test]
fn what_a_later_list_names_is_there_whatever_was_said() {
    let mut fold = listed(&["a"]);
    fold.delete(&object("a", "12", "a"));
    fold.list_begins();
    assert!(fold.listed(object("a", "5", "a")));
    fold.list_ends("10");
    assert!(fold.apply(object("a", "11", "a")));
    assert_eq!(held(&fold), pairs(&[("a", "11")]));
    fold.list_begins();
    fold.deleted_own("shop", "a", "a");
    assert!(!fold.listed(object("a", "11", "a")), "we deleted it while the list was under way");
    fold.list_ends("15");
    assert!(fold.is_empty());
}

#[test]
fn what_changed_is_told_once() {
    let told = |fold: &mut Test| match fold.news() {
        News::All => vec!["all".to_owned()],
        News::These(keys) => keys.into_iter().map(|(_, name)| name.to_string()).collect(),
    };
    let mut fold = listed(&["a", "b", "c"]);
    assert_eq!(told(&mut fold), ["all"], "nobody asked before");
    assert_eq!(told(&mut fold), [""; 0]);
    fold.apply(object("a", "12", "a"));
    fold.apply(object("a", "11", "a"));
    fold.delete(&object("b", "13", "b"));
    fold.deleted_own("shop", "c", "c");
    fold.apply(object("d", "14", "d"));
    assert_eq!(told(&mut fold), ["a", "b", "c", "d"]);
    fold.list_begins();
    fold.listed(object("a", "12", "a"));
    fold.listed(object("e", "15", "e"));
    fold.list_ends("20");
    assert_eq!(told(&mut fold), ["d", "e"], "a list changes only what is another");
    for number in 0..=MUCH_NEWS {
        fold.apply(object(&format!("x{number}"), "21", "x"));
    }
    assert_eq!(told(&mut fold), ["all"], "too much to remember");
    fold.apply(object("a", "22", "a"));
    assert_eq!(told(&mut fold), ["a"]);
}

#[test]
fn texts_that_no_object_uses_are_forgotten() {
    let mut names = Interner::default();
    let kept = names.text("kept");
    names.text("gone");
    assert!(Arc::ptr_eq(&kept, &names.text("kept")));
    names.sweep();
    assert_eq!(names.held(), 1);
}

#[test]
fn what_a_read_of_its_own_does_not_find_is_gone_unless_it_was_written_after() {
    let mut fold = listed(&["a", "b"]);
    fold.apply(object("late", "30", "late"));
    fold.news();
    let key = |name: &str| -> Key { ("shop".into(), name.into()) };
    assert!(fold.not_found(&key("a"), "20"), "its deletion was lost");
    assert!(!fold.not_found(&key("late"), "20"), "it was made after the read");
    assert!(!fold.not_found(&key("never"), "20"));
    assert_eq!(held(&fold), pairs(&[("b", "5"), ("late", "30")]));
    assert_eq!(fold.news(), News::These([key("a")].into()));
}

#[test]
fn why_nothing_is_decided_tells_the_servers_answer() {
    let why = || "why".into();
    for (state, line, refused, code) in [
        (SyncState::Syncing, "first list", false, None),
        (SyncState::Tainted(why()), "why", false, None),
        (SyncState::Failing { why: why(), code: None }, "why", false, None),
        (SyncState::Failing { why: why(), code: Some(401) }, "why", false, Some(401)),
        (SyncState::Refused(why()), "why", true, None),
    ] {
        let unseen = Unseen { line: line.to_owned(), refused, code };
        assert_eq!(state.seen(|| "first list".to_owned()), Err(unseen));
    }
    assert_eq!(SyncState::Synced.seen(String::new), Ok(()));
}
