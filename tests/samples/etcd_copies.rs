//! What the executors of kubeadm leave of the copies that kubeadm makes of etcd's data.

use super::scripts::{Host, LINE};

#[test]
fn of_the_copies_of_etcd_that_an_upgrade_made_one_stays() {
    for executor in ["kubeadm/first", "kubeadm/control-plane"] {
        let host = Host::new();
        host.put("etc/apt/sources.list.d/kubernetes.list", LINE);
        // A copy that a person made, and what tells of a try that was ended: kubeadm may then need several turns.
        host.sh("cd etc/kubernetes; mkdir -p tmp/kubeadm-backup-etcd-2025-01-01-00-00-00 tmp/kubeadm-upgraded-manifests1
                 touch -d 2025-01-01 tmp/kubeadm-backup-etcd-2025-01-01-00-00-00");
        let there = || {
            host.sh("cd etc/kubernetes/tmp; ls -d kubeadm-backup-etcd-* > ../there");
            host.read("etc/kubernetes/there")
        };
        host.put("refusals", "xx");
        assert!(host.run(executor).well, "{executor}");
        let both = "kubeadm-backup-etcd-2025-01-01-00-00-00\nkubeadm-backup-etcd-2026-11-28-00-00-03\n";
        assert_eq!(there(), both, "{executor}");
        // A further try of the same upgrade.
        assert!(host.run(executor).well, "{executor}");
        assert_eq!(there(), both.replace("-03", "-04"), "{executor}");
    }
}

#[test]
fn the_copy_of_etcd_from_before_it_changed_stays() {
    for executor in ["kubeadm/first", "kubeadm/control-plane"] {
        let host = Host::new();
        host.put("etc/apt/sources.list.d/kubernetes.list", LINE);
        // A try that changes etcd and ends, one that ends before it copies anything, and one that goes well.
        for (state, refusals, well) in
            [("changes-etcd", "x", false), ("copies-nothing", "x", false), ("none", "", true)]
        {
            host.put(state, "");
            host.put("refusals", refusals);
            assert_eq!(host.run(executor).well, well, "{executor}: {state}");
            host.sh(&format!("rm {state}"));
        }
        host.sh("cd etc/kubernetes/tmp; ls -d kubeadm-backup-etcd-* > ../there");
        let there = host.read("etc/kubernetes/there");
        assert_eq!(there, "kubeadm-backup-etcd-2026-11-28-00-00-01\n", "{executor}");
    }
}

#[test]
fn a_copy_of_etcd_that_would_fill_the_disk_is_not_made() {
    for executor in ["kubeadm/first", "kubeadm/control-plane"] {
        for (free, fits) in [(3_000_000, false), (3_200_000, true)] {
            let host = Host::new();
            host.put("etc/apt/sources.list.d/kubernetes.list", LINE);
            host.sh("mkdir data; echo \"    - --data-dir=$PWD/data\" > etc/kubernetes/manifests/etcd.yaml");
            host.put("du", "2097152\t/data\n");
            host.put(
                "df",
                &format!("Filesystem 1024-blocks Used\n/dev/sda1 10485760 7000000 {free} 70% /\n"),
            );
            let ran = host.run(executor);
            assert_eq!(ran.well, fits, "{executor}: {}", ran.errors);
            assert_eq!(ran.called.contains("kubeadm upgrade"), fits, "{executor}: {}", ran.called);
            let words = "kubeadm copies the data of etcd, 2048 MiB, into /etc/kubernetes/tmp, where 2929 MiB of \
                         10240 MiB are free: less than a tenth would stay free; remove old copies there, or \
                         enlarge the disk\n";
            assert_eq!(ran.errors, if fits { "" } else { words }, "{executor}");
        }
    }
}

/// A host whose etcd has this tag, with room on its disk for one copy of etcd's data and not for two.
fn with_room_for_one(tag: &str) -> Host {
    let host = Host::new();
    host.put("etc/apt/sources.list.d/kubernetes.list", LINE);
    host.put(
        "etc/kubernetes/manifests/etcd.yaml",
        &format!(
            "    - --data-dir=HERE/data\n    - --listen-metrics-urls=http://127.0.0.1:2381,http://10.0.0.1:2381\n    \
             image: mirror.test/our/etcd:{tag}\n"
        ),
    );
    host.sh("mkdir data; cd etc/kubernetes/manifests; sed -i \"s#HERE#${PWD%/etc/*}#\" etcd.yaml; touch -d 2026-01-01 etcd.yaml");
    host.put("du", "2097152\t/data\n");
    let df = |free: u32| format!("Filesystem 1024-blocks Used\n/dev/sda1 10485760 6000000 {free} 70% /\n");
    host.put("df", &df(4_000_000));
    host.put("df-with-copy", &df(1_902_848));
    host
}

/// kubeadm has nothing to do to it any more.
#[test]
fn etcd_that_an_earlier_try_changed_is_not_copied_again() {
    for (executor, told) in [
        ("kubeadm/first", "apply --yes --etcd-upgrade=false v1.37.1\n"),
        ("kubeadm/control-plane", "node --etcd-upgrade=false\n"),
    ] {
        for (tag, prepare, sure) in [
            ("3.7.0-0", "touch mirror/health", true),
            ("3.6.8-0", "touch mirror/health", false),
            ("3.7.0-0-ours", "touch mirror/health", false),
            ("3.7.0-0", "", false),
            ("3.7.0-0", "touch mirror/health; rm bin/curl", false),
        ] {
            let host = with_room_for_one(tag);
            host.sh(prepare);
            host.put("changes-etcd", "");
            host.put("refusals", "x");
            let ran = host.run(executor);
            assert!(!ran.well && !ran.called.contains("--etcd-upgrade"), "{executor}: {}", ran.called);
            let ran = host.run(executor);
            assert_eq!(ran.well, sure, "{executor} {tag} {prepare}: {}", ran.errors);
            assert_eq!(ran.called.contains(&format!("kubeadm upgrade {told}")), sure, "{}", ran.called);
            assert_eq!(ran.errors.is_empty(), sure, "{executor}: {}", ran.errors);
            assert!(sure || ran.errors.starts_with("kubeadm copies the data of etcd"), "{}", ran.errors);
            assert_eq!(ran.called.contains("kubeadm upgrade"), sure, "{executor}: {}", ran.called);
            host.sh("test -e etc/kubernetes/tmp/kubeadm-backup-etcd-2026-11-28-00-00-01/etcd");
        }
    }
}

/// One try may ask kubeadm several times.
#[test]
fn the_disk_is_looked_at_before_each_turn_of_kubeadm() {
    for executor in ["kubeadm/first", "kubeadm/control-plane"] {
        for well in [true, false] {
            let host = with_room_for_one("3.7.0-0");
            host.sh("mkdir -p etc/kubernetes/tmp/kubeadm-upgraded-manifests1");
            host.put("changes-etcd", "");
            host.put("refusals", "x");
            if well {
                host.put("mirror/health", "");
            }
            let ran = host.run(executor);
            assert_eq!(ran.well, well, "{executor}: {}", ran.errors);
            let turns: Vec<_> =
                ran.called.lines().filter(|line| line.starts_with("kubeadm upgrade")).collect();
            assert_eq!(turns.len(), if well { 2 } else { 1 }, "{executor}: {turns:?}");
            assert!(!turns[0].contains("--etcd-upgrade"), "{executor}: {turns:?}");
        }
    }
}

/// What is in the copy is in etcd, as long as that is well.
#[test]
fn a_copy_of_etcd_that_did_not_change_makes_room_for_the_next_one() {
    for executor in ["kubeadm/first", "kubeadm/control-plane"] {
        for (well, stays) in [(true, "2\n"), (false, "1\n")] {
            let host = with_room_for_one("3.7.0-0");
            host.put("refusals", "x");
            assert!(!host.run(executor).well, "{executor}");
            if well {
                host.put("mirror/health", "");
            }
            let ran = host.run(executor);
            assert_eq!(ran.well, well, "{executor}: {}", ran.errors);
            assert!(!ran.called.contains("--etcd-upgrade"), "{executor}: {}", ran.called);
            host.sh("cd etc/kubernetes/tmp; ls -d kubeadm-backup-etcd-* > ../there");
            let there = host.read("etc/kubernetes/there");
            assert_eq!(there, format!("kubeadm-backup-etcd-2026-11-28-00-00-0{stays}"), "{executor}");
        }
    }
}
