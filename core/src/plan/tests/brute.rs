//! Plans of clusters by chance, carried out node by node, and judged by a naive table of the policy.

use super::*;
use crate::version::{Minor, Observed};

/// A small generator of numbers: the same for the same seed.
struct Chance(u64);

impl Chance {
    /// A number below `below`.
    fn pick(&mut self, below: u16) -> u16 {
        // Knuth's constants, of which the upper bits are good.
        self.0 = self.0.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u16::try_from((self.0 >> 33) % u64::from(below)).unwrap()
    }

    fn is(&mut self, of_ten: u16) -> bool {
        self.pick(10) < of_ten
    }
}

/// What runs somewhere, in a form that has nothing in common with the plan's.
#[derive(Clone)]
struct Thing {
    what: Component,
    place: String,
    minor: u16,
    local: bool,
    ours: bool,
}

fn version(minor: u16) -> String {
    format!("v1.{minor}.3")
}

fn random(chance: &mut Chance) -> (Cluster, Upgrade) {
    let base = 22 + chance.pick(12);
    let spread = if chance.is(3) { 1 + u16::from(chance.is(1)) } else { 0 };
    let near = |chance: &mut Chance, below: u16| base.saturating_sub(chance.pick(below));
    let mut all = cluster(&[], "v1.0.0", &[]);
    let mut instances = Vec::new();
    let servers = 1 + chance.pick(3);
    let local = chance.is(5);
    for number in 0..servers {
        let name = format!("cp-{number}");
        let minor = if number == 0 && servers > 1 { base } else { base + spread };
        let mut own = instance(Component::KubeApiserver, &name, &version(minor));
        own.version = Observed::from_report(&version(minor));
        instances.push(own);
        for component in [Component::KubeControllerManager, Component::KubeScheduler] {
            if number == 0 || chance.is(6) {
                let behind = u16::from(chance.is(3));
                let minor = if local && chance.is(3) { minor } else { base.saturating_sub(behind) };
                let reach = if local { Reach::Local } else { Reach::Any };
                instances.push(Instance { reach, ..instance(component, &name, &version(minor)) });
            }
        }
    }
    if chance.is(3) {
        let behind = chance.pick(4);
        instances.push(instance(Component::KubeProxy, "kube-proxy@n-0", &version(base - behind)));
    }
    all.set_instances(instances);
    for number in 0..chance.pick(5) {
        let minor = if chance.is(1) { near(chance, 7) } else { near(chance, 4) };
        let held = chance.is(1);
        all.set_node(Node { held, ..node(&format!("n-{number}"), &version(minor)) });
    }
    let mut upgrade = to(&format!("v1.{}.5", base + chance.pick(6)));
    if chance.is(4) {
        upgrade.control_plane.unit = Unit::Node;
    }
    if chance.is(1) {
        upgrade.groups.clear();
    }
    (all, upgrade)
}

fn things(cluster: &Cluster, upgrade: &Upgrade) -> Vec<Thing> {
    let minor = |observed: &Observed| observed.to_string()[3..].split('.').next().unwrap().parse().unwrap();
    let mut things: Vec<Thing> = Vec::new();
    for instance in cluster.instances() {
        things.push(Thing {
            what: instance.component,
            place: instance.node.clone().unwrap().to_string(),
            minor: minor(&instance.version),
            local: instance.reach == Reach::Local,
            ours: instance.component != Component::KubeProxy,
        });
    }
    for node in cluster.nodes() {
        things.push(Thing {
            what: Component::Kubelet,
            place: node.name.to_string(),
            minor: minor(&node.kubelet),
            local: false,
            ours: !node.held && !upgrade.groups.is_empty(),
        });
    }
    things
}

/// How far each is outside the policy, in minors.
fn outside(things: &[Thing]) -> Vec<u16> {
    let servers = |of: Option<&str>| -> Vec<u16> {
        let is =
            |thing: &&Thing| thing.what == Component::KubeApiserver && of.is_none_or(|of| thing.place == of);
        things.iter().filter(is).map(|thing| thing.minor).collect()
    };
    let far = |thing: &Thing| {
        let mut met = servers(thing.local.then_some(&*thing.place));
        if met.is_empty() {
            met = servers(None);
        }
        let (oldest, newest) = (*met.iter().min().unwrap(), *met.iter().max().unwrap());
        let older = match thing.what {
            Component::KubeApiserver => {
                return (newest - thing.minor).max(thing.minor - oldest).saturating_sub(1);
            }
            Component::Kubelet | Component::KubeProxy if thing.minor < 25 => 2,
            Component::Kubelet | Component::KubeProxy => 3,
            _ => 1,
        };
        thing.minor.saturating_sub(oldest).max(newest.saturating_sub(thing.minor + older))
    };
    things.iter().map(far).collect()
}

