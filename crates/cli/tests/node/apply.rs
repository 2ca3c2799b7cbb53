use super::*;

#[test]
fn brings_every_file_with_its_mode_and_the_gate_last() {
    let sandbox = Sandbox::delivered();
    let before: BTreeSet<String> = sandbox.snapshot().into_keys().collect();
    let ran = sandbox.run("apply", &[]).expect(0);
    assert!(ran.out.contains("11 of 21 steps done") && ran.out.contains("the gate is open"), "{}", ran.out);
    let after: BTreeSet<String> = sandbox.snapshot().into_keys().collect();
    let new_files: BTreeSet<String> =
        after.difference(&before).filter(|path| sandbox.path(path).is_file()).cloned().collect();
    let links = ["containerd", "kubelet", "nodestrap-kernel"]
        .map(|unit| format!("/etc/systemd/system/multi-user.target.wants/{unit}.service"));
    let mut expected: BTreeSet<String> = BROUGHT.iter().map(|(path, _)| (*path).to_owned()).collect();
    expected.extend(["/run/nodestrap/lock".to_owned(), "/run/nodestrap/stand-in-units.json".to_owned()]);
    let told = ["/run/nodestrap/report.json", "/run/nodestrap/success", "/var/lib/nodestrap/report.json"];
    expected.extend(told.map(str::to_owned));
    expected.insert("/var/lib/nodestrap/started.json".to_owned());
    expected.insert("/run/cluster-api/bootstrap-success.complete".to_owned());
    // The links of units lead out of the folder when they are not followed inside the root.
    let new_files: BTreeSet<String> = new_files.into_iter().filter(|path| !links.contains(path)).collect();
    assert_eq!(new_files, expected);
    for link in links {
        assert!(sandbox.path(&link).is_symlink(), "{link}");
    }
    for (path, mode) in BROUGHT {
        assert_eq!(sandbox.mode(path), mode, "{path}");
    }
    assert_eq!(sandbox.mode("/var/lib/nodestrap"), 0o700);
    let changed = |path: &str| sandbox.path(path).metadata().unwrap().modified().unwrap();
    for (path, _) in BROUGHT.iter().filter(|(path, _)| *path != GATE && *path != JOURNAL) {
        assert!(changed(path) <= changed(GATE), "{path} is younger than the gate");
    }
    sandbox.run("gate", &[]).expect(0);
}

#[test]
fn a_second_time_finds_nothing_to_do_and_touches_nothing() {
    let sandbox = Sandbox::applied();
    let before = sandbox.snapshot();
    let ran = sandbox.run("apply", &["--progress=plain"]).expect(0);
    assert_eq!(ran.out, "✓ nothing to do: this node is as planned\n");
    assert_eq!(sandbox.snapshot(), before);
}

#[test]
fn works_without_root() {
    let sandbox = Sandbox::for_nobody();
    sandbox.run_as_nobody("apply", &[]).expect(0);
    for (path, mode) in BROUGHT {
        assert_eq!(sandbox.mode(path), mode, "{path}");
    }
    let before = sandbox.snapshot();
    let again = sandbox.run_as_nobody("apply", &[]).expect(0).out;
    assert!(again.contains("nothing to do"), "{again}");
    assert_eq!(sandbox.snapshot(), before);
}

#[test]
fn takes_the_bundle_as_a_file_as_a_folder_or_from_where_a_delivery_puts_it() {
    let at_home = Sandbox::applied();
    let place = tempfile::tempdir().unwrap();
    let (file, folder) = (place.path().join("bundle.json"), place.path().join("folder"));
    std::fs::write(&file, bundle()).unwrap();
    let spec = example("minimal.yaml").display().to_string();
    nodestrap(["render", &spec, "--format=folder", "--out", &folder.display().to_string()]).expect(0);
    for named in [file, folder] {
        let sandbox = Sandbox::image();
        sandbox.run("apply", &["--bundle", &named.display().to_string()]).expect(0);
        sandbox.deliver(bundle());
        assert_eq!(sandbox.tree(), at_home.tree());
    }
}

#[test]
fn shows_progress_as_it_was_asked_to() {
    let run = |progress: &str| Sandbox::delivered().run("apply", &["--progress", progress]).expect(0);
    let plain = run("plain").err;
    assert!(plain.contains("commit-files: done\n") && plain.ends_with("node complete, the gate is open\n"), "{plain}");
    assert!(run("auto").err.contains("commit-files: done\n"), "lines where there is no terminal");
    let silent = run("none").err;
    assert_eq!(silent.lines().count(), 1, "{silent}");
    let json = run("json").err;
    // The remark about the stand-in comes first and is for people.
    let events: Vec<Value> = json.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect();
    assert_eq!(events[0]["kind"], "runOpened");
    assert!(events.iter().any(|event| event["kind"] == "runStarted"));
    assert_eq!(events[events.len() - 1]["kind"], "runFinished");
    assert_eq!(events[events.len() - 1]["outcome"], "done");
}

