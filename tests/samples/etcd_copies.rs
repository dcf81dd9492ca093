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
