//! Calendars by table, and against a walk from minute to minute that knows nothing but offsets.

use std::collections::BTreeSet;

use proptest::prelude::*;

use super::*;

fn zone(name: &str) -> TimeZone {
    time_zone(name).unwrap()
}

fn at(text: &str) -> Timestamp {
    text.parse().unwrap()
}

fn window(zone_name: &str, days: &[Weekday], start: &str, minutes: i64) -> Window {
    Window {
        name: "w".into(),
        zone: zone(zone_name),
        days: days.to_vec(),
        start: start.parse().unwrap(),
        length: SignedDuration::from_mins(minutes),
    }
}

fn freeze(zone_name: &str, from: &str, until: &str) -> Freeze {
    let zone = zone(zone_name);
    Freeze {
        name: format!("{from}..{until}").into(),
        from: time_of(from, &zone, false).unwrap(),
        until: time_of(until, &zone, true).unwrap(),
        zone,
    }
}

fn calendar(windows: &[Window], freezes: &[Freeze]) -> Calendar {
    Calendar { windows: windows.to_vec(), freezes: freezes.to_vec() }
}

/// Whether something of no length may begin, and else when.
fn ask(calendar: &Calendar, now: &str) -> String {
    ask_for(calendar, now, 0)
}

fn ask_for(calendar: &Calendar, now: &str, minutes: i64) -> String {
    match calendar.may_begin(at(now), SignedDuration::from_mins(minutes)) {
        Ok(()) => "open".to_owned(),
        Err((_, Some(next))) => zoned_time(next.at, &next.zone),
        Err((_, None)) => "never".to_owned(),
    }
}

#[test]
fn zones_are_known_without_the_machine() {
    assert!(
        ["UTC", "Europe/Berlin", "America/St_Johns", "Pacific/Apia", "Asia/Kathmandu"]
            .iter()
            .all(|name| time_zone(name).is_some())
    );
    assert!(["", "Europe/Berlim", "CEST2", "../etc/passwd"].iter().all(|name| time_zone(name).is_none()));
}

#[test]
fn without_windows_and_freezes_it_is_always_open() {
    assert_eq!(ask_for(&Calendar::default(), "2026-11-23T12:00:00Z", 1_000_000), "open");
}

#[test]
fn work_goes_on_in_the_next_window_and_idles_where_nothing_more_fits() {
    use Weekday::{Monday, Thursday};
    let nights = [window("Europe/Berlin", &[Monday, Thursday], "22:00", 6 * 60)];
    let frozen = [freeze("Europe/Berlin", "2026-11-26", "2026-11-27")];
    let done = |calendar: &Calendar, work: i64, needs: i64, idle: i64| {
        let [work, needs, idle] = [work, needs, idle].map(SignedDuration::from_mins);
        let done = calendar.done(at("2026-11-23T12:00:00Z"), work, needs, idle);
        done.map(|done| zoned_time(done, &zone("Europe/Berlin")))
    };
    for (windows, freezes, work, idle, told) in [
        (&[][..], &[][..], 600, 30, "Mon 2026-11-23 23:00 Europe/Berlin"),
        (&nights, &[], 0, 0, "Mon 2026-11-23 22:00 Europe/Berlin"),
        (&nights, &[], 360, 30, "Tue 2026-11-24 04:00 Europe/Berlin"),
        (&nights, &[], 600, 0, "Fri 2026-11-27 02:00 Europe/Berlin"),
        (&nights, &[], 600, 30, "Fri 2026-11-27 02:30 Europe/Berlin"),
        (&nights, &frozen, 600, 30, "Tue 2026-12-01 02:30 Europe/Berlin"),
        (&[], &frozen, 72 * 60, 0, "Sat 2026-11-28 13:00 Europe/Berlin"),
    ] {
        assert_eq!(done(&calendar(windows, freezes), work, 40, idle).as_deref(), Some(told));
    }
    assert_eq!(done(&calendar(&nights, &[]), 600, 361, 0), None, "no window is long enough");
}

