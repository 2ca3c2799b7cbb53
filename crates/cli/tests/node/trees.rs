use super::*;
use crate::support::trees;

#[test]
fn programs_come_from_a_folder_are_verified_and_are_gone_after_a_reset() {
    let sandbox = Sandbox::image();
    let before = sandbox.without_story();
    let bundle = trees::deliver(&sandbox, "1.36.3");
    let delivered = sandbox.without_story();
    let plan = sandbox.run("plan", &[]).expect(0);
    for tree in &bundle.trees {
        let (digest, size) = (tree.artefact.digest.as_str(), tree.artefact.size.to_string());
        assert!(plan.out.contains(digest) && plan.out.contains(&size), "{}", plan.out);
    }
    assert_eq!(sandbox.without_story(), delivered, "a plan touches nothing");
    sandbox.run("apply", &["--progress=none"]).expect(0);
    for (tree, program) in bundle.trees.iter().zip(["bin/containerd", "kubelet"]) {
        let place = sandbox.path(&format!("/usr/local/bin/{}", tree.component));
        assert_eq!(place.read_link().unwrap().display().to_string(), format!("{}/{program}", tree.current()));
        let current = sandbox.path(&tree.current());
        assert_eq!(current.read_link().unwrap().display().to_string(), tree.name());
        assert!(text(current.join(program)).starts_with(match program {
            "kubelet" => "kubelet 1.36.3",
            _ => "a containerd",
        }));
        assert_eq!(sandbox.mode(&format!("{}/{program}", tree.folder())), 0o755);
    }
    sandbox.run("verify", &[]).expect(0);
    sandbox.run("gate", &[]).expect(0);
    let again = sandbox.run("apply", &["--progress=none"]).expect(0);
    assert!(again.out.contains("nothing to do"), "{}", again.out);
    let status = sandbox.run("status", &[]);
    assert!(status.out.contains("nobody signed"), "{}", status.out);
    sandbox.run("reset", &["--yes"]).expect(0);
    assert!(!sandbox.exists("/opt/nodestrap") && !sandbox.exists("/var/lib/nodestrap"));
    let mut left = sandbox.without_story();
    left.retain(|path, _| !path.starts_with("/srv") && !path.starts_with("/etc/nodestrap"));
    let mut wanted = before;
    wanted.retain(|path, _| !path.starts_with("/srv") && !path.starts_with("/etc/nodestrap"));
    assert_eq!(left, wanted, "as the image was");
}

#[test]
fn a_patch_version_up_and_back_leaves_one_version() {
    let sandbox = Sandbox::image();
    let versions = ["1.36.3", "1.36.4", "1.36.3"];
    for version in versions {
        let bundle = trees::deliver(&sandbox, version);
        sandbox.run("apply", &["--progress=none"]).expect(0);
        let kubelet = &bundle.trees[1];
        assert!(text(sandbox.path(&format!("{}/kubelet", kubelet.current()))).contains(version));
        let names: BTreeSet<String> = std::fs::read_dir(sandbox.path(&kubelet.home()))
            .unwrap()
            .map(|entry| entry.unwrap().file_name().into_string().unwrap())
            .collect();
        assert_eq!(names, BTreeSet::from(["current".to_owned(), kubelet.name(), format!("{}.json", kubelet.name())]));
        sandbox.run("verify", &[]).expect(0);
    }
}

#[test]
fn an_artefact_that_is_not_there_is_named_with_its_place_and_nothing_is_changed() {
    let sandbox = Sandbox::image();
    trees::deliver(&sandbox, "1.36.3");
    sandbox.remove("/srv/artefacts/kubelet-1.36.3");
    let ran = sandbox.run("apply", &["--progress=none"]);
    assert!(matches!(ran.code, Some(3 | 4)), "{ran:?}");
    ran.says(&["kubelet 1.36.3", "file:///srv/artefacts/kubelet-1.36.3"]);
    assert!(!sandbox.exists(GATE) && !sandbox.exists("/usr/local/bin/kubelet"));
}
