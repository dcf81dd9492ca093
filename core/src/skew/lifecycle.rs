//! Which minors are still maintained, until when, and which patch is the latest.
//!
//! Data with a date, not a rule: what is shipped is what was known when this was built, and a caller may bring a newer
//! text of the same form. The time is an argument, because the core has no clock. The invariant: a minor or a patch
//! line that the data does not know gives no finding, and nothing here makes a cluster unsupported by the skew policy.

use std::collections::BTreeMap;

use jiff::civil::Date;
use serde::Deserialize;

use super::findings::{Finding, Severity, unique};
use super::policy::{Rule, advice};
use super::{Assessment, Row};
use crate::version::{KubeVersion, Minor};

/// The data that is built in.
const SHIPPED: &str = include_str!("releases.json");

/// How long before its end a minor is told of, in days: time for an upgrade a minor.
const NOTICE: i32 = 60;

static END_OF_LIFE: Rule = advice("EOL", "kubernetes.io, patch releases: end of life");
static LATEST_PATCH: Rule =
    advice("O0", "version skew policy, supported component upgrade order: latest patch");

/// One minor's life.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Life {
    /// The last day of its maintenance.
    pub end_of_life: Date,
    /// The newest release of it that the data knows.
    pub latest: KubeVersion,
}

/// What is known of every minor.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Catalogue {
    minors: BTreeMap<Minor, Life>,
}

/// Why a text is no catalogue.
#[derive(Debug, thiserror::Error)]
pub enum CatalogueError {
    /// It is not of the form.
    #[error("the release data cannot be read: {0}")]
    Form(#[from] serde_json::Error),
    /// An entry does not say which minor it is about.
    #[error("the release data has `{0}` for a minor; write it like 1.37")]
    Minor(String),
}

#[derive(Deserialize)]
struct Text {
    minors: Vec<Entry>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Entry {
    minor: String,
    end_of_life: Date,
    latest_patch_seen: KubeVersion,
}

impl Catalogue {
    /// What was known when this was built.
    ///
    /// # Errors
    /// None that a test has not seen: the text is part of the program.
    pub fn shipped() -> Result<Self, CatalogueError> {
        Self::read(SHIPPED)
    }

    /// Reads `{"minors": [{"minor": "1.37", "endOfLife": "2027-10-28", "latestPatchSeen": "1.37.1"}]}`, and passes over
    /// whatever else is in it.
    ///
    /// # Errors
    /// [`CatalogueError`].
    pub fn read(text: &str) -> Result<Self, CatalogueError> {
        let text: Text = serde_json::from_str(text)?;
        let entry = |entry: Entry| -> Result<(Minor, Life), CatalogueError> {
            let minor =
                entry.minor.split_once('.').and_then(|(major, minor)| Minor::from_fields(major, minor));
            let minor = minor.ok_or(CatalogueError::Minor(entry.minor))?;
            Ok((minor, Life { end_of_life: entry.end_of_life, latest: entry.latest_patch_seen }))
        };
        Ok(Self { minors: text.minors.into_iter().map(entry).collect::<Result<_, _>>()? })
    }

    /// The life of that minor, if it is known.
    pub fn life(&self, minor: Minor) -> Option<&Life> {
        self.minors.get(&minor)
    }
}

/// What in a judged cluster is past its end, near it, or behind the latest patch of its minor.
pub fn findings(judged: &Assessment, catalogue: &Catalogue, today: Date) -> Vec<Finding> {
    let ends = judged.rows.iter().filter_map(|row| end(row, catalogue, today));
    let patches = judged.rows.iter().filter_map(|row| patch(row, catalogue));
    unique(ends.chain(patches))
}

fn end(row: &Row, catalogue: &Catalogue, today: Date) -> Option<Finding> {
    let minor = row.version.minor()?;
    let end = catalogue.life(minor)?.end_of_life;
    let left = (end - today).get_days();
    let message = match left {
        ..0 => format!("{} {minor} has had no maintenance since {end}", row.component),
        0..=NOTICE => format!("maintenance of {} {minor} ends on {end}", row.component),
        _ => return None,
    };
    Some(finding(row, &END_OF_LIFE, &minor.to_string(), message, "upgrade to a maintained minor".to_owned()))
}

fn patch(row: &Row, catalogue: &Catalogue) -> Option<Finding> {
    let version = row.version.known()?;
    let latest = &catalogue.life(version.minor())?.latest;
    // A vendor's patches come later than upstream's or not at all, and a build on the way to a release holds the one
    // before it.
    let base = version.released().filter(|_| version.is_of_upstream_patch_line())?;
    if base.release() >= latest.release() {
        return None;
    }
    let message = format!("{} {version} is behind the latest patch, {latest}", row.component);
    Some(finding(row, &LATEST_PATCH, &version.to_string(), message, format!("upgrade to {latest} or later")))
}

fn finding(row: &Row, rule: &'static Rule, what: &str, message: String, remedy: String) -> Finding {
    Finding {
        id: format!("{}/{}/{what}", rule.id, row.component),
        severity: Severity::Warning,
        rule,
        component: row.component,
        count: row.count,
        samples: row.samples.clone(),
        message,
        remedy,
    }
}
