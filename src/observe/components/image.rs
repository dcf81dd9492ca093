//! Which component a pod runs, and in which version by its image.
//!
//! This module does no I/O and reads no clock. Here belongs how images, commands and labels name components. Which
//! instance of a component the pod is never belongs here. The invariant: a tag that is no version of Kubernetes is
//! never taken for one.

use std::collections::BTreeMap;

use evenkeel_core::cluster::Component;
use evenkeel_core::version::{Observed, Unknown};

use super::super::lean::Container;

/// What a pod runs: the component, its version by the image's tag, and the status of its container; `None` if the
/// pod runs no component. `labels`, `spec` and `status` are the pod's labels, containers and container statuses;
/// `mirror` is whether it is a static pod.
pub(in super::super) fn image_of<'a>(
    labels: &BTreeMap<String, String>,
    mirror: bool,
    spec: &[Container],
    status: &'a [Container],
) -> Option<(Component, Observed, Option<&'a Container>)> {
    let labelled = ["component", "k8s-app"]
        .iter()
        .find_map(|label| Component::from_name(labels.get(*label)?))
        .filter(|component| !matches!(component, Component::Kubelet | Component::Kubectl));
    let named = |container: &&Container, component: Component| {
        container.name.as_deref() == Some(component.name()) || runs(container) == Some(component)
    };
    let (component, container) = match labelled {
        Some(component) => (component, spec.iter().find(|c| named(c, component)).or(spec.first())?),
        None => spec.iter().find_map(|c| Some((runs(c)?, c)))?,
    };
    let running = status.iter().find(|running| running.name == container.name);
    // The status names the image that runs, but some runtimes give it by digest only.
    let image = |container: &Container| Observed::from_image(container.image.as_deref().unwrap_or_default());
    let version = match running.map(image) {
        Some(version @ Observed::Known(_)) => version,
        _ => image(container),
    };
    let version = match component {
        Component::CloudControllerManager => {
            let named = mirror || runs(container) == Some(component);
            of_cloud(version, named && image_name(container) != RKE2_CLOUD)
        }
        _ => version,
    };
    Some((component, version, running))
}

/// RKE2's cloud-controller-manager. Its tag looks like a version of Kubernetes and is none: it lags by a patch (RKE2 1.36.2
/// comes with v1.36.1-0.20260512…) or by a minor (1.30.3 with v1.29.3), and RKE2 moves it with the node.
const RKE2_CLOUD: &str = "rke2-cloud-provider";

/// The version of a cloud-controller-manager. Cloud providers number their images as they like (hcloud v1.8.1,
/// alicloud v0.1.0, GCE v35.0.0). Only an image that carries the component's own name, or that of a static pod, has a
/// version of Kubernetes as its tag, and not where it names a commit. `named` says that the image is one of these.
fn of_cloud(version: Observed, named: bool) -> Observed {
    let own = |text: &str| Observed::Unknown(Unknown::OwnNumber(text.into()));
    match version {
        Observed::Known(known) if !named || known.minor().major() != 1 || known.is_of_a_commit() => {
            own(&known.to_string())
        }
        Observed::Unknown(Unknown::Unreadable(text)) if !named || text.starts_with("v0.") => own(&text),
        version => version,
    }
}

/// Images that hold every component; which one runs, the container says.
const ALL_IN_ONE: [&str; 3] = ["hyperkube", "hardened-kubernetes", "kubernetes"];

/// The component that a container runs, by its image's name; for an image that holds them all by its command, else by
/// its own name.
fn runs(container: &Container) -> Option<Component> {
    let image = image_name(container);
    let (name, architecture) = image.rsplit_once('-').unwrap_or((image, ""));
    let one_architecture = ["amd64", "arm64", "arm", "ppc64le", "s390x"].contains(&architecture);
    let name = if one_architecture { name } else { image };
    let found = if ALL_IN_ONE.contains(&name) {
        let command = container.command.iter().flatten().take(2);
        let mut programs = command.map(|word| word.rsplit('/').next().unwrap_or_default());
        programs.find_map(Component::from_name).or_else(|| Component::from_name(container.name.as_deref()?))
    } else {
        Component::from_name(name)
    };
    // The skew policy says nothing of a pod that runs kubectl, and a kubelet is seen as its Node.
    found.filter(|found| !matches!(found, Component::Kubectl | Component::Kubelet))
}

/// The last path element of the image, without tag and digest.
fn image_name(container: &Container) -> &str {
    let image = container.image.as_deref().unwrap_or_default();
    let name = image.split('@').next().unwrap_or_default().rsplit('/').next().unwrap_or_default();
    name.split(':').next().unwrap_or_default()
}
