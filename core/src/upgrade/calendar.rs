//! When an upgrade may begin something: windows that come again every week, and freezes.
//!
//! Here belongs the arithmetic of calendars and time zones, from rules that are part of the program; what begins, and
//! how long it takes, is not known here. The invariants: nothing here asks a clock or reads a file; a time is open
//! exactly when it is in a window (or there is none) and in no freeze; and a window lasts as long as it says in real
//! time, whatever clocks do meanwhile.

use std::sync::Arc;

use jiff::civil::{Date, DateTime, Time, Weekday};
use jiff::tz::{TimeZone, TimeZoneDatabase};
use jiff::{SignedDuration, Timestamp, ToSpan as _};

/// What follows without a gap for so long has no end that matters.
const FAR: SignedDuration = SignedDuration::from_hours(24 * 31);
/// So many openings are looked at for one that is long enough: all that a week can have, which has the same ones as the next
/// but for clocks that are set, with 32 windows and the ends of as many freezes.
const OPENINGS: usize = 300;

/// The time zone of that name, such as `Europe/Berlin`, as this program knows it: it takes no rules from the machine.
pub fn time_zone(name: &str) -> Option<TimeZone> {
    if name == "UTC" {
        return Some(TimeZone::UTC);
    }
    TimeZoneDatabase::bundled().get(name).ok()
}

/// `at` as a person in `zone` says it: `Mon 2026-11-23 22:00 Europe/Berlin`. A time inside of a minute is said as the
/// next one, so that it is never too early.
pub fn zoned_time(at: Timestamp, zone: &TimeZone) -> String {
    let inside = at.as_second().rem_euclid(60);
    let up = if inside == 0 && at.subsec_nanosecond() == 0 { 0 } else { 60 - inside };
    let at = at.saturating_add(SignedDuration::from_secs(up)).unwrap_or(at).to_zoned(zone.clone());
    let name = zone.iana_name().map_or_else(|| at.offset().to_string(), str::to_owned);
    format!("{} {name}", at.strftime("%a %Y-%m-%d %H:%M"))
}

/// A time of the week at which something may begin.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Window {
    /// As a person named it, for status and events; it decides nothing.
    pub name: Arc<str>,
    /// The time zone of its days and of its start.
    pub zone: TimeZone,
    /// The days on which it starts; none is every day.
    pub days: Vec<Weekday>,
    /// When it starts. Where clocks leave that time out it starts as much later as they are set, and where they show it
    /// twice it starts at the first.
    pub start: Time,
    /// How long it is open from then on.
    pub length: SignedDuration,
}

impl Window {
    /// From when to when it is open that starts on `date`, if it starts then.
    fn on(&self, date: Date) -> Option<(Timestamp, Timestamp)> {
        if !self.days.is_empty() && !self.days.contains(&date.weekday()) {
            return None;
        }
        let from = self.zone.to_timestamp(date.to_datetime(self.start)).ok()?;
        Some((from, from.saturating_add(self.length).unwrap_or(Timestamp::MAX)))
    }

    /// The times it is open that start on a day from `before` days before `at` until `beyond` days after, in order.
    fn near(&self, at: Timestamp, before: i64, beyond: i64) -> impl Iterator<Item = (Timestamp, Timestamp)> {
        let today = at.to_zoned(self.zone.clone()).date();
        let day = move |days: i64| today.checked_add(days.days()).ok();
        (-before..=beyond).filter_map(day).filter_map(|date| self.on(date))
    }

    /// When it closes, if it is open at `at`.
    fn closes(&self, at: Timestamp) -> Option<Timestamp> {
        // One that began on a day that clocks left out began a day later; so two more.
        let long = self.length.as_hours() / 24 + 2;
        self.near(at, long, 1)
            .filter(|(from, until)| *from <= at && at < *until)
            .map(|(_, until)| until)
            .max()
    }

    /// When it opens next after `at`.
    fn opens(&self, at: Timestamp) -> Option<Timestamp> {
        self.near(at, 2, 9).map(|(from, _)| from).filter(|from| *from > at).min()
    }
}

/// A time in which nothing begins.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Freeze {
    /// As a person named it, for status and events; it decides nothing.
    pub name: Arc<str>,
    /// The time zone in which it was written.
    pub zone: TimeZone,
    /// From this moment on nothing begins.
    pub from: Timestamp,
    /// From this moment on something may begin again.
    pub until: Timestamp,
}

/// Why a day or a time of a freeze cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NoTime;

/// The time that `text` says: a day such as `2026-12-18`, a time of the day such as `2026-12-18T18:00`, both in `zone`,
/// or a time with an offset such as `2026-12-18T18:00:00Z`. A day counts from its beginning, or `to_its_end`.
///
/// # Errors
/// [`NoTime`] when it says none.
pub fn time_of(text: &str, zone: &TimeZone, to_its_end: bool) -> Result<Timestamp, NoTime> {
    if text.len() == "2026-12-18".len() {
        let day: Date = text.parse().map_err(|_| NoTime)?;
        let day = if to_its_end { day.tomorrow().map_err(|_| NoTime)? } else { day };
        return zone.to_timestamp(day.to_datetime(Time::midnight())).map_err(|_| NoTime);
    }
    if let Ok(at) = text.parse::<Timestamp>() {
        return Ok(at);
    }
    let at: DateTime = text.parse().map_err(|_| NoTime)?;
    zone.to_timestamp(at).map_err(|_| NoTime)
}