#[test]
fn a_window_across_midnight_belongs_to_the_day_on_which_it_starts() {
    use Weekday::{Monday, Thursday};
    let nights = calendar(&[window("Europe/Berlin", &[Monday, Thursday], "22:00", 6 * 60)], &[]);
    for (now, told) in [
        ("2026-11-23T20:59:59Z", "Mon 2026-11-23 22:00 Europe/Berlin"),
        ("2026-11-23T21:00:00Z", "open"),
        ("2026-11-24T02:59:59.999Z", "open"),
        ("2026-11-24T03:00:00Z", "Thu 2026-11-26 22:00 Europe/Berlin"),
        // It is Tuesday in the evening.
        ("2026-11-24T22:00:00Z", "Thu 2026-11-26 22:00 Europe/Berlin"),
        ("2026-11-27T02:00:00Z", "open"),
        ("2026-11-27T03:00:00Z", "Mon 2026-11-30 22:00 Europe/Berlin"),
    ] {
        assert_eq!(ask(&nights, now), told, "{now}");
    }
}

#[test]
fn clocks_that_are_set_move_the_start_and_never_the_length() {
    // On 29 March 2026 02:00 becomes 03:00 in Berlin, and on 25 October 03:00 becomes 02:00.
    let early = calendar(&[window("Europe/Berlin", &[], "02:30", 60)], &[]);
    for (now, told) in [
        ("2026-03-28T01:30:00Z", "open"),
        ("2026-03-28T02:30:00Z", "Sun 2026-03-29 03:30 Europe/Berlin"),
        ("2026-03-29T01:29:59Z", "Sun 2026-03-29 03:30 Europe/Berlin"),
        ("2026-03-29T01:30:00Z", "open"),
        ("2026-03-29T02:29:59Z", "open"),
        ("2026-03-29T02:30:00Z", "Mon 2026-03-30 02:30 Europe/Berlin"),
        // 02:30 is there twice.
        ("2026-10-25T00:29:59Z", "Sun 2026-10-25 02:30 Europe/Berlin"),
        ("2026-10-25T00:30:00Z", "open"),
        ("2026-10-25T01:29:59Z", "open"),
        ("2026-10-25T01:30:00Z", "Mon 2026-10-26 02:30 Europe/Berlin"),
    ] {
        assert_eq!(ask(&early, now), told, "{now}");
    }
    let over = calendar(&[window("Europe/Berlin", &[Weekday::Saturday], "23:00", 6 * 60)], &[]);
    for (now, told) in [
        ("2026-03-28T21:59:00Z", "Sat 2026-03-28 23:00 Europe/Berlin"),
        ("2026-03-28T22:00:00Z", "open"),
        // It ends at 06:00 where clocks were set forward, and at 04:00 where they were set back.
        ("2026-03-29T03:59:59Z", "open"),
        ("2026-03-29T04:00:00Z", "Sat 2026-04-04 23:00 Europe/Berlin"),
        ("2026-10-24T21:00:00Z", "open"),
        ("2026-10-25T02:59:59Z", "open"),
        ("2026-10-25T03:00:00Z", "Sat 2026-10-31 23:00 Europe/Berlin"),
    ] {
        assert_eq!(ask(&over, now), told, "{now}");
    }
    // A whole Friday that Samoa left out begins a day later.
    let samoa = calendar(&[window("Pacific/Apia", &[Weekday::Friday], "10:00", 60)], &[]);
    assert_eq!(ask(&samoa, "2011-12-30T09:00:00Z"), "Sat 2011-12-31 10:00 Pacific/Apia");
    assert_eq!(ask(&samoa, "2011-12-30T20:30:00Z"), "open");
}

