//! When the executors of k3s and RKE2 restart the service, and whose program they do not replace.

use super::scripts::{Host, REPLACING, refuses};

/// Where the program of an executor is.
fn program(executor: &str) -> &'static str {
    if executor.starts_with("k3s") { "usr/local/bin/k3s" } else { "usr/local/bin/rke2" }
}

/// A host with the new program in place, as a person or a try that was ended puts it there.
fn with_the_new_program(executor: &str) -> Host {
    let host = Host::new();
    host.sh(&format!("sed -i s/v1.36.4/v1.37.1/ {0}; touch -d 2020-06-01 {0}", program(executor)));
    host
}

#[test]
fn a_service_that_began_before_its_program_was_put_there_is_restarted_once() {
    for (executor, unit) in REPLACING {
        let restart = format!("systemctl restart {unit}\n");
        // The program has an old mtime. The service is ready later than now, and began a minute ago, or never.
        let never =
            "rm began bin/stat; printf '#!/bin/sh\\necho 1000000000\\n' > bin/stat; chmod 755 bin/stat";
        for began in ["touch -d '1 minute ago' began", never] {
            let host = with_the_new_program(executor);
            host.sh(began);
            for restarts in [1, 0] {
                let ran = host.run(executor);
                assert!(ran.well && !ran.called.contains("curl"), "{executor}: {}{}", ran.errors, ran.called);
                assert_eq!(ran.called.matches(&restart).count(), restarts, "{executor}: {began}");
            }
        }
    }
}

/// The system may have refused the program until it had its label.
#[test]
fn a_service_that_failed_is_restarted_whenever_it_began() {
    for (executor, unit) in REPLACING {
        let host = with_the_new_program(executor);
        host.sh("touch -d '1 minute' began");
        for (state, restarts) in [("active\n", 0), ("failed\n", 1)] {
            host.put("state", state);
            let ran = host.run(executor);
            assert!(ran.well, "{executor}: {}", ran.errors);
            let restart = format!("systemctl restart {unit}\n");
            assert_eq!(ran.called.matches(&restart).count(), restarts, "{executor}: {state}");
        }
    }
}

#[test]
fn a_unit_that_names_another_program_is_left_alone() {
    for (executor, unit) in REPLACING {
        let (host, program) = (Host::new(), program(executor));
        host.sh("mkdir opt; cp usr/local/bin/* opt; cp -R usr before");
        let words = |runs: &str| {
            format!(
                "service {unit} runs {runs}, and this executor replaces /{program} only: have the unit run that\n"
            )
        };
        host.sh("echo \"$PWD/opt/k3s\" > runs");
        refuses(&host, executor, &words("/opt/k3s"));
        host.put("runs", "/bin/sh\n");
        refuses(&host, executor, &words("/bin/sh"));
        host.sh("diff -r usr before");
        // By another name it is the same.
        host.sh(&format!("ln -s ../{program} opt/link; echo \"$PWD/opt/link\" > runs"));
        let ran = host.run(executor);
        assert!(ran.well, "{executor}: {}", ran.errors);
        host.sh("opt/link | grep -q v1.37.1");
    }
}

#[test]
fn a_link_to_the_program_is_not_replaced() {
    for (executor, _) in REPLACING {
        let (host, program) = (Host::new(), program(executor));
        host.sh(&format!(
            "mkdir opt; mv {program} opt/there; ln -s ../../../opt/there {program}; cp -R usr before"
        ));
        let words = format!(
            "/{program} is a link to /opt/there, and this executor replaces no link: put the program there\n"
        );
        refuses(&host, executor, &words);
        host.sh("diff -r --no-dereference usr before");
    }
}
