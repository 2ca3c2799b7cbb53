//! An image in a folder, judged by the bundle that its nodes will get.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

mod support;

use support::{example, nodestrap};

/// The example counts on a kubelet, containerd and CNI plug-ins.
fn image() -> (tempfile::TempDir, String, String) {
    let folder = tempfile::tempdir().unwrap();
    let bundle = folder.path().join("bundle.json");
    let root = folder.path().join("image");
    let text = |path: &std::path::Path| path.to_str().unwrap().to_owned();
    let (spec, bundle, root) = (text(&example("minimal.yaml")), text(&bundle), text(&root));
    nodestrap(["render", &spec, "--group", "workers", "--format", "bundle", "--out", &bundle]).expect(0);
    put(&root, "etc/os-release", "ID=debian\nVERSION_ID=12\n", 0o644);
    for program in ["usr/bin/mount", "usr/bin/umount", "usr/bin/kubelet", "usr/bin/containerd"] {
        put(&root, program, "#!/bin/sh\n", 0o755);
    }
    for plugin in ["bridge", "host-local", "loopback", "portmap"] {
        put(&root, &format!("opt/cni/bin/{plugin}"), "#!/bin/sh\n", 0o755);
    }
    put(&root, "usr/lib/systemd/system/containerd.service", "[Service]\nExecStart=/usr/bin/containerd\n", 0o644);
    (folder, bundle, root)
}

fn put(root: &str, path: &str, content: &str, mode: u32) {
    use std::os::unix::fs::PermissionsExt as _;
    let path = std::path::Path::new(root).join(path);
    std::fs::create_dir_all(path.parent().unwrap()).unwrap();
    std::fs::write(&path, content).unwrap();
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode)).unwrap();
}

fn findings(bundle: &str, root: &str, code: i32) -> Vec<(String, String)> {
    let ran = nodestrap(["verify-image", "--bundle", bundle, "--root", root, "-o", "json"]).expect(code);
    let text = |value: &serde_json::Value| value.as_str().unwrap().to_owned();
    let report = ran.json();
    report["findings"].as_array().unwrap().iter().map(|one| (text(&one["subject"]), text(&one["problem"]))).collect()
}

/// No shell is in this image, so nobody can ask its programs for their version, which is no finding.
#[test]
fn an_image_that_has_everything_is_fine_and_what_could_not_be_asked_is_a_note() {
    let (_folder, bundle, root) = image();
    let said = nodestrap(["verify-image", "--bundle", &bundle, "--root", &root]).expect(0).out;
    assert!(said.starts_with("✓ this image has what the bundle counts on"), "{said}");
    assert!(said.contains("note: /usr/bin/kubelet could not be asked for its version"), "{said}");
    assert!(said.contains("there is no k8s-node-bootstrap.service in this image"), "{said}");
}

#[test]
fn everything_that_is_missing_or_wrong_is_named_at_once() {
    let (_folder, bundle, root) = image();
    put(&root, "etc/os-release", "ID=flatcar\nVERSION_ID=4081.2.0\n", 0o644);
    put(&root, "usr/bin/kubelet", "#!/bin/sh\n", 0o644);
    put(&root, "usr/lib/systemd/system/k8s-node-bootstrap.service", "[Service]\nExecStart=/bin/true\n", 0o644);
    put(&root, "var/lib/nodestrap/complete.json", "{}", 0o600);
    for gone in
        ["usr/bin/containerd", "opt/cni/bin/bridge", "usr/bin/umount", "usr/lib/systemd/system/containerd.service"]
    {
        std::fs::remove_file(std::path::Path::new(&root).join(gone)).unwrap();
    }
    let found = findings(&bundle, &root, 4);
    let subjects: Vec<&str> = found.iter().map(|(subject, _)| subject.as_str()).collect();
    assert_eq!(
        subjects,
        [
            "os-release",
            "/usr/bin/kubelet",
            "/usr/bin/containerd",
            "/opt/cni/bin/bridge",
            "containerd.service",
            "umount",
            "k8s-node-bootstrap.service",
            "/var/lib/nodestrap/complete.json",
        ]
    );
    assert!(found[1].1.contains("is not executable (mode 0644)"), "{found:?}");
}

/// What a bundle installs on the node has needs of its own, and a node would refuse the image for them.
#[test]
fn what_packages_and_extensions_need_of_an_image_is_named() {
    let (folder, _, root) = image();
    let render = |spec: &str, group: &str| {
        let bundle = folder.path().join("other.json").to_str().unwrap().to_owned();
        let _ = std::fs::remove_file(&bundle);
        let spec = example(spec);
        nodestrap(["render", spec.to_str().unwrap(), "--group", group, "--format", "bundle", "--out", &bundle])
            .expect(0);
        bundle
    };
    for program in ["usr/bin/apt-get", "usr/bin/apt-mark", "usr/bin/dpkg"] {
        put(&root, program, "#!/bin/sh\n", 0o755);
    }
    let bundle = render("packages-debian.yaml", "workers");
    let said = nodestrap(["verify-image", "--bundle", &bundle, "--root", &root]).expect(0).out;
    assert!(!said.contains("iptables"), "it is about to be installed: {said}");
    let bundle = render("flatcar-sysext.yaml", "workers");
    put(&root, "etc/os-release", "ID=flatcar\nVERSION_ID=4081.2.0\nSYSEXT_LEVEL=0.9\n", 0o644);
    let found = findings(&bundle, &root, 4);
    let has = |subject: &str, words: &str| found.iter().any(|(of, problem)| of == subject && problem.contains(words));
    assert!(has("os-release", "does not fit this machine"), "{found:?}");
    assert!(has("systemd-sysext", "there is no systemd-sysext.service"), "{found:?}");
}
