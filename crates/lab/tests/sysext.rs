//! systemd-sysext on the root that passes for Flatcar's, driven by hand: what nodestrap relies on and what it has to guard against.
#![allow(clippy::disallowed_methods, reason = "tests drive real processes")]

use std::path::Path;
use std::process::Command;
use std::time::Duration;

use lab::{Lab, LabOptions, Node, NodeImage, NodeOptions, stand_in_for_flatcar, stdout_of};

const PATIENCE: Duration = Duration::from_secs(120);

/// With one program of its name, for systems of that level.
fn image(work: &Path, name: &str, level: &str) -> std::path::PathBuf {
    let folder = work.join(format!("{name}-{level}"));
    let release = folder.join("usr/lib/extension-release.d");
    std::fs::create_dir_all(&release).expect("a folder");
    std::fs::create_dir_all(folder.join("usr/bin")).expect("a folder");
    let text = format!("ID=flatcar\nSYSEXT_LEVEL={level}\n");
    std::fs::write(release.join(format!("extension-release.{name}")), text).expect("written");
    let program = folder.join("usr/bin").join(name);
    std::fs::copy("/bin/true", &program).expect("copied");
    let made = work.join(format!("{name}-{level}.raw"));
    let mut squashfs = Command::new("mksquashfs");
    stdout_of(squashfs.arg(&folder).arg(&made).args(["-all-root", "-noappend", "-quiet"])).expect("an image");
    made
}

/// Links the image as that extension and has it merged.
fn switch(node: &Node, name: &str, image: &Path) {
    let place = format!("/opt/extensions/{}", image.file_name().expect("a name").to_string_lossy());
    std::fs::create_dir_all(node.root().join("opt/extensions")).expect("a folder");
    std::fs::copy(image, node.root().join(place.trim_start_matches('/'))).expect("copied");
    let line = format!("mkdir -p /etc/extensions && ln -sfn {place} /etc/extensions/{name}.raw");
    node.run(&["sh", "-c", &line]).expect("linked");
    node.run(&["systemctl", "restart", "systemd-sysext.service"]).expect("it reports success, whatever it did");
}

fn has(node: &Node, program: &str) -> bool {
    node.exec(&["test", "-x", &format!("/usr/bin/{program}")]).expect("test runs").status.success()
}

#[test]
fn an_image_that_fits_is_merged_and_one_that_does_not_takes_the_other_away_and_reports_success() {
    if !lab::require() {
        return;
    }
    let lab = Lab::up(LabOptions::default()).expect("the lab comes up");
    let options = NodeOptions::named("n1").image(NodeImage::Flatcar).before_boot(stand_in_for_flatcar);
    let node = lab.add_node(options).expect("the node boots");
    node.wait_booted(PATIENCE).expect("no unit failed");
    let work = tempfile::tempdir().expect("temporary folder");

    assert!(!node.exec(&["touch", "/usr/bin/mine"]).expect("touch runs").status.success(), "/usr is read-only");
    assert!(has(&node, "containerd") && !has(&node, "kubelet"));

    switch(&node, "one", &image(work.path(), "one", "1.0"));
    node.run(&["one"]).expect("its program runs");
    assert!(!node.exec(&["touch", "/usr/bin/mine"]).expect("touch runs").status.success(), "and /usr still is");
    node.run(&["systemctl", "enable", "systemd-sysext.service"]).expect("as Flatcar has it");
    node.reboot().expect("boots again");
    node.wait_booted(PATIENCE).expect("no unit failed");
    assert!(has(&node, "one"), "it is merged at boot");

    switch(&node, "one", &image(work.path(), "one", "2.0"));
    assert!(!has(&node, "one"), "an image for another level is skipped, and the old one is gone");
    switch(&node, "one", &image(work.path(), "one", "1.0"));
    assert!(has(&node, "one"));
    node.run(&["systemctl", "stop", "systemd-sysext.service"]).expect("unmerged");
    assert!(!has(&node, "one") && has(&node, "containerd"), "only what was merged goes");
}
