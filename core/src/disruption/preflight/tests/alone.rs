//! What is told of budgets where nobody reads pods.

use super::*;

type Of = Box<dyn Fn(&mut Budget)>;

#[test]
fn what_a_budget_alone_tells() {
    let mins = |mins: i64| Some(at(0) - SignedDuration::from_mins(mins));
    let zero = |b: &mut Budget| (b.disruptions_allowed, b.current_healthy) = (0, 2);
    let cases: Vec<(&str, Of)> = vec![
        ("", Box::new(|_| {})),
        ("U1 never PDB shop/cart", Box::new(|b| b.demand = Demand::MaxUnavailable(Quantity::Count(0)))),
        ("U2 never PDB shop/cart", Box::new(|b| b.demand = Demand::MinAvailable(Quantity::Percent(100)))),
        (
            "U3 never PDB shop/cart",
            Box::new(|b| {
                b.demand = Demand::MinAvailable(Quantity::Count(3));
                (b.desired_healthy, b.disruptions_allowed) = (3, 0);
            }),
        ),
        ("U6 never PDB shop/cart", Box::new(|b| (b.demand, b.expected_pods) = (Demand::Nothing, 0))),
        (
            "U8 never PDB shop/cart",
            Box::new(|b| {
                b.sync_failed = Some("jobs.batch does not implement the scale subresource".into());
                b.expected_pods = 0;
            }),
        ),
        ("U11 not-now PDB shop/cart", Box::new(move |b| (zero(b), b.closed_since = mins(10)).0)),
        // A rollout closes its budget for a while.
        ("", Box::new(move |b| (zero(b), b.closed_since = mins(9)).0)),
        // Servers that do not say since when.
        ("U11 not-now PDB shop/cart", Box::new(zero)),
        // Its status follows in a moment.
        ("", Box::new(|b| b.generation = 2)),
        (
            "U13 not-now PDB shop/cart",
            Box::new(|b| {
                (b.generation, b.disruptions_allowed, b.desired_healthy) = (2, 0, 3);
            }),
        ),
        (
            "U15 not-now PDB shop/cart",
            Box::new(|b| {
                b.demand = Demand::MaxUnavailable(Quantity::Count(0));
                (b.made_by, b.disruptions_allowed) = (Some("CephCluster rook".into()), 0);
            }),
        ),
        // Nothing is guarded.
        (
            "",
            Box::new(|b| {
                b.demand = Demand::MaxUnavailable(Quantity::Count(0));
                (b.expected_pods, b.current_healthy, b.disruptions_allowed) = (0, 0, 0);
            }),
        ),
    ];
    for (expected, change) in cases {
        let demand = Demand::MaxUnavailable(Quantity::Count(1));
        let mut one = Budget { demand, ..budget("cart", 1, 3, 2) };
        change(&mut one);
        let cluster = of(&[], std::slice::from_ref(&one));
        assert_eq!(codes(&closed(&cluster, at(0))).join(","), expected, "{one:?}");
    }
}

#[test]
fn an_eviction_that_was_lost_is_named() {
    let causes = seen(|c| {
        (c.budgets[0].disruptions_allowed, c.budgets[0].current_healthy) = (0, 2);
        c.budgets[0].disrupted = [("cart-2".into(), at(-30))].into();
    });
    let [cause] = &causes[..] else { panic!("{causes:?}") };
    assert_eq!((cause.code, cause.remedy.as_str()), (Code::TooFewHealthy, "wait for that"));
    assert!(
        cause.what.ends_with(
            "2 needed; pod cart-2 counts as evicted until 2027-01-15T08:01:30Z without being deleted"
        ),
        "{cause:?}"
    );
}

#[test]
fn those_that_never_let_go_come_first_and_nothing_acts_on_a_terminal() {
    let one = |name: &str, demand| Budget { demand, ..budget(name, 0, 2, 2) };
    let mut evil = one("a", Demand::MaxUnavailable(Quantity::Count(1)));
    evil.made_by = Some("Evil \u{1b}[2J".into());
    let never = one("z", Demand::MaxUnavailable(Quantity::Count(0)));
    let cluster = of(&[], &[evil, never]);
    let found = closed(&cluster, at(0));
    assert_eq!(codes(&found), ["U1 never PDB shop/z", "U15 not-now PDB shop/a"]);
    for text in [&found[1].what, &found[1].remedy] {
        assert!(text.contains("Evil ?[2J"), "{text}");
    }
}
