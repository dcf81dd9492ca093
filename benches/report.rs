//! What `evenkeel report` costs on a large file: MB/s from the file to the report, and the most memory it ever had.
//!
//! The file is what `kubectl get nodes -o json` writes of 5,000 nodes: about 70 MB, most of it image lists. `make bench`
//! runs this. The binary is the one that is built beside it, with the optimisations of a release.

#![allow(clippy::unwrap_used, reason = "a bench may fail where it stands")]

use std::fs;
use std::io::{BufWriter, Write as _};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use evenkeel_spread::{Spread, seconds};
use serde::Serialize as _;
use serde_json::{Value, json};

const BINARY: &str = env!("CARGO_BIN_EXE_evenkeel");
const NODES: usize = 5_000;
const RUNS: usize = 9;

fn main() {
    // Under `cargo test` nothing is measured.
    if !std::env::args().any(|arg| arg == "--bench") {
        return;
    }
    let folder = std::env::temp_dir().join(format!("evenkeel-bench-{}", std::process::id()));
    fs::create_dir_all(&folder).unwrap();
    let file = folder.join("nodes.json");
    write(&file, NODES);
    let small = folder.join("small.json");
    write(&small, 1);
    let megabytes = megabytes(&file);
    println!("\nfrom a file to its report: {NODES} nodes, {megabytes:.1} MB, {RUNS} runs, median (min..max)");
    let mut peaks = Vec::new();
    let all = seconds(RUNS, Duration::ZERO, || peaks.push(peak(report(&file))));
    println!(
        "{:<40} {:.0} MB/s",
        "speed",
        Spread::of(all.iter().map(|seconds| megabytes / seconds).collect())
    );
    println!("{:<40} {:.3} s", "time, the start of the process included", Spread::of(all));
    println!("{:<40} {:.1} MB ({NODES} nodes)", "most memory", Spread::of(peaks));
    let least = (0..RUNS).map(|_| peak(report(&small))).collect();
    println!("{:<40} {:.1} MB (1 node)", "", Spread::of(least));
    fs::remove_dir_all(folder).unwrap();
}

#[allow(clippy::cast_precision_loss, reason = "no file is that large")]
fn megabytes(file: &Path) -> f64 {
    fs::metadata(file).unwrap().len() as f64 / 1e6
}

fn report(file: &Path) -> Child {
    let mut command = Command::new(BINARY);
    command.args(["report", "--apiserver-version", "v1.36.4", "-o", "json", "-f"]).arg(file);
    command.stdout(Stdio::null()).spawn().unwrap()
}

/// Waits for the end of `child`; the most memory it had until a moment before, in MB. What Linux keeps of that is gone
/// with the process, so it is asked for over and over; all that memory is for is done before the last line is printed.
fn peak(mut child: Child) -> f64 {
    let status = format!("/proc/{}/status", child.id());
    let mut most = 0.0;
    loop {
        let text = fs::read_to_string(&status).unwrap_or_default();
        let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"));
        let kibibytes = line.and_then(|line| line.trim().trim_end_matches(" kB").parse::<f64>().ok());
        most = kibibytes.map_or(most, |kibibytes| kibibytes * 1024.0 / 1e6);
        if let Some(status) = child.try_wait().unwrap() {
            assert!(status.success(), "{status}");
            return most;
        }
        std::thread::sleep(Duration::from_micros(500));
    }
}

/// A list of `nodes` as kubectl writes it: indented by four, kind and apiVersion around the items.
fn write(file: &Path, nodes: usize) {
    let mut out = BufWriter::new(fs::File::create(file).unwrap());
    let list = json!({
        "apiVersion": "v1",
        "items": (0..nodes).map(node).collect::<Vec<_>>(),
        "kind": "List",
        "metadata": {"resourceVersion": ""},
    });
    let form = serde_json::ser::PrettyFormatter::with_indent(b"    ");
    list.serialize(&mut serde_json::Serializer::with_formatter(&mut out, form)).unwrap();
    out.flush().unwrap();
}