#[test]
fn a_freeze_counts_its_days_to_their_end_and_hides_windows() {
    let year_end = freeze("Europe/Berlin", "2026-12-18", "2027-01-07");
    let alone = calendar(&[], std::slice::from_ref(&year_end));
    for (now, told) in [
        ("2026-12-17T22:59:59Z", "open"),
        ("2026-12-17T23:00:00Z", "Fri 2027-01-08 00:00 Europe/Berlin"),
        ("2027-01-07T22:59:59.5Z", "Fri 2027-01-08 00:00 Europe/Berlin"),
        ("2027-01-07T23:00:00Z", "open"),
    ] {
        assert_eq!(ask(&alone, now), told, "{now}");
    }
    let nights = window("Europe/Berlin", &[Weekday::Wednesday, Weekday::Thursday], "22:00", 6 * 60);
    let both = calendar(&[nights], &[year_end]);
    assert_eq!(
        ask(&both, "2026-12-30T21:30:00Z"),
        "Fri 2027-01-08 00:00 Europe/Berlin",
        "Thursday's is open"
    );
    assert_eq!(ask(&both, "2027-01-08T03:00:00Z"), "Wed 2027-01-13 22:00 Europe/Berlin");
    // Times, with an offset and without.
    let hours = freeze("Europe/Berlin", "2026-11-23T22:30", "2026-11-23T22:15:00Z");
    let both = calendar(&[window("Europe/Berlin", &[Weekday::Monday], "22:00", 120)], &[hours]);
    assert_eq!(ask(&both, "2026-11-23T21:29:59Z"), "open");
    assert_eq!(ask(&both, "2026-11-23T21:30:00Z"), "Mon 2026-11-23 23:15 Europe/Berlin");
    assert_eq!(ask(&both, "2026-11-23T22:15:00Z"), "open");
    // Years of freezes, one after the other.
    let years = (2026..2046).map(|year| freeze("UTC", &format!("{year}-01-01"), &format!("{year}-12-31")));
    let daily = calendar(&[window("UTC", &[], "12:00", 60)], &years.collect::<Vec<_>>());
    assert_eq!(ask(&daily, "2026-06-01T12:30:00Z"), "Wed 2046-01-01 12:00 UTC".replace("Wed", "Mon"));
}

#[test]
fn what_does_not_fit_waits_for_the_next_window_that_is_long_enough() {
    let short = window("UTC", &[Weekday::Monday], "10:00", 30);
    let long = window("UTC", &[Weekday::Thursday], "10:00", 90);
    let both = calendar(&[short.clone(), long], &[]);
    assert_eq!(ask_for(&both, "2026-11-23T10:00:00Z", 30), "open");
    assert_eq!(ask_for(&both, "2026-11-23T10:00:01Z", 30), "Thu 2026-11-26 10:00 UTC");
    assert_eq!(ask_for(&both, "2026-11-23T10:00:00Z", 60), "Thu 2026-11-26 10:00 UTC");
    assert_eq!(ask_for(&both, "2026-11-23T10:00:00Z", 91), "never");
    // Two that touch are one.
    let next = window("UTC", &[Weekday::Monday], "10:30", 30);
    let touching = calendar(&[short.clone(), next], &[]);
    assert_eq!(ask_for(&touching, "2026-11-23T10:00:00Z", 60), "open");
    // Every day the whole day has no end.
    let always = calendar(&[window("Europe/Berlin", &[], "00:00", 24 * 60 + 60)], &[]);
    assert_eq!(ask_for(&always, "2026-11-23T10:00:00Z", 60 * 24 * 20), "open");
    let frozen = calendar(&[short], &[freeze("UTC", "2026-11-23T10:20", "2026-11-23")]);
    let told = frozen.may_begin(at("2026-11-23T10:00:00Z"), SignedDuration::from_mins(21));
    assert!(
        matches!(&told, Err((Shut::Freezes(_, from), _)) if *from == at("2026-11-23T10:20:00Z")),
        "{told:?}"
    );
    assert_eq!(ask_for(&frozen, "2026-11-23T10:00:00Z", 20), "open");
    assert_eq!(ask_for(&frozen, "2026-11-23T10:00:00Z", 21), "Mon 2026-11-30 10:00 UTC");
}

