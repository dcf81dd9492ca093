//! JSON as it comes in: list items are handed over one by one, so that no list is ever held as a whole.
//!
//! Here belongs the walk over documents and lists; what an object is does not. The invariant: of a list no more is
//! held than the item at hand and, until the list has said of what kind they are, the items that do not say it
//! themselves.

use std::fmt;
use std::io::Read;

use serde::de::{
    DeserializeSeed, Deserializer, Error as _, IgnoredAny, MapAccess, SeqAccess, Unexpected, Visitor,
};
use serde_json::value::RawValue;

use super::super::json_error::broken;
use super::piece::{Head, List, Piece, Sink};

/// Hands everything in the documents that `reader` gives to `sink`.
///
/// # Errors
/// When the text is broken or cannot be read; what is before the break has been handed over.
pub(super) fn json(reader: impl Read, sink: &mut Sink<'_>) -> Result<(), String> {
    let mut documents = serde_json::Deserializer::from_reader(reader);
    // One after the other, as `cluster-info dump` writes them, until nothing but blanks is left.
    while documents.end().is_err() {
        Document(sink).deserialize(&mut documents).map_err(|error| broken(&error))?;
    }
    Ok(())
}

struct Document<'s, 'f>(&'s mut Sink<'f>);

impl<'de> DeserializeSeed<'de> for Document<'_, '_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<(), D::Error> {
        deserializer.deserialize_any(self)
    }
}

/// A text, a number: every text is YAML.
macro_rules! scalars {
    ($($visit:ident: $kind:ty),*) => {
        $(fn $visit<E>(self, _: $kind) -> Result<(), E> {
            (self.0)(Piece::Scalar);
            Ok(())
        })*
    };
}

impl<'de> Visitor<'de> for Document<'_, '_> {
    type Value = ();

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a JSON document")
    }

    scalars!(visit_bool: bool, visit_i64: i64, visit_u64: u64, visit_f64: f64, visit_str: &str);

    fn visit_unit<E>(self) -> Result<(), E> {
        (self.0)(Piece::Scalar);
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<(), A::Error> {
        let list = List::default();
        let all = each(items, |raw, place| {
            (self.0)(Piece::Object { raw: &raw, list: &list, place });
            None::<()>
        })?;
        if all.count == 0 {
            (self.0)(Piece::EmptyList(&list));
        }
        Ok(())
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        let mut fields: Vec<(String, Box<RawValue>)> = Vec::new();
        let mut items = None;
        while let Some(key) = map.next_key::<String>()? {
            let kind = text(&fields, "kind");
            let may_be_a_list = kind.as_deref().is_none_or(|kind| kind.ends_with("List"));
            if key == "items" && may_be_a_list {
                let list = of_list(&fields);
                items = Some(map.next_value_seed(Items { list, sink: &mut *self.0 })?);
            } else {
                fields.push((key, map.next_value()?));
            }
        }
        match (items, text(&fields, "kind")) {
            (Some(all), kind) if kind.as_deref().is_none_or(|kind| kind.ends_with("List")) => {
                let list = of_list(&fields);
                for (raw, place) in all.held {
                    (self.0)(Piece::Object { raw: &raw, list: &list, place });
                }
                if all.count == 0 {
                    (self.0)(Piece::EmptyList(&list));
                }
                // kubectl writes the kind after the items, so a YAML file that was cut off still reads well.
                if kind.is_none() && fields.iter().any(|(key, _)| key == "apiVersion") {
                    (self.0)(Piece::CutOff);
                }
            }
            // Items that are part of some other object were passed by; its own fields tell what it is.
            _ => whole(&fields, self.0),
        }
        Ok(())
    }
}

/// The text of a field, if there is one.
fn text(fields: &[(String, Box<RawValue>)], name: &str) -> Option<String> {
    let (_, raw) = fields.iter().find(|(key, _)| key == name)?;
    serde_json::from_str(raw.get()).ok()
}

/// What a list with these fields says of its items.
fn of_list(fields: &[(String, Box<RawValue>)]) -> List {
    let kind = text(fields, "kind").unwrap_or_default();
    List::of(text(fields, "apiVersion"), kind.strip_suffix("List").unwrap_or_default())
}

/// An object that is no list, put together again.
fn whole(fields: &[(String, Box<RawValue>)], sink: &mut Sink<'_>) {
    let fields: Vec<String> = fields
        .iter()
        .map(|(key, raw)| format!("{}:{}", serde_json::Value::from(key.as_str()), raw.get()))
        .collect();
    match RawValue::from_string(format!("{{{}}}", fields.join(","))) {
        Ok(raw) => sink(Piece::Object { raw: &raw, list: &List::default(), place: 0 }),
        Err(error) => sink(Piece::Broken(&error)),
    }
}

/// How many items a list has, and the items that were held back.
struct All<T> {
    count: usize,
    held: Vec<T>,
}

/// Hands each item with its place to `take`, and holds back what `take` returns.
fn each<'de, A: SeqAccess<'de>, T>(
    mut items: A,
    mut take: impl FnMut(Box<RawValue>, usize) -> Option<T>,
) -> Result<All<T>, A::Error> {
    let mut all = All { count: 0, held: Vec::new() };
    while let Some(raw) = items.next_element::<Box<RawValue>>()? {
        all.count += 1;
        all.held.extend(take(raw, all.count));
    }
    Ok(all)
}

/// Reads the items of a list. It holds back the items whose kind is not known before the list's own kind is read.
struct Items<'s, 'f> {
    list: List,
    sink: &'s mut Sink<'f>,
}

impl<'de> DeserializeSeed<'de> for Items<'_, '_> {
    type Value = All<(Box<RawValue>, usize)>;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Self::Value, D::Error> {
        deserializer.deserialize_any(self)
    }
}

impl<'de> Visitor<'de> for Items<'_, '_> {
    type Value = All<(Box<RawValue>, usize)>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a sequence")
    }

    /// Go writes an empty list as null.
    fn visit_unit<E>(self) -> Result<Self::Value, E> {
        Ok(All { count: 0, held: Vec::new() })
    }

    fn visit_seq<A: SeqAccess<'de>>(self, items: A) -> Result<Self::Value, A::Error> {
        let Self { list, sink } = self;
        each(items, |raw, place| {
            let told = list.kind.is_some() || Head::of(&raw).is_some_and(|head| head.kind.is_some());
            if told {
                sink(Piece::Object { raw: &raw, list: &list, place });
            }
            (!told).then_some((raw, place))
        })
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        while map.next_entry::<IgnoredAny, IgnoredAny>()?.is_some() {}
        let error = serde_json::Error::invalid_type(Unexpected::Map, &self);
        (self.sink)(Piece::Broken(&error));
        // It is told already that this is no list.
        Ok(All { count: 1, held: Vec::new() })
    }

    fn visit_str<E>(self, text: &str) -> Result<Self::Value, E> {
        let error = serde_json::Error::invalid_type(Unexpected::Str(text), &self);
        (self.sink)(Piece::Broken(&error));
        // It is told already that this is no list.
        Ok(All { count: 1, held: Vec::new() })
    }
}
