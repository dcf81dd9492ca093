//! Makes equal what differs from run to run by nature.

use std::collections::BTreeMap;

use serde_json::{Map, Value};

/// Names for what cannot be predicted, in the order in which it is first seen.
#[derive(Debug, Default)]
pub struct Names {
    uids: BTreeMap<String, usize>,
    suffixes: BTreeMap<String, usize>,
    last: u64,
}

impl Names {
    /// Replaces what differs by nature in an answer.
    pub fn plain(&mut self, value: &mut Value) {
        match value {
            Value::Object(fields) => {
                self.revisions(fields);
                self.drawn(fields);
                self.keys(fields);
            }
            Value::Array(items) => {
                for item in items {
                    match item {
                        Value::String(text) => self.text("", text),
                        item => self.plain(item),
                    }
                }
            }
            _ => {}
        }
    }

    /// Revisions, times and owners.
    fn revisions(&mut self, fields: &mut Map<String, Value>) {
        // The revision of a bookmark depends on what else happens in the cluster.
        if fields.get("type").is_some_and(|kind| kind == "BOOKMARK")
            && let Some(metadata) = fields.get_mut("object").and_then(|object| object.get_mut("metadata"))
        {
            metadata["resourceVersion"] = "(bookmark)".into();
        }
        // Owners are in the order of the second in which they wrote; no case depends on where a second begins.
        if let Some(Value::Array(owners)) = fields.get_mut("managedFields") {
            owners.sort_by_key(|owner| {
                ["operation", "manager", "subresource"].map(|name| owner[name].to_string())
            });
        }
        // The virtual cluster does not describe the columns of its tables.
        if fields.contains_key("priority") && fields.contains_key("format") {
            fields.remove("description");
        }
        // Whether a time changed depends on where a second begins, and so does who owns it.
        fields.remove("f:lastTransitionTime");
        // A list's revision is that of everything that happened in the cluster.
        let list = fields
            .get("kind")
            .and_then(Value::as_str)
            .is_some_and(|kind| kind.ends_with("List") || kind == "Table");
        if list
            && let Some(revision) =
                fields.get_mut("metadata").and_then(|metadata| metadata.get_mut("resourceVersion"))
            && let Some(number) = revision.as_str().and_then(|text| text.parse::<u64>().ok())
        {
            *revision = if number < self.last { "(list, earlier)".into() } else { "(list)".into() };
        }
        // The order of revisions is compared; their distance is not.
        if let Some(Value::String(revision)) = fields.get_mut("resourceVersion")
            && let Ok(number) = revision.parse::<u64>()
        {
            *revision = match number.cmp(&self.last) {
                std::cmp::Ordering::Less => "earlier",
                std::cmp::Ordering::Equal => "same",
                std::cmp::Ordering::Greater => "later",
            }
            .to_owned();
            self.last = self.last.max(number);
        }
    }

    /// Tokens, addresses, ports and names that a server chooses freely; then the values of all fields.
    fn drawn(&mut self, fields: &mut Map<String, Value>) {
        if let Some(token) = fields.get_mut("continue") {
            *token = "(token)".into();
        }
        if let Some(Value::Array(cells)) = fields.get_mut("cells") {
            for cell in cells.iter_mut() {
                if let Some(made) = cell.as_str().and_then(self::cell) {
                    *cell = made.into();
                }
            }
        }
        // A server chooses any address or port of its range.
        for field in ["clusterIP", "clusterIPs", "nodePort"] {
            let drawn = match fields.get(field) {
                Some(Value::Array(all)) => all.first().cloned(),
                other => other.cloned(),
            };
            if drawn.is_some_and(|drawn| {
                drawn.is_number() || drawn.as_str().is_some_and(|text| text.starts_with("10."))
            }) {
                fields.insert(field.to_owned(), "(drawn)".into());
            }
        }
        // A hash that only the server itself uses.
        fields.remove("storageVersionHash");
        for (name, value) in fields.iter_mut() {
            match value {
                Value::String(text) => self.text(name, text),
                value => self.plain(value),
            }
        }
    }

