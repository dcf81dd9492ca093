//! The definitions in `crds/` are those of the code: what is installed, reviewed and diffed is what runs.

use std::fs;
use std::path::Path;
use std::process::Command;

use evenkeel::api::definitions;

#[test]
fn crds_are_fresh() {
    let made = Path::new(env!("CARGO_TARGET_TMPDIR")).join("crds");
    // What an earlier run left must not stand for what this one did not write.
    let _absent = fs::remove_dir_all(&made);
    fs::create_dir_all(&made).unwrap();
    let status =
        Command::new(env!("CARGO_BIN_EXE_evenkeel")).args(["crds", "--dir"]).arg(&made).status().unwrap();
    assert!(status.success(), "evenkeel crds: {status}");

    let kept = Path::new(env!("CARGO_MANIFEST_DIR")).join("crds");
    for (file, _) in definitions() {
        let wanted = fs::read_to_string(made.join(file)).unwrap();
        let found = fs::read_to_string(kept.join(file)).unwrap_or_default();
        let differs = wanted.lines().zip(found.lines()).position(|(wanted, found)| wanted != found);
        let line = differs.unwrap_or_else(|| wanted.lines().count().min(found.lines().count())) + 1;
        assert!(
            wanted == found,
            "crds/{file} is not what the code says from line {line} on; run `make crds`"
        );
    }

    let known: Vec<_> = definitions().iter().map(|(file, _)| *file).collect();
    for entry in fs::read_dir(&kept).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        assert!(
            known.contains(&name.as_str()) || name == "kustomization.yaml",
            "crds/{name} is of no definition; delete it"
        );
    }
    let kustomization = fs::read_to_string(kept.join("kustomization.yaml")).unwrap();
    for file in known {
        assert!(
            kustomization.contains(&format!("- {file}\n")),
            "crds/kustomization.yaml does not name {file}"
        );
    }
}

/// A server warns of every format that it does not know, whenever the definitions are applied.
#[test]
fn no_server_warns_of_a_format() {
    fn formats(path: &str, value: &serde_json::Value, found: &mut Vec<String>) {
        // By k8s.io/apiextensions-apiserver, pkg/apis/apiextensions/validation, and kube-openapi's own registry.
        const KNOWN: [&str; 7] = ["int32", "int64", "float", "double", "byte", "date", "date-time"];
        match value {
            serde_json::Value::Object(fields) => {
                for (key, value) in fields {
                    if let Some(format) =
                        value.as_str().filter(|format| key == "format" && !KNOWN.contains(format))
                    {
                        found.push(format!("{path}: {format}"));
                    }
                    formats(&format!("{path}.{key}"), value, found);
                }
            }
            serde_json::Value::Array(items) => items.iter().for_each(|value| formats(path, value, found)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    for (file, definition) in definitions() {
        formats(file, &serde_json::to_value(definition).unwrap(), &mut found);
    }
    assert_eq!(found, Vec::<String>::new());
}

/// What the server says when it refuses an object: of a pattern it would show no more than the pattern, and of a number out of
/// its range no more than the bound.
#[test]
fn whatever_is_refused_by_a_rule_is_refused_with_a_sentence() {
    fn rules(value: &serde_json::Value, patterns: &mut Vec<String>, told: &mut Vec<String>) {
        match value {
            serde_json::Value::Object(fields) => {
                let bare = ["pattern", "minimum", "maximum"];
                patterns.extend(bare.iter().filter_map(|of| Some(format!("{of} {}", fields.get(*of)?))));
                for rule in
                    fields.get("x-kubernetes-validations").and_then(|of| of.as_array()).into_iter().flatten()
                {
                    told.push(rule["message"].as_str().unwrap_or_default().to_owned());
                }
                fields.values().for_each(|value| rules(value, patterns, told));
            }
            serde_json::Value::Array(items) => items.iter().for_each(|value| rules(value, patterns, told)),
            _ => {}
        }
    }
    let (mut patterns, mut told) = (Vec::new(), Vec::new());
    for (_, definition) in definitions() {
        let definition = serde_json::to_value(definition).unwrap();
        // Nobody but us writes the status.
        let schema = &definition["spec"]["versions"][0]["schema"]["openAPIV3Schema"];
        let whole = serde_json::json!({ "x-kubernetes-validations": schema["x-kubernetes-validations"] });
        rules(&whole, &mut patterns, &mut told);
        rules(&schema["properties"]["spec"], &mut patterns, &mut told);
    }
    assert_eq!(patterns, Vec::<String>::new());
    told.sort_unstable();
    told.dedup();
    expect_test::expect![[r#"
        `In` and `NotIn` need `values`, and `Exists` and `DoesNotExist` take none; name values, or take them out
        `dependsOn` must name other groups; take the name of the group itself out
        `firstExecutor` needs `unit: Node`; set that, or leave `firstExecutor` out
        `until` must be after `from`, where a last day counts to its end; choose a later `until` or an earlier `from`
        a claim must not be changed; delete it to give the node back
        a rule must say which pods it is for: set `selector` or `namespaces`; without both it would be for every pod
        exactly one of `job` and `external` must be set; `external` is for whoever changes versions outside of Evenkeel
        metadata.name must be at most 63 characters long, because it is part of other names; choose a shorter one
        must be a day such as `2026-12-18`, or a time such as `2026-12-18T18:00:00Z`
        must be a number from 1 to 5000, or a percentage from `1%` to `100%`
        must be a time of the day from `00:00` to `23:59`, such as `22:00`
        must be a version such as `v1.37.1` or `v1.37.1+k3s1`, or `v1.37` where any release of it will do
        must be from 0 to 5000 nodes; with 0 no node of the group goes first
        must be from 0 to 604800 seconds (at most a week); 0 waits for nothing
        must be from 1 to 604800 seconds (at most a week)
        must be from 1 to 86400 seconds (at most a day); what takes longer is `external`
        must be from 10 to 604800 seconds (ten seconds to a week)
        must be from 30 to 3600 seconds (half a minute to an hour); to write no report, set `suspend`
        must be from 60 to 604800 seconds (a minute to a week); to begin nothing for a time, write a freeze or set `suspend`
        must be the 32 characters of `status.plan.hash`, such as `3f9c0e1b7a42d5860b1e94c7f2a8d36e`
        there is one report, and it must be named `cluster`
    "#]].assert_eq(&(told.join("\n") + "\n"));
}