/// Carries `plan` out; the error is the first thing that goes wrong.
fn carried_out(plan: &Plan, mut things: Vec<Thing>, chance: &mut Chance) -> Result<(), String> {
    let minor = |minor: Minor| -> u16 { minor.to_string()[2..].parse().unwrap() };
    let mut began = false;
    for hop in &plan.hops {
        let goes_to = minor(hop.version.minor());
        for need in &hop.needs {
            let late = |thing: &&mut Thing| {
                !thing.ours && thing.what == need.component && thing.minor < minor(need.least)
            };
            for thing in things.iter_mut().filter(late) {
                if !began {
                    return Err(format!("{} has to move before anything begins", thing.place));
                }
                thing.minor = minor(need.least);
            }
        }
        let mut writes: Vec<usize> = Vec::new();
        for step in &hop.steps {
            for component in &step.components {
                let this = |thing: &Thing| thing.what == *component && thing.place == *step.place;
                writes.push(things.iter().position(this).ok_or("moves what is not there")?);
            }
        }
        for at in writes {
            began |= things[at].what == Component::KubeApiserver;
            write(&mut things, at, goes_to)?;
        }
        // A node joins late, at any minor that is allowed now.
        let servers =
            things.iter().filter(|thing| thing.what == Component::KubeApiserver).map(|thing| thing.minor);
        let (oldest, newest) = (servers.clone().min().unwrap(), servers.max().unwrap());
        let joins = oldest - chance.pick(4);
        let allowed = newest - joins <= if joins < 25 { 2 } else { 3 };
        if allowed {
            let place = format!("late-{goes_to}");
            things.push(Thing { what: Component::Kubelet, place, minor: joins, local: false, ours: true });
        }
        for at in 0..things.len() {
            let kubelet = things[at].what == Component::Kubelet && things[at].ours;
            let moves = match hop.kubelets {
                Pass::Before(before) => things[at].minor < minor(before),
                Pass::All => things[at].minor < goes_to,
            };
            if kubelet && moves {
                let ready = |thing: &Thing| thing.what >= Component::Kubelet || thing.minor >= goes_to;
                if let Some(late) = things.iter().find(|thing| !ready(thing)) {
                    return Err(format!("kubelets move before {} on {}", late.what, late.place));
                }
                write(&mut things, at, goes_to)?;
            }
        }
    }
    let target = minor(plan.to.minor());
    match things.iter().find(|thing| thing.ours && thing.minor != target) {
        Some(late) => Err(format!("{} on {} ends at {}", late.what, late.place, late.minor)),
        None => Ok(()),
    }
}

fn write(things: &mut [Thing], at: usize, minor: u16) -> Result<(), String> {
    let before = outside(things);
    if things[at].what == Component::KubeApiserver && minor > things[at].minor + 1 {
        return Err(format!("{} goes over a minor", things[at].place));
    }
    things[at].minor = minor;
    let after = outside(things);
    let worse = (0..things.len()).find(|at| after[*at] > before[*at]);
    match worse {
        Some(worse) => Err(format!(
            "{} on {} to {minor} leaves {} on {} at {}",
            things[at].what, things[at].place, things[worse].what, things[worse].place, things[worse].minor
        )),
        None => Ok(()),
    }
}

/// No plan is let through that goes wrong when it is carried out, and a plan without a block is let through.
///
/// `EVENKEEL_CAMPAIGN=long` tries a hundred thousand clusters.
#[test]
fn plans_of_clusters_by_chance_go_well() {
    let long = std::env::var("EVENKEEL_CAMPAIGN").is_ok_and(|value| value == "long");
    let clusters = if long { 100_000 } else { 5_000 };
    let (mut planned, mut moved) = (0_u64, 0_u64);
    for seed in 0..clusters {
        let mut chance = Chance(seed * 7_919 + 1);
        let (cluster, upgrade) = random(&mut chance);
        let plan = made(&cluster, &upgrade);
        let blocked = plan.blockers().next().is_some();
        match checked(plan.clone(), &cluster, &upgrade) {
            Ok(plan) => {
                let went = carried_out(&plan, things(&cluster, &upgrade), &mut chance);
                assert_eq!(went, Ok(()), "seed {seed}\n{}", told(&cluster, &upgrade));
                planned += 1;
                moved += u64::from(plan.hops.len() > 1);
            }
            Err(why) => assert!(blocked, "seed {seed}: {why:#?}\n{}", told(&cluster, &upgrade)),
        }
    }
    // Most clusters can be upgraded, many of them over several hops.
    assert!(planned > clusters / 2 && moved > clusters * 3 / 10, "{planned} {moved} of {clusters}");
}
