//! What users add of their own: hooks, files, units, kernel parameters.

use std::path::Path;

use anyhow::Result;
use lab::{LabOptions, Node, WorkerSpec};

use crate::support::{GATE, PATIENCE, exists, lab, node, status, user_data};

/// Monotonic microseconds at which the unit's main process was started last.
fn started(node: &Node, unit: &str) -> u64 {
    let shown = node.run(&["systemctl", "show", "-P", "ExecMainStartTimestampMonotonic", unit]).expect("systemctl");
    shown.trim().parse().expect("a number")
}

/// A hook that must leave its mark, one that may fail, another one that wants the journal for its words, a program of the user's that both the hook and a unit need.
const GROUP: &str = r#"sysctls: {net.core.somaxconn: "1024"}
fileAssets:
  - path: /opt/mark
    mode: "0755"
    content: |
      #!/bin/sh
      echo "$1" >> /var/tmp/marks
hooks:
  - {name: early, slot: before-files, unit: 'ExecStart=/bin/sh -c "test ! -e /opt/mark"'}
  - {name: mark, slot: before-kubelet, unit: 'ExecStart=/opt/mark hook'}
  - {name: broken, slot: after-runtime, necessity: optional, unit: 'ExecStart=/bin/sh -c "echo nobody is here; exit 7"'}
  - name: journalled
    slot: after-runtime
    necessity: optional
    unit: |
      StandardOutput=journal
      ExecStart=/bin/sh -c "echo heard by the journal; exit 8"
  - {name: late, slot: after-kubelet, unit: 'ExecStart=/opt/mark late'}
units:
  - name: extra.service
    enabled: true
    content: |
      [Service]
      Type=oneshot
      RemainAfterExit=yes
      ExecStart=/opt/mark unit
      [Install]
      WantedBy=multi-user.target
  - {name: image-disabled.service, state: disabled}
  - {name: image-masked.service, state: masked}
"#;

/// Units of the image: one starts by a link that somebody enabled, the other by a link that belongs to the image.
const OF_THE_IMAGE: [(&str, &str, &str); 2] = [
    ("image-disabled.service", "etc/systemd/system/multi-user.target.wants", "disabled"),
    ("image-masked.service", "usr/lib/systemd/system/multi-user.target.wants", "masked"),
];

fn bake_units(root: &Path) -> Result<()> {
    for (unit, wants, _) in OF_THE_IMAGE {
        let text = "[Service]\nExecStart=/bin/sleep infinity\n[Install]\nWantedBy=multi-user.target\n";
        std::fs::write(root.join("usr/lib/systemd/system").join(unit), text)?;
        std::fs::create_dir_all(root.join(wants))?;
        std::os::unix::fs::symlink(format!("/usr/lib/systemd/system/{unit}"), root.join(wants).join(unit))?;
    }
    Ok(())
}

fn expect_idle(machine: &Node) {
    for (unit, _, state) in OF_THE_IMAGE {
        let asked = |word: &str| machine.exec(&["systemctl", word, unit]).expect("systemctl").stdout;
        assert_eq!(String::from_utf8_lossy(&asked("is-enabled")).trim(), state, "{unit}");
        assert_eq!(String::from_utf8_lossy(&asked("is-active")).trim(), "inactive", "{unit}");
    }
}

/// Nobody needs it: nodes of the lab reach everything directly.
const PROXY: &str = "proxy: {http: 'http://192.0.2.1:3128', credentials: {user: nodes, password: password-42}}\n";

fn expect_password_for_root_only(machine: &Node) {
    for unit in ["containerd.service", "kubelet.service"] {
        let pid = machine.run(&["systemctl", "show", "-P", "MainPID", unit]).expect("systemctl");
        let environment = machine.read_file(&format!("/proc/{}/environ", pid.trim())).expect("its environment");
        assert!(environment.contains("HTTPS_PROXY=http://nodes:password-42@192.0.2.1:3128\0"), "{unit}: {environment}");
        let shown = machine.run(&["systemctl", "show", "--all", unit]).expect("systemctl");
        assert!(!shown.contains("password-42"), "{shown}");
    }
    expect_unreadable_for_others(machine, "password-42");
}

fn expect_unreadable_for_others(machine: &Node, secret: &str) {
    let search = ["grep", "-rlsI", secret, "/run", "/var", "/etc", "/tmp"];
    let found = machine.exec(&[&AS_NOBODY[..], &search].concat()).expect("grep");
    assert_eq!(String::from_utf8_lossy(&found.stdout), "", "others can read {secret:?}");
}

const AS_NOBODY: [&str; 4] = ["setpriv", "--reuid=65534", "--regid=65534", "--clear-groups"];