/// Half as many as a kubelet tells of at most.
fn images(number: usize) -> Vec<Value> {
    let all = (0..24).map(|image| {
        let repository = format!("registry.example.com/team-{:02}/service-{:03}", image % 10, (number + image) % 400);
        json!({
            "names": [
                format!("{repository}@sha256:{:064x}", (number as u128 + 7) * (image as u128 + 3) * 0x9e37_79b9_7f4a_7c15),
                format!("{repository}:v{}.{}.{}", image % 7, image % 13, number % 29),
            ],
            "sizeBytes": 20_000_000 + 1_234_567 * image,
        })
    });
    all.collect()
}

/// Half of the nodes are a minor behind; four pools.
fn node(number: usize) -> Value {
    let pool = ["canary", "general", "memory", "gpu"][number % 4];
    let name = format!(
        "ip-10-{}-{}-{}.eu-central-1.compute.internal",
        number / 65_536,
        number / 256 % 256,
        number % 256
    );
    let version = if number.is_multiple_of(2) { "v1.36.4" } else { "v1.35.7" };
    let condition = |r#type: &str, status: &str, reason: &str, message: &str| {
        json!({
            "lastHeartbeatTime": "2026-11-20T09:13:37Z",
            "lastTransitionTime": "2026-10-02T11:01:12Z",
            "message": message,
            "reason": reason,
            "status": status,
            "type": r#type,
        })
    };
    let resources = json!({
        "cpu": "16", "ephemeral-storage": "209702892Ki", "hugepages-1Gi": "0", "hugepages-2Mi": "0",
        "memory": "64820344Ki", "pods": "110",
    });
    json!({
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "annotations": {
                "csi.volume.kubernetes.io/nodeid": format!("{{\"csi.example.com\":\"i-{number:017x}\"}}"),
                "node.alpha.kubernetes.io/ttl": "30",
                "volumes.kubernetes.io/controller-managed-attach-detach": "true",
            },
            "creationTimestamp": "2026-09-14T08:22:41Z",
            "labels": {
                "beta.kubernetes.io/arch": "amd64", "beta.kubernetes.io/os": "linux",
                "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name, "kubernetes.io/os": "linux",
                "node.kubernetes.io/instance-type": "m7i.4xlarge", "pool": pool,
                "topology.kubernetes.io/region": "eu-central-1",
                "topology.kubernetes.io/zone": format!("eu-central-1{}", ["a", "b", "c"][number % 3]),
            },
            "name": name,
            "resourceVersion": format!("{}", 48_000_000 + number * 17),
            "uid": format!("{number:08x}-0000-4000-8000-{:012x}", number * 7919),
        },
        "spec": {
            "podCIDR": format!("10.{}.{}.0/24", 64 + number / 256, number % 256),
            "podCIDRs": [format!("10.{}.{}.0/24", 64 + number / 256, number % 256)],
            "providerID": format!("aws:///eu-central-1a/i-{number:017x}"),
        },
        "status": {
            "addresses": [
                {"address": format!("10.{}.{}.{}", number / 65_536, number / 256 % 256, number % 256), "type": "InternalIP"},
                {"address": name, "type": "Hostname"},
            ],
            "allocatable": resources,
            "capacity": resources,
            "conditions": [
                condition("MemoryPressure", "False", "KubeletHasSufficientMemory", "kubelet has sufficient memory available"),
                condition("DiskPressure", "False", "KubeletHasNoDiskPressure", "kubelet has no disk pressure"),
                condition("PIDPressure", "False", "KubeletHasSufficientPID", "kubelet has sufficient PID available"),
                condition("Ready", "True", "KubeletReady", "kubelet is posting ready status"),
            ],
            "daemonEndpoints": {"kubeletEndpoint": {"Port": 10250}},
            "images": images(number),
            "nodeInfo": {
                "architecture": "amd64", "bootID": format!("{number:032x}"), "containerRuntimeVersion": "containerd://2.1.4",
                "kernelVersion": "6.12.41-generic", "kubeletVersion": version, "kubeProxyVersion": "",
                "machineID": format!("{:032x}", number * 31), "operatingSystem": "linux", "osImage": "Ubuntu 24.04.3 LTS",
                "systemUUID": format!("{:032x}", number * 37),
            },
        },
    })
}