    /// Names of fields that hold a UID or a drawn name.
    fn keys(&mut self, fields: &mut Map<String, Value>) {
        let owners: Vec<String> =
            fields.keys().filter(|key| key.starts_with("k:{\"uid\"")).cloned().collect();
        for key in owners {
            let value = fields.remove(&key);
            let uid = key.get(9..45).unwrap_or_default().to_owned();
            let next = self.uids.len();
            let name = self.uids.entry(uid).or_insert(next);
            fields.insert(format!("k:uid-{name}"), value.unwrap_or_default());
        }
        let renamed: Vec<String> =
            fields.keys().filter(|key| key.contains("kube-api-access-")).cloned().collect();
        for key in renamed {
            let value = fields.remove(&key);
            fields.insert(cut(&key), value.unwrap_or_default());
        }
    }

    fn text(&mut self, name: &str, text: &mut String) {
        if name == "uid" || name == "controller-uid" || is_uid(text) {
            let next = self.uids.len();
            *text = format!("uid-{}", self.uids.entry(text.clone()).or_insert(next));
            return;
        }
        if text.len() >= 20
            && text.as_bytes().get(10) == Some(&b'T')
            && text.ends_with('Z')
            && text.starts_with("20")
        {
            "(time)".clone_into(text);
            return;
        }
        let cut = cut(text);
        if cut != *text {
            *text = cut;
        }
        // UIDs, times and revisions inside a message.
        if matches!(name, "message" | "note") {
            *text = self.message(text);
        }
    }

    fn message(&mut self, text: &str) -> String {
        // The real server prints the whole object here, as Go does.
        if let Some(at) =
            text.find("patch: Invalid value: ").or(text.starts_with("Invalid value: \"{").then_some(0))
        {
            return format!("{}(the patched object)", text.get(..at).unwrap_or_default());
        }
        let mut words: Vec<String> = Vec::new();
        for word in text.split(' ') {
            let bare = word.trim_matches(|c: char| !c.is_ascii_alphanumeric());
            if is_uid(bare) {
                let next = self.uids.len();
                let name = format!("uid-{}", self.uids.entry(bare.to_owned()).or_insert(next));
                words.push(word.replace(bare, &name));
            } else if bare.len() >= 2 && bare.chars().all(|c| c.is_ascii_digit()) && text.contains("ersion") {
                words.push(word.replace(bare, "(number)"));
            } else {
                words.push(word.to_owned());
            }
        }
        words.join(" ")
    }

    /// Gives a generated end of a name a number.
    #[allow(dead_code, reason = "for answers about generated objects")]
    pub fn suffix(&mut self, suffix: &str) -> String {
        let next = self.suffixes.len();
        format!("suffix-{}", self.suffixes.entry(suffix.to_owned()).or_insert(next))
    }
}

/// A table's ages and addresses.
fn cell(text: &str) -> Option<&'static str> {
    let units = text.trim_start_matches(|c: char| c.is_ascii_digit());
    if text.contains("controller-uid=") {
        return Some("(selector)");
    }
    if units.len() < text.len() && units == "s" {
        return Some("(age)");
    }
    let address = text.split('.').count() == 4 && text.split('.').all(|part| part.parse::<u8>().is_ok());
    address.then_some("(address)")
}

fn cut(text: &str) -> String {
    match text.find("kube-api-access-") {
        Some(at) => {
            let end = at + "kube-api-access-".len();
            let after = text.get(end + 5..).unwrap_or_default();
            format!("{}{after}", text.get(..end).unwrap_or_default())
        }
        None => text.to_owned(),
    }
}

fn is_uid(text: &str) -> bool {
    text.len() == 36
        && text
            .chars()
            .enumerate()
            .all(|(at, c)| if matches!(at, 8 | 13 | 18 | 23) { c == '-' } else { c.is_ascii_hexdigit() })
}
