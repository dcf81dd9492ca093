//! Cases as text.
//!
//! `# name` begins a case. A line is a step: a verb, a path in which `NS` is the case's own namespace, and a body in YAML,
//! which may go on in indented lines. `~x` in a path or body is the UID, `^x` the resourceVersion, of the answer that
//! was saved by `=x` before a verb.

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
    cases
}
