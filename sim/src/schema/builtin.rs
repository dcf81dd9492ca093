//! Reads `kubernetes.txt`, which `sim/schema` prints from the published types.
//!
//! Here belongs how the file is read; how an object is decoded by it is in `decode`. The invariant: a type that is not
//! in the file takes anything.

use std::collections::BTreeMap;
use std::sync::{Arc, OnceLock};

use super::shape::{Field, Listed, Scalar, Shape, Struct, Zero};

const TEXT: &str = include_str!("kubernetes.txt");

pub(super) type Lines = BTreeMap<&'static str, Vec<&'static str>>;
type Shapes = BTreeMap<&'static str, Arc<Shape>>;

/// The types in `kubernetes.txt`, each with the lines of its fields.
pub(super) fn lines() -> &'static Lines {
    static LINES: OnceLock<Lines> = OnceLock::new();
    LINES.get_or_init(|| {
        let mut lines = Lines::new();
        let mut current = "";
        for line in TEXT.lines() {
            if let Some(field) = line.strip_prefix(' ') {
                lines.entry(current).or_default().push(field);
            } else {
                current = line;
                lines.entry(current).or_default();
            }
        }
        lines
    })
}

/// The shape of a built-in type, such as `core.Pod`; of an unknown one, anything.
pub(crate) fn builtin(name: &str) -> Arc<Shape> {
    static SHAPES: OnceLock<Shapes> = OnceLock::new();
    let shapes = SHAPES.get_or_init(|| {
        let mut shapes = Shapes::new();
        for name in lines().keys() {
            named(name, lines(), &mut shapes);
        }
        shapes
    });
    shapes.get(name).cloned().unwrap_or_else(|| Arc::new(Shape::Any))
}

fn named(name: &'static str, lines: &Lines, shapes: &mut Shapes) -> Arc<Shape> {
    if let Some(shape) = shapes.get(name) {
        return shape.clone();
    }
    let (plain, atomic) = name.strip_suffix('!').map_or((name, false), |plain| (plain, true));
    let mut of =
        Struct { name: plain.rsplit('.').next().unwrap_or(plain).into(), atomic, ..Struct::default() };
    for line in lines.get(plain).into_iter().flatten() {
        let mut words = line.split(' ');
        let (field, shape) = (words.next().unwrap_or_default(), words.next().unwrap_or_default());
        let mut listed = Listed::Atomic;
        let mut atomic = false;
        let (mut zero, mut merge_key, mut merges) = (Zero::Keep, None, false);
        let mut number = Box::default();
        for word in words {
            match word.split_once('=') {
                None if word == "omit" => zero = Zero::Omit,
                None if word == "always" => zero = Zero::Write,
                None if word == "atomic" => atomic = true,
                Some(("list", "set")) => listed = Listed::Set,
                Some(("list", kind)) => {
                    if let Some(keys) = kind.strip_prefix("map:") {
                        listed = Listed::Map(keys.split(',').map(Into::into).collect());
                    }
                }
                Some(("pb", path)) => number = path.split('.').filter_map(|part| part.parse().ok()).collect(),
                Some(("key", key)) => merge_key = Some(key.into()),
                Some(("patch", how)) => merges = how.split(',').any(|how| how == "merge"),
                _ => {}
            }
        }
        let shape = parse(shape, listed, atomic, lines, shapes);
        of.fields.insert(field.into(), Field { shape, zero, merge_key, merges, number });
    }
    let shape = Arc::new(Shape::Struct(of));
    shapes.insert(name, shape.clone());
    shape
}

fn parse(text: &'static str, listed: Listed, atomic: bool, lines: &Lines, shapes: &mut Shapes) -> Arc<Shape> {
    let inside = |open, close| text.strip_prefix(open)?.strip_suffix(close);
    if let Some(of) = inside('[', ']') {
        return Arc::new(Shape::List { of: parse(of, Listed::Atomic, false, lines, shapes), listed });
    }
    if let Some(of) = inside('{', '}') {
        return Arc::new(Shape::Map { of: parse(of, Listed::Atomic, false, lines, shapes), atomic });
    }
    let scalar = match text {
        "string" => Scalar::String,
        "bool" => Scalar::Bool,
        "int32" => Scalar::Int32,
        "int64" => Scalar::Int64,
        "number" => Scalar::Number,
        "time" => Scalar::Time,
        "microtime" => Scalar::MicroTime,
        "quantity" => Scalar::Quantity,
        "intstr" => Scalar::IntOrString,
        "bytes" => Scalar::Bytes,
        "any" => return Arc::new(Shape::Any),
        name => return named(name, lines, shapes),
    };
    Arc::new(Shape::Scalar(scalar))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_types_that_are_served_are_there() {
        let pod = builtin("core.Pod");
        let containers = pod.child("spec").child("containers");
        let Shape::List { listed: Listed::Map(keys), .. } = containers else { panic!("{containers:?}") };
        assert_eq!(*keys, ["name".into()]);
        assert!(containers.item().names("image"));
        assert!(matches!(pod.child("metadata").child("labels"), Shape::Map { atomic: false, .. }));
    }
}
