//! containerd gives back each setting with the value that was written.

use crate::support::{Report, cases, consumers};

const SETTINGS: &str = "root/etc/containerd/config.toml";

#[test]
fn containerd_knows_every_key_and_understands_every_value() {
    let Some(consumers) = consumers() else { return };
    let mut report = Report::default();
    for case in cases() {
        if case.file(SETTINGS).is_some() {
            report.add(&case.name, SETTINGS, consumers.check_containerd(&case.folder.join("root")));
        }
    }
    report.finish("containerd", 5);
}

#[test]
fn settings_that_containerd_would_ignore_are_refused() {
    let Some(consumers) = consumers() else { return };
    let judge = |text: &str| {
        let root = tempfile::tempdir().expect("temporary folder");
        let folder = root.path().join("etc/containerd");
        std::fs::create_dir_all(&folder).expect("making the folder");
        std::fs::write(folder.join("config.toml"), text).expect("writing the settings");
        consumers.check_containerd(root.path()).map_err(|error| format!("{error:#}"))
    };
    let right = "version = 3\n[plugins.\"io.containerd.cri.v1.runtime\".containerd]\ndefault_runtime_name = \"runc\"\n";
    let earlier = "version = 2\n[plugins.\"io.containerd.grpc.v1.cri\"]\nsandbox_image = \"pause:1\"\n\
        [plugins.\"io.containerd.grpc.v1.cri\".registry]\nconfig_path = \"/etc/certs\"\n\
        [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc]\nruntime_type = \"io.containerd.runc.v2\"\n\
        [plugins.\"io.containerd.grpc.v1.cri\".containerd.runtimes.runc.options]\nSystemdCgroup = true\n";
    judge(right).expect("settings of version 3");
    judge(earlier).expect("settings of version 2");
    for (wrong, expected) in [
        (right.replace("default_runtime_name", "default_runtime"), "Ignoring unknown key"),
        (right.replace("cri.v1.runtime", "cri.v1.runtimes"), "no plug-in"),
        (right.replace("version = 3", "version = 3\nstatedir = \"/x\""), "Ignoring unknown key"),
        (right.replace("\"runc\"", "5"), ""),
        (earlier.replace("sandbox_image", "sandbox_images"), ""),
    ] {
        let error = judge(&wrong).expect_err(&wrong);
        assert!(error.contains(expected), "{expected}: {error}");
    }
}