/// Why nothing begins at a time.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Shut {
    /// No window is open.
    Window,
    /// A window is open and closes too soon.
    Closes(Timestamp),
    /// It is frozen, by the freeze of this name.
    Frozen(Arc<str>),
    /// A freeze of this name begins too soon.
    Freezes(Arc<str>, Timestamp),
}

/// When something may begin next.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Opening {
    /// Nothing of the calendar is in the way then.
    pub at: Timestamp,
    /// The time zone in which to say it.
    pub zone: TimeZone,
}

/// When an upgrade may begin something.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Calendar {
    /// Something begins in these alone. None is always.
    pub windows: Vec<Window>,
    /// Nothing begins in these.
    pub freezes: Vec<Freeze>,
}

impl Calendar {
    /// Whether something that takes `needs` may begin at `now`: it is open, and stays so for as long. The error says why
    /// not, and when the next time is that is open for long enough; `None` if there is none in sight.
    ///
    /// # Errors
    /// [`Shut`] when it may not begin.
    pub fn may_begin(&self, now: Timestamp, needs: SignedDuration) -> Result<(), (Shut, Option<Opening>)> {
        self.fits(now, needs).map_err(|shut| (shut, self.next(now, needs)))
    }

    /// When `work` is done that is carried on from `now` whenever this is open. Openings shorter than `needs` are of no
    /// use, and at the end of one that ends before the work does, `idle` goes by because what is next would not end in
    /// time. `None` where no end is in sight.
    pub fn done(
        &self,
        now: Timestamp,
        work: SignedDuration,
        needs: SignedDuration,
        idle: SignedDuration,
    ) -> Option<Timestamp> {
        let (mut at, mut left) = (now, work);
        for _ in 0..OPENINGS {
            if self.fits(at, needs.min(left)).is_err() {
                at = self.next(at, needs.min(left))?.at;
            }
            let done = at.saturating_add(left).unwrap_or(Timestamp::MAX);
            let Some(shuts) = self.shuts(at).filter(|shuts| *shuts < done) else { return Some(done) };
            left -= (shuts.duration_since(at) - idle).clamp(SignedDuration::ZERO, left);
            at = shuts;
        }
        None
    }

    /// When it is no longer open that is open at `at`, if that ever comes.
    fn shuts(&self, at: Timestamp) -> Option<Timestamp> {
        let freezes = self.freezes.iter().map(|freeze| freeze.from).filter(|from| at < *from);
        freezes.chain(self.closes(at)).min()
    }

    fn fits(&self, at: Timestamp, needs: SignedDuration) -> Result<(), Shut> {
        if let Some(freeze) = self.frozen(at) {
            return Err(Shut::Frozen(Arc::clone(&freeze.name)));
        }
        let closes = if self.windows.is_empty() { None } else { Some(self.closes(at).ok_or(Shut::Window)?) };
        let done = at.saturating_add(needs).unwrap_or(Timestamp::MAX);
        let next = self.freezes.iter().filter(|freeze| at < freeze.from).min_by_key(|freeze| freeze.from);
        match next.filter(|freeze| freeze.from < done) {
            Some(freeze) if closes.is_none_or(|closes| freeze.from <= closes) => {
                return Err(Shut::Freezes(Arc::clone(&freeze.name), freeze.from));
            }
            _ => {}
        }
        match closes.filter(|closes| *closes < done) {
            Some(closes) => Err(Shut::Closes(closes)),
            None => Ok(()),
        }
    }

    /// The freeze at `at` that lasts longest.
    fn frozen(&self, at: Timestamp) -> Option<&Freeze> {
        let now = self.freezes.iter().filter(|freeze| freeze.from <= at && at < freeze.until);
        now.max_by_key(|freeze| freeze.until)
    }

    /// When the last of the windows closes that are open at `at` and of those that follow without a gap, if one is open.
    fn closes(&self, at: Timestamp) -> Option<Timestamp> {
        let far = at.saturating_add(FAR).unwrap_or(Timestamp::MAX);
        let longest = |at| self.windows.iter().filter_map(|window| window.closes(at)).max();
        let mut until = longest(at)?;
        while let Some(later) = longest(until).filter(|_| until < far) {
            until = later;
        }
        Some(until)
    }

    /// The first time after `now` at which something that takes `needs` may begin.
    fn next(&self, now: Timestamp, needs: SignedDuration) -> Option<Opening> {
        let mut at = now;
        for _ in 0..OPENINGS {
            let windows = self.windows.iter().filter_map(|of| Some((of.opens(at)?, &of.zone)));
            let ends = self.freezes.iter().map(|freeze| (freeze.until, &freeze.zone));
            let (next, zone) =
                windows.chain(ends).filter(|(next, _)| at < *next).min_by_key(|(next, _)| *next)?;
            if self.fits(next, needs).is_ok() {
                return Some(Opening { at: next, zone: zone.clone() });
            }
            // What a freeze covers is not looked at one by one.
            at = self.frozen(next).map_or(next, |freeze| {
                freeze.until.saturating_sub(SignedDuration::from_nanos(1)).unwrap_or(next).max(next)
            });
        }
        None
    }
}

#[cfg(test)]
mod tests;
