use super::*;

fn stopped(sandbox: &Sandbox, why: &[&str]) {
    let ran = sandbox.run("apply", &[]).expect(4);
    ran.says(why);
    assert!(ran.out.is_empty() || ran.out.contains("the gate is shut"), "{}", ran.out);
    assert!(!sandbox.exists(GATE));
}

#[test]
fn all_missing_programs_are_named_at_once_with_what_to_do() {
    let sandbox = Sandbox::delivered();
    let before = sandbox.tree();
    sandbox.remove("/usr/bin/kubelet");
    sandbox.remove("/opt/cni/bin/bridge");
    stopped(&sandbox, &["/usr/bin/kubelet", "/opt/cni/bin/bridge", "put them into the image", "kubelet.binary"]);
    assert!(!sandbox.exists("/etc/containerd/config.toml"), "nothing is switched in");
    for program in ["/usr/bin/kubelet", "/opt/cni/bin/bridge"] {
        sandbox.write(program, "");
        sandbox.chmod(program, 0o755);
    }
    sandbox.run("apply", &[]).expect(0);
    assert!(before.keys().all(|path| sandbox.exists(path)));
}

#[test]
fn what_is_in_the_way_is_named_and_left() {
    for (path, why) in [
        ("/etc/containerd/config.toml", "a folder is in the way"),
        ("/etc/kubernetes/kubelet.env", "/etc/kubernetes/kubelet.env"),
    ] {
        let sandbox = Sandbox::delivered();
        std::fs::create_dir_all(sandbox.path(path).join("precious")).unwrap();
        let ran = sandbox.run("apply", &[]).expect(4);
        ran.says(&[why, path]);
        assert!(sandbox.exists(&format!("{path}/precious")));
    }
    for (path, why) in
        [("/etc/kubernetes", "Not a directory"), ("/etc/cni/net.d", "must be a folder"), ("/var/lib/nodestrap", "")]
    {
        let sandbox = Sandbox::delivered();
        sandbox.write(path, "precious");
        stopped(&sandbox, &[why, path]);
        assert_eq!(text(sandbox.path(path)), "precious");
    }
    let sandbox = Sandbox::delivered();
    std::fs::create_dir(sandbox.path("/etc/containerd")).unwrap();
    std::os::unix::fs::symlink("/elsewhere", sandbox.path("/etc/containerd/config.toml")).unwrap();
    stopped(&sandbox, &["a link to \"/elsewhere\" is in the way"]);
}

#[test]
fn a_unit_that_the_image_lacks_or_masks_is_named() {
    let sandbox = Sandbox::delivered();
    sandbox.remove("/usr/lib/systemd/system/containerd.service");
    stopped(&sandbox, &["containerd.service", "the image must bring this unit"]);
    std::fs::create_dir_all(sandbox.path("/etc/systemd/system")).unwrap();
    std::os::unix::fs::symlink("/dev/null", sandbox.path("/etc/systemd/system/containerd.service")).unwrap();
    stopped(&sandbox, &["containerd.service", "unmask it"]);
}

#[test]
fn a_machine_without_an_identity_is_named() {
    let sandbox = Sandbox::delivered();
    sandbox.remove("/etc/hostname");
    stopped(&sandbox, &["the host name", "/etc/hostname"]);
    let sandbox = Sandbox::delivered();
    sandbox.remove("/etc/os-release");
    stopped(&sandbox, &["the operating system", "/etc/os-release"]);
    let sandbox = Sandbox::delivered();
    sandbox.write("/etc/machine-id", "xyz\n");
    stopped(&sandbox, &["/etc/machine-id"]);
}

#[test]
fn a_folder_of_somebody_else_is_refused() {
    if !is_root() {
        eprintln!("SKIPPED: only root can make a folder of somebody else");
        return;
    }
    let sandbox = Sandbox::image();
    sandbox.write(BUNDLE, bundle());
    let before = sandbox.snapshot();
    sandbox.run_as_nobody("plan", &[]).expect(0);
    sandbox.run_as_nobody("apply", &[]).expect(4).says(&["/run/nodestrap/lock", "Permission denied"]);
    assert_eq!(sandbox.snapshot(), before);
}

#[test]
fn a_read_only_file_system_is_refused() {
    if !is_root() || !can_run("unshare") {
        eprintln!("SKIPPED: only root can mount");
        return;
    }
    let sandbox = Sandbox::delivered();
    let before = sandbox.snapshot();
    let mut shell = program("unshare");
    let script = "mount --bind \"$1\" \"$1\" && mount -o remount,ro,bind \"$1\" && exec \"$0\" apply --root \"$1\"";
    shell.args(["--mount", "sh", "-c", script, support::BINARY]).arg(sandbox.root());
    finish(shell).expect(4).says(&["Read-only file system"]);
    assert_eq!(sandbox.snapshot(), before);
}

#[test]
fn a_bundle_for_another_system_is_refused_before_anything_is_written() {
    let sandbox = Sandbox::delivered();
    sandbox.write("/etc/os-release", "ID=flatcar\nVERSION_ID=4081.2.0\nPRETTY_NAME=\"Flatcar Container Linux\"\n");
    let shown = sandbox.run("plan", &[]).expect(4).out;
    assert!(shown.contains("blocked: the bundle is for debian, and this machine runs flatcar"), "{shown}");
    let before = sandbox.tree();
    stopped(&sandbox, &["check-bundle", "for debian", "runs flatcar", "os: flatcar"]);
    let mut after = sandbox.tree();
    after.retain(|path, _| before.contains_key(path) || !"/var/lib".starts_with(path.as_str()));
    assert_eq!(after, before, "nothing but the journal");
}