/// However many windows a week has that are too short.
#[test]
fn the_one_window_that_is_long_enough_is_found_among_many() {
    let hours = (0..24).map(|hour| window("UTC", &[], &format!("{hour:02}:00"), 30));
    let long = window("UTC", &[Weekday::Sunday], "10:00", 360);
    let all = calendar(&hours.chain([long]).collect::<Vec<_>>(), &[]);
    assert_eq!(ask_for(&all, "2026-11-29T16:00:00Z", 40), "Sun 2026-12-06 10:00 UTC");
}

#[test]
fn what_is_no_time_is_refused() {
    let utc = TimeZone::UTC;
    for text in ["", "2026-13-01", "2026-02-30", "soon", "2026-12-18T25:00", "2026-12-18x"] {
        assert_eq!(time_of(text, &utc, false), Err(NoTime), "{text}");
    }
}

const QUARTER: SignedDuration = SignedDuration::from_mins(15);

/// The quarters of an hour from a day before `now` on at which a window is open: a walk that looks at the clock on the
/// wall alone. Everything that changes does so at a quarter.
fn walk(window: &Window, now: Timestamp, quarters: i64) -> BTreeSet<Timestamp> {
    let step =
        |at: Timestamp, quarters: i64| at.checked_add(QUARTER * i32::try_from(quarters).unwrap()).unwrap();
    let wanted = |wall: DateTime| {
        let day = window.days.is_empty() || window.days.contains(&wall.date().weekday());
        day && wall.time() == window.start
    };
    let mut starts = BTreeSet::new();
    let mut shown = BTreeSet::new();
    let mut before: Option<DateTime> = None;
    for quarter in -96..quarters {
        let at = step(now, quarter);
        let wall = at.to_zoned(window.zone.clone()).datetime();
        // What the clock leaves out begins as much later.
        let mut left_out = before.map_or(wall, |before| before.checked_add(QUARTER).unwrap());
        let mut later = 0;
        while left_out < wall {
            if wanted(left_out) {
                starts.insert(step(at, later));
            }
            (left_out, later) = (left_out.checked_add(QUARTER).unwrap(), later + 1);
        }
        if shown.insert(wall) && wanted(wall) {
            starts.insert(at);
        }
        before = Some(wall);
    }
    let long = window.length.as_mins() / 15;
    starts.into_iter().flat_map(|from| (0..long).map(move |quarter| step(from, quarter))).collect()
}

fn any_window() -> impl Strategy<Value = Window> {
    let zones = prop::sample::select(vec!["UTC", "Europe/Berlin", "America/New_York", "Australia/Lord_Howe"]);
    let days = prop::collection::vec(1..=7_i8, 0..4);
    (zones, days, 0..24_i8, 0..4_i8, 1..40_i64).prop_map(|(zone_name, days, hour, quarter, quarters)| {
        Window {
            name: "w".into(),
            zone: zone(zone_name),
            days: days.into_iter().map(|day| Weekday::from_monday_one_offset(day).unwrap()).collect(),
            start: Time::constant(hour, quarter * 15, 0, 0),
            length: SignedDuration::from_mins(quarters * 15),
        }
    })
}

