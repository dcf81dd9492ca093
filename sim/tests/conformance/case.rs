//! Cases as text.
//!
//! `# name` begins a case. A line is a step: a verb, a path in which `NS` is the case's own namespace, and a body in
//! YAML, which may go on in indented lines; a body after `!` is sent as it is. `=x` before a verb saves the answer: in
//! later steps `~x` is its UID, `^x` its resourceVersion and `@x` its continue token. A step after `-` is carried out
//! and not compared.
//!
//! Verbs besides the methods of HTTP: `JSON`, `MERGE`, `STRATEGIC` and `APPLY` patch; `TABLE`, `META` and `METAS` get
//! another form; `WATCH` and `WATCHTABLE` open a watch under a name, and `EVENTS` compares what it has brought; `WAIT`
//! waits until a field has a value, and `SLEEP` for some milliseconds.

/// One case.
#[derive(Clone, Debug)]
pub struct Case {
    pub name: String,
    pub file: &'static str,
    pub steps: Vec<String>,
}

const FILES: &[(&str, &str)] = &[
    ("requests", include_str!("cases/requests.txt")),
    ("watches", include_str!("cases/watches.txt")),
    ("evictions", include_str!("cases/evictions.txt")),
    ("budgets", include_str!("cases/budgets.txt")),
    ("custom", include_str!("cases/custom.txt")),
    ("controllers", include_str!("cases/controllers.txt")),
    ("tables", include_str!("cases/tables.txt")),
];

/// Every case of every file.
pub fn all() -> Vec<Case> {
    let mut cases: Vec<Case> = Vec::new();
    for (file, text) in FILES {
        for line in text.lines() {
            if let Some(name) = line.strip_prefix("# ") {
                cases.push(Case { name: name.to_owned(), file, steps: Vec::new() });
            } else if line.starts_with(' ') {
                let step =
                    cases.last_mut().and_then(|case| case.steps.last_mut()).expect("a line to go on with");
                step.push('\n');
                step.push_str(line);
            } else if !line.is_empty() {
                cases.last_mut().expect("a case").steps.push(line.to_owned());
            }
        }
    }
    cases.extend((1..=40).map(generated));
    cases
}

/// A sequence of requests that the seed chooses, and that nobody would think of.
fn generated(seed: u64) -> Case {
    let mut state = seed.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    let mut draw = |below: usize| {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        usize::try_from(state >> 33).unwrap_or(0) % below
    };
    let path = "/api/v1/namespaces/NS/configmaps";
    let mut steps = Vec::new();
    for _ in 0..14 {
        let name = ["a", "b"][draw(2)];
        let manager = ["one", "two", "three"][draw(3)];
        let body = [
            "data: {k: v}",
            "data: {k: w, l: m}",
            "data: {l: null}",
            "metadata: {labels: {p: q}}",
            "metadata: {labels: {p: r}, finalizers: [example.com/a]}",
            "metadata: {finalizers: null}",
            "immutable: false",
        ][draw(7)];
        let whole = [
            "metadata: {name: X}, data: {k: v}",
            "metadata: {name: X}, data: {k: w, m: o}",
            "metadata: {name: X, labels: {p: q}}",
            "metadata: {name: X, annotations: {s: t}}, data: {l: m}",
        ][draw(4)]
        .replace('X', name);
        let dry = ["", "", "", "&dryRun=All"][draw(4)];
        steps.push(match draw(8) {
            0 | 1 => format!("POST {path}?fieldManager={manager}{dry} {{{whole}}}"),
            2 => format!("PUT {path}/{name}?fieldManager={manager}{dry} {{{whole}}}"),
            3 => format!("MERGE {path}/{name}?fieldManager={manager}{dry} {{{body}}}"),
            4 => format!("STRATEGIC {path}/{name}?fieldManager={manager}{dry} {{{body}}}"),
            5 => format!("APPLY {path}/{name}?fieldManager={manager}{dry} {{apiVersion: v1, kind: ConfigMap, {whole}}}"),
            6 => format!("APPLY {path}/{name}?fieldManager={manager}&force=true {{apiVersion: v1, kind: ConfigMap, {whole}}}"),
            _ => format!("DELETE {path}/{name}"),
        });
    }
    for name in ["a", "b"] {
        steps.push(format!("-MERGE {path}/{name} {{metadata: {{finalizers: null}}}}"));
    }
    Case { name: format!("generated {seed}"), file: "generated", steps }
}