#[test]
fn reports_for_programs() {
    let sandbox = Sandbox::delivered();
    let report = sandbox.run("apply", &["-o", "json"]).expect(0).json();
    assert_eq!(report["outcome"], "done");
    assert_eq!(report["steps"].as_array().unwrap().len(), 21);
    assert_eq!(report["plan"], sandbox.run("plan", &["-o", "json"]).expect(0).json()["digest"]);
    let again = agree_but_for_time(&sandbox);
    assert_eq!(again["outcome"], "nothingToDo");
}

fn agree_but_for_time(sandbox: &Sandbox) -> Value {
    let json = sandbox.run("apply", &["-o", "json"]).expect(0).json();
    let yaml: Value = serde_saphyr::from_str(&sandbox.run("apply", &["-o", "yaml"]).expect(0).out).unwrap();
    assert_eq!(json["outcome"], yaml["outcome"]);
    json
}

#[test]
fn mends_what_somebody_changed() {
    let sandbox = Sandbox::applied();
    let whole = sandbox.tree();
    sandbox.write("/etc/kubernetes/kubelet.yaml", "edited");
    sandbox.chmod("/etc/kubernetes/bootstrap-kubelet.kubeconfig", 0o644);
    let plain = sandbox.run("apply", &["--progress=plain"]).expect(0).err;
    assert!(plain.contains("2 files, the first is /etc/kubernetes/bootstrap-kubelet.kubeconfig: mode 0644"), "{plain}");
    assert_eq!(sandbox.tree(), whole);
}

#[test]
fn restarts_what_may_have_read_the_files_that_it_mended() {
    let sandbox = Sandbox::applied();
    let restarts = |unit: &str| {
        let books: Value = serde_json::from_str(&text(sandbox.path("/run/nodestrap/stand-in-units.json"))).unwrap();
        books["units"][unit]["restarts"].as_u64().unwrap()
    };
    let before = (restarts("containerd.service"), restarts("kubelet.service"));
    sandbox.write("/etc/containerd/config.toml", "edited");
    sandbox.write("/etc/kubernetes/kubelet.yaml", "edited");
    sandbox.run("apply", &[]).expect(0);
    let after = (restarts("containerd.service"), restarts("kubelet.service"));
    assert!(after.0 > before.0 && after.1 > before.1, "restarts before {before:?}, after {after:?}");
}

#[test]
fn follows_a_new_bundle() {
    let sandbox = Sandbox::applied();
    sandbox.deliver(&other_bundle());
    let plain = sandbox.run("apply", &["--progress=plain"]).expect(0).err;
    assert!(plain.contains("close-gate: it was opened for bundle sha256:"), "{plain}");
    assert!(text(sandbox.path("/etc/kubernetes/bootstrap-kubelet.kubeconfig")).contains("10.0.0.20"));
    sandbox.run("gate", &[]).expect(0);
    assert!(sandbox.run("apply", &[]).expect(0).out.contains("nothing to do"));
}

#[test]
fn says_when_its_report_cannot_be_written() {
    let sandbox = Sandbox::delivered();
    let full = std::fs::OpenOptions::new().write(true).open("/dev/full").unwrap();
    let mut command = program(support::BINARY);
    command.args(sandbox.arguments("apply", &["--progress=none"])).stdout(full);
    let output = command.output().unwrap();
    assert_eq!(output.status.code(), Some(4));
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(said.contains("cannot write to standard output"), "{said}");
    sandbox.run("gate", &[]).expect(0);
}

#[test]
fn goes_on_after_a_damaged_journal() {
    for damage in [&b"garbage\n"[..], b"0000000000000000 {}\nx\n", b"\0\0\0\0"] {
        let sandbox = Sandbox::applied();
        let whole = sandbox.tree();
        let mut journal = std::fs::read(sandbox.path(JOURNAL)).unwrap();
        journal.splice(0..40, damage.iter().copied());
        sandbox.write(JOURNAL, journal);
        sandbox.run("status", &[]).expect(0);
        sandbox.run("apply", &[]).expect(0).says(&["the journal is damaged from line 1 on"]);
        assert_eq!(sandbox.tree(), whole);
        assert!(sandbox.run("apply", &[]).expect(0).out.contains("nothing to do"));
    }
}
