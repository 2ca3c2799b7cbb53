use super::*;

fn refused(sandbox: &Sandbox, why: &[&str]) {
    let before = sandbox.snapshot();
    for command in ["plan", "apply"] {
        let ran = sandbox.run(command, &[]).expect(2);
        ran.says(why);
        // Where there is no bundle, there was no run.
        let said = if sandbox.exists(BUNDLE) { said_of_refusal(command) } else { "" };
        assert_eq!(ran.out, said, "{command}");
        if command == "plan" {
            assert_eq!(sandbox.snapshot(), before, "nothing was touched");
        }
    }
    // That it was refused is told to those who look from outside.
    let after = sandbox.without_story();
    let before = before.keys().filter(|path| after.contains_key(*path)).count();
    assert_eq!(after.len(), before, "nothing but the story was written");
}

#[test]
fn without_a_bundle_there_is_advice() {
    refused(
        &Sandbox::image(),
        &["there is no bundle at \"/etc/nodestrap/bundle.json\"", "nodestrap render", "--bundle"],
    );
    let sandbox = Sandbox::image();
    sandbox.run("apply", &["--bundle", "/nonexistent/bundle"]).expect(2).says(&["/nonexistent/bundle"]);
}

#[test]
fn a_truncated_bundle_is_refused() {
    for length in [0, 1, bundle().len() / 3, bundle().len() - 2] {
        let sandbox = Sandbox::image();
        sandbox.deliver(&bundle()[..length]);
        refused(&sandbox, &["cannot be used", "render it again"]);
    }
}

#[test]
fn a_bundle_with_a_flipped_bit_is_refused_wherever_it_is() {
    let sandbox = Sandbox::image();
    for position in (0..bundle().len() - 1).step_by(173) {
        let mut bytes = bundle().as_bytes().to_vec();
        bytes[position] ^= 1;
        sandbox.write(BUNDLE, bytes);
        sandbox.run("plan", &[]).expect(2).says(&["cannot be used"]);
    }
}

#[test]
fn something_else_than_a_bundle_is_refused() {
    for (content, why) in [
        (r#"{"apiVersion":"nodestrap.io/v1alpha1","kind":"Cluster"}"#, "kind 'Cluster', not 'Bundle'"),
        (r#"{"apiVersion":"nodestrap.io/v9","kind":"Bundle"}"#, "newer nodestrap"),
        ("#cloud-config\n", "line 1 column 1"),
    ] {
        let sandbox = Sandbox::image();
        sandbox.deliver(content);
        refused(&sandbox, &[why]);
    }
}

#[test]
fn a_folder_with_a_changed_or_missing_file_is_refused() {
    let place = tempfile::tempdir().unwrap();
    let folder = place.path().join("folder").display().to_string();
    let spec = example("minimal.yaml").display().to_string();
    nodestrap(["render", &spec, "--format=folder", "--out", &folder]).expect(0);
    let sandbox = Sandbox::image();
    let file = format!("{folder}/root/etc/kubernetes/kubelet.yaml");
    let whole = text(&file);
    std::fs::write(&file, format!("{whole}# edited\n")).unwrap();
    sandbox.run("apply", &["--bundle", &folder]).expect(2).says(&["kubelet.yaml"]);
    std::fs::remove_file(&file).unwrap();
    sandbox.run("apply", &["--bundle", &folder]).expect(2).says(&["kubelet.yaml"]);
    std::fs::remove_file(format!("{folder}/manifest.json")).unwrap();
    sandbox.run("apply", &["--bundle", &folder]).expect(2).says(&["manifest.json"]);
    assert!(!sandbox.exists(GATE));
}

#[test]
fn a_root_may_be_named_relatively_or_by_a_link() {
    let sandbox = Sandbox::delivered();
    let place = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink(sandbox.root(), place.path().join("link")).unwrap();
    for root in ["link", "./link/", "link/etc/.."] {
        let mut command = program(support::BINARY);
        command.current_dir(place.path()).args(["apply", "--root", root]);
        finish(command).expect(0).says(&["stand-in"]);
    }
    sandbox.run("gate", &[]).expect(0);
}

#[test]
fn a_root_that_is_not_there_is_named() {
    for command in ["plan", "apply", "status", "timeline", "gate"] {
        nodestrap([command, "--root", "/nonexistent/root"]).expect(2).says(&["/nonexistent/root"]);
    }
}