#[test]
fn a_node_with_hooks_files_and_units_of_the_user_becomes_ready_and_stays_so() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let spec = WorkerSpec { cluster: PROXY.to_owned(), group: GROUP.to_owned(), ..WorkerSpec::of(&lab) };
    let machine = lab.add_node(node("n1", &user_data(&spec)).before_boot(bake_units)).expect("the node boots");
    lab.wait_node_ready("n1", PATIENCE).expect("Ready");
    expect_password_for_root_only(&machine);
    expect_idle(&machine);

    assert_eq!(machine.read_file("/var/tmp/marks").expect("the marks"), "unit\nhook\nlate\n");
    let kernel = machine.read_file("/etc/sysctl.d/91-nodestrap-user.conf").expect("kernel parameters");
    assert!(kernel.contains("net.core.somaxconn = 1024"), "{kernel}");
    // systemd forgets the times of a hook that is over; the marks above tell its place.
    let order = ["nodestrap-kernel", "containerd", "extra", "kubelet"];
    let times = order.map(|unit| started(&machine, &format!("{unit}.service")));
    assert!(times.is_sorted() && times[0] > 0, "{order:?} {times:?}");

    let output = status(&machine).expect("status runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(output.status.success(), "an optional hook is no failure: {text}");
    let log = "/run/nodestrap/hooks/nodestrap-hook-broken.service.log";
    for word in ["run-hook-broken", "optional hook \"broken\"", "status 7", log, "status 8"] {
        assert!(text.contains(word), "{word:?} is not in:\n{text}");
    }
    let kept = machine.read_file(log).expect("what it said");
    assert_eq!(kept, "nobody is here\n");
    let journal = machine.journal("nodestrap-hook-broken.service");
    assert!(journal.contains("nobody is here"), "{journal}");
    let mode = || machine.run(&["stat", "-c", "%a %U", "/run/nodestrap/hooks"]).expect("stat");
    assert_eq!(mode().trim(), "700 root");
    let timeline = machine.run(&["nodestrap", "timeline"]).expect("timeline");
    assert!(timeline.contains("! run-hook-broken: optional hook"), "{timeline}");

    // Nothing is run again, neither by a second apply nor by a reboot.
    let again = machine.run(&["nodestrap", "apply"]).expect("a rerun succeeds");
    assert!(again.contains("nothing to do"), "{again}");
    machine.reboot().expect("reboots");
    lab.wait_node_ready("n1", PATIENCE).expect("Ready again");
    machine
        .wait_until("the unit of the user runs at boot", PATIENCE, |node| {
            Ok(node.exec(&["systemctl", "is-active", "-q", "extra.service"])?.status.success())
        })
        .expect("extra.service");
    assert_eq!(machine.read_file("/var/tmp/marks").expect("the marks"), "unit\nhook\nlate\nunit\n");
    expect_idle(&machine);

    // Somebody runs a hook by hand, in a boot that has seen no apply.
    assert_eq!(mode().trim(), "700 root");
    machine.run(&["systemctl", "start", "nodestrap-hook-mark.service"]).expect("a hook by hand");
    assert!(machine.read_file("/var/tmp/marks").expect("the marks").ends_with("unit\nhook\n"));

    machine.run(&["nodestrap", "reset", "--yes"]).expect("reset");
    machine.reboot().expect("reboots");
    for (unit, _, _) in OF_THE_IMAGE {
        let runs = |node: &Node| Ok(node.exec(&["systemctl", "is-active", "-q", unit])?.status.success());
        machine.wait_until(&format!("{unit} runs as it did before"), PATIENCE, runs).expect("as before");
    }
}

/// What the hook below says; it stands so in no spec, unit or user data.
const WORD: &str = "word-42";

/// Every file that another user can read, and the line that systemd shows to everybody.
fn expect_for_root_only(machine: &Node) {
    let shown = ["systemctl", "show", "-P", "StatusText", "k8s-node-bootstrap.service"];
    let shown = machine.run(&shown).expect("systemctl");
    assert!(!shown.contains(WORD), "{shown}");
    expect_unreadable_for_others(machine, WORD);
    let report = machine.run(&[&AS_NOBODY[..], &["cat", "/run/nodestrap/report.json"]].concat()).expect("the report");
    assert!(
        report.contains("required hook \\\"disk\\\"") && report.contains("nodestrap-hook-disk.service.log"),
        "{report}"
    );
}

#[test]
fn a_required_hook_that_fails_keeps_the_gate_shut_until_it_is_mended() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let group = "hooks:\n  \
                 - {name: disk, slot: before-kubelet, unit: 'ExecStart=/bin/sh -c \"echo word-$$((6 * 7)); cat /var/tmp/disk\"'}\n";
    let spec = WorkerSpec { group: group.to_owned(), ..WorkerSpec::of(&lab) };
    let machine = lab.add_node(node("n1", &user_data(&spec))).expect("the node boots");
    // Twice, so that a retry is seen to change nothing.
    machine
        .wait_until("the bootstrap has failed twice", PATIENCE, |node| {
            Ok(node.journal("k8s-node-bootstrap.service").matches("stopped at run-hook-disk").count() >= 2)
        })
        .expect("the hook fails");
    assert!(!exists(&machine, GATE).expect("test"));
    assert!(!machine.exec(&["pgrep", "-x", "kubelet"]).expect("pgrep").status.success(), "the kubelet must not run");
    // While a run is under way the status tells of that one.
    let words = ["run-hook-disk", "required hook \"disk\"", WORD, "/var/tmp/disk", "optional"];
    let mut text = String::new();
    machine
        .wait_until("the status names the hook and what it said", PATIENCE, |node| {
            let output = status(node)?;
            text = String::from_utf8_lossy(&output.stdout).into_owned();
            Ok(output.status.code() == Some(4) && words.iter().all(|word| text.contains(word)))
        })
        .unwrap_or_else(|error| panic!("{error:#}: {text}"));
    let nodes = lab.kubectl(&["get", "nodes", "-o", "name"]).expect("nodes");
    assert_eq!(nodes.trim(), "", "nobody may have joined");
    expect_for_root_only(&machine);

    machine.run(&["sh", "-c", "echo sda > /var/tmp/disk"]).expect("mended");
    lab.wait_node_ready("n1", PATIENCE).expect("Ready without further help");
}
