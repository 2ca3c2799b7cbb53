//! For people who bake images: what is missing is known before the first machine boots.

use lab::{Lab, LabOptions, Node, NodeOptions, Patch, WorkerSpec};

use crate::support::{lab, nodestrap};

const GUIDE: &str = include_str!("../../../../docs/guide/baked-image.md");
const UNIT: &str = include_str!("../../../../dist/systemd/k8s-node-bootstrap.service");

/// The step of the guide, as it stands there.
fn step() -> &'static str {
    let (_, block) = GUIDE.split_once("```shell\n").expect("the guide has a step");
    block.split_once("```").expect("the block ends").0
}

/// A machine that is being made: packages are installed, nodestrap is not.
fn builder(lab: &Lab) -> Node {
    let machine = lab.add_node(NodeOptions::named("n1")).expect("the machine boots");
    let folder = machine.root().join("root/bake");
    std::fs::create_dir_all(&folder).expect("a folder");
    std::fs::copy(nodestrap(), folder.join("nodestrap")).expect("nodestrap");
    std::fs::write(folder.join("k8s-node-bootstrap.service"), UNIT).expect("its unit");
    std::fs::write(folder.join("step.sh"), step()).expect("the step");
    machine
}

/// Exit code and what was printed.
fn bake(lab: &Lab, machine: &Node) -> (Option<i32>, String) {
    let bundle = WorkerSpec::of(lab).render(&nodestrap(), &["--format", "bundle"]).expect("a bundle");
    std::fs::write(machine.root().join("root/bake/bundle.json"), bundle.bytes).expect("the bundle");
    let output = machine.exec(&["sh", "-c", "cd /root/bake && sh step.sh"]).expect("sh runs");
    assert!(!machine.root().join("root/bake/bundle.json").exists(), "no token stays in the image");
    (output.status.code(), String::from_utf8_lossy(&output.stdout).into_owned())
}

#[test]
fn an_image_is_judged_before_a_machine_boots_from_it() {
    let Some(lab) = lab(LabOptions::default()) else { return };
    let machine = builder(&lab);
    let (code, said) = bake(&lab, &machine);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.contains("✓ this image has what the bundle counts on"), "{said}");
    assert!(!said.contains("could not be asked"), "the real kubelet and containerd were asked: {said}");

    let release = lab.release(Patch::Earlier).expect("a release");
    let kubelet = release.into_iter().find(|file| file.component == "kubelet").expect("a kubelet of another version");
    // Never over the file: it is a link into the cache of all labs.
    machine.run(&["rm", "/usr/bin/kubelet", "/opt/cni/bin/bridge"]).expect("rm");
    std::fs::copy(kubelet.path, machine.root().join("usr/bin/kubelet")).expect("another kubelet");
    let (code, said) = bake(&lab, &machine);
    assert_eq!(code, Some(4), "{said}");
    let versions = format!(
        "is of version {}, wanted is {}",
        Patch::Earlier.kubernetes_version(),
        Patch::Newest.kubernetes_version()
    );
    for words in ["2 things are missing or wrong", &versions, "/opt/cni/bin/bridge  is not there"] {
        assert!(said.contains(words), "{words:?} is not in:\n{said}");
    }
}
