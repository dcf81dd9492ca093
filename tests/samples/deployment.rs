//! How the program runs in a cluster: the Deployment of `config/default`, and the image that it runs.

use std::fs;
use std::path::Path;

use serde_json::Value;

fn read(path: &str) -> String {
    fs::read_to_string(Path::new(env!("CARGO_MANIFEST_DIR")).join(path)).unwrap()
}

/// OpenShift gives each namespace users of its own and refuses any other; it lets a pod choose its group. Elsewhere the kubelet
/// starts a container that must not be root as the user of its image, and only where that user is a number.
#[test]
fn the_image_names_the_user_and_the_deployment_does_not() {
    let deployment: Value = serde_saphyr::from_str(&read("config/default/deployment.yaml")).unwrap();
    let pod = &deployment["spec"]["template"]["spec"];
    assert_eq!(pod["securityContext"]["runAsNonRoot"], true);
    assert!(pod["securityContext"].get("runAsGroup").is_none(), "containerd refuses it without a user");
    assert_ne!(pod["containers"][0]["securityContext"]["runAsGroup"].as_u64().unwrap(), 0);
    for context in [&pod["securityContext"], &pod["containers"][0]["securityContext"]] {
        assert!(context.is_object());
        for named in ["runAsUser", "fsGroup", "supplementalGroups"] {
            assert!(context.get(named).is_none(), "{named}");
        }
    }
    let image = read("Dockerfile");
    let user = image.lines().rev().find_map(|line| line.strip_prefix("USER ")).unwrap();
    let (user, group) = user.split_once(':').unwrap();
    assert!(user.parse::<u32>().unwrap() > 0 && group.parse::<u32>().unwrap() > 0);
}