/// Some hours around the days on which the clocks of those zones are set.
fn any_time() -> impl Strategy<Value = Timestamp> {
    let days = prop::sample::select(vec![
        "2026-03-08T00:00:00Z",
        "2026-03-29T00:00:00Z",
        "2026-04-04T12:00:00Z",
        "2026-10-03T12:00:00Z",
        "2026-10-25T00:00:00Z",
        "2026-11-01T00:00:00Z",
        "2026-11-23T00:00:00Z",
    ]);
    (days, -60..120_i64)
        .prop_map(|(day, quarters)| at(day).checked_add(SignedDuration::from_mins(quarters * 15)).unwrap())
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn it_is_open_when_a_walk_from_minute_to_minute_says_so(
        windows in prop::collection::vec(any_window(), 1..3),
        now in any_time(),
        frozen in prop::option::of((0..40_i64, 1..40_i64)),
    ) {
        let freezes = frozen.map(|(from, length)| {
            let from = now.checked_add(SignedDuration::from_mins(from * 15)).unwrap();
            let until = from.checked_add(SignedDuration::from_mins(length * 15)).unwrap();
            Freeze { name: "f".into(), zone: TimeZone::UTC, from, until }
        });
        let calendar = calendar(&windows, &freezes.into_iter().collect::<Vec<_>>());
        let inside: Vec<_> = windows.iter().map(|window| walk(window, now, 200)).collect();
        let walked_open = |at: Timestamp| {
            let frozen = calendar.freezes.iter().any(|freeze| freeze.from <= at && at < freeze.until);
            !frozen && inside.iter().any(|of| of.contains(&at))
        };
        for quarter in (0..96).step_by(5) {
            let now = now.checked_add(QUARTER * quarter).unwrap();
            let walked = walked_open(now);
            let told = calendar.may_begin(now, SignedDuration::ZERO);
            prop_assert_eq!(told.is_ok(), walked, "{} {:?}", now, calendar);
            if let Err((_, Some(next))) = told {
                prop_assert!(next.at > now);
                let mut between = now;
                for _ in 0..90 {
                    between = between.checked_add(QUARTER).unwrap();
                    if between >= next.at {
                        prop_assert!(between == next.at && walked_open(between), "{} of {:?}", next.at, calendar);
                        break;
                    }
                    prop_assert!(!walked_open(between), "{} of {:?}", between, calendar);
                }
            }
        }
    }

    #[test]
    fn what_fits_is_open_until_it_is_done(
        windows in prop::collection::vec(any_window(), 1..3),
        now in any_time(),
        needs in 0..40_i64,
    ) {
        let calendar = calendar(&windows, &[]);
        let open = |minutes: i64| {
            let at = now.checked_add(SignedDuration::from_mins(minutes)).unwrap();
            calendar.may_begin(at, SignedDuration::ZERO).is_ok()
        };
        let walked = (0..=needs * 15).step_by(15).all(|minutes| minutes == needs * 15 && minutes > 0 || open(minutes));
        prop_assert_eq!(calendar.may_begin(now, SignedDuration::from_mins(needs * 15)).is_ok(), walked);
    }

    #[test]
    fn work_is_done_after_as_many_open_quarters_as_it_takes(
        windows in prop::collection::vec(any_window(), 1..3),
        now in any_time(),
        frozen in (0..40_i64, 1..40_i64),
        work in 0..60_i64,
    ) {
        let from = now.checked_add(QUARTER * i32::try_from(frozen.0).unwrap()).unwrap();
        let until = from.checked_add(QUARTER * i32::try_from(frozen.1).unwrap()).unwrap();
        let calendar = calendar(&windows, &[Freeze { name: "f".into(), zone: TimeZone::UTC, from, until }]);
        let (mut left, mut at) = (work, now);
        for _ in 0..96 * 60 {
            if left == 0 {
                break;
            }
            if calendar.may_begin(at, SignedDuration::ZERO).is_ok() {
                left -= 1;
            }
            at = at.checked_add(QUARTER).unwrap();
        }
        let told = calendar.done(now, QUARTER * i32::try_from(work).unwrap(), SignedDuration::ZERO, SignedDuration::ZERO);
        if left == 0 && work > 0 {
            prop_assert_eq!(told, Some(at), "{:?}", calendar);
        }
    }
}
