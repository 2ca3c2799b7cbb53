//! `plan`, `apply`, `status`, `timeline` and `gate` on a folder that stands for a machine.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

mod support;

use std::collections::BTreeSet;

use serde_json::Value;
use support::{
    BUNDLE, GATE, JOURNAL, Ran, Sandbox, bundle, can_run, example, finish, golden, is_root, nodestrap, other_bundle,
    program, text,
};

/// Every file that an apply of the example brings, with its mode.
const BROUGHT: [(&str, u32); 9] = [
    ("/etc/containerd/config.toml", 0o644),
    ("/etc/kubernetes/bootstrap-kubelet.kubeconfig", 0o600),
    (GATE, 0o644),
    ("/etc/kubernetes/kubelet.yaml", 0o644),
    ("/etc/kubernetes/pki/ca.crt", 0o644),
    ("/etc/nodestrap/network.json", 0o644),
    ("/etc/systemd/system/kubelet.service", 0o644),
    ("/etc/systemd/system/nodestrap-network.service", 0o644),
    (JOURNAL, 0o600),
];

/// In YAML the same as in JSON.
fn agree(in_format: impl Fn(&str) -> Ran, code: i32) -> Value {
    let json = in_format("json").expect(code).json();
    let yaml: Value = serde_saphyr::from_str(&in_format("yaml").expect(code).out).unwrap();
    assert_eq!(json, yaml);
    json
}

mod plan {
    use super::*;

    #[test]
    fn is_the_same_on_every_machine() {
        let sandbox = Sandbox::delivered();
        golden("plan.txt", &sandbox.run("plan", &[]).expect(0).out);
        golden("plan.json", &sandbox.run("plan", &["-o", "json"]).expect(0).out);
        agree(|format| sandbox.run("plan", &["-o", format]), 0);
    }

    #[test]
    fn touches_nothing() {
        let sandbox = Sandbox::delivered();
        let before = sandbox.snapshot();
        let ran = sandbox.run("plan", &[]).expect(0);
        assert_eq!(ran.err, "");
        assert_eq!(sandbox.snapshot(), before);
        sandbox.run("apply", &[]).expect(0);
        let before = sandbox.snapshot();
        let again = sandbox.run("plan", &[]).expect(0).out;
        assert_eq!(sandbox.snapshot(), before);
        assert!(!again.contains("to do"), "{again}");
        assert_eq!(again.matches("already so").count(), 12);
    }

    #[test]
    fn touches_nothing_and_works_without_root() {
        let sandbox = Sandbox::for_nobody();
        let before = sandbox.snapshot();
        let ran = sandbox.run_as_nobody("plan", &[]).expect(0);
        assert_eq!(sandbox.snapshot(), before);
        assert_eq!(ran.out, Sandbox::delivered().run("plan", &[]).expect(0).out);
    }

    #[test]
    fn knows_no_boot_and_no_journal() {
        let sandbox = Sandbox::delivered();
        let digest = |sandbox: &Sandbox| sandbox.run("plan", &["-o", "json"]).expect(0).json()["digest"].clone();
        let before = digest(&sandbox);
        sandbox.run("apply", &[]).expect(0);
        sandbox.write("/run/nodestrap/boot_id", "00000000-0000-4000-8000-000000000002\n");
        assert_eq!(digest(&sandbox), before);
        sandbox.write("/etc/hostname", "node-2\n");
        assert_ne!(digest(&sandbox), before);
    }

    #[test]
    fn says_what_will_block_apply() {
        let sandbox = Sandbox::delivered();
        sandbox.remove("/usr/bin/kubelet");
        let ran = sandbox.run("plan", &[]).expect(0);
        assert!(ran.out.contains("blocked: ") && ran.out.contains("/usr/bin/kubelet"), "{}", ran.out);
    }
}

mod apply {
    use super::*;

    #[test]
    fn brings_every_file_with_its_mode_and_the_gate_last() {
        let sandbox = Sandbox::delivered();
        let before: BTreeSet<String> = sandbox.snapshot().into_keys().collect();
        let ran = sandbox.run("apply", &[]).expect(0);
        assert!(ran.out.contains("9 of 12 steps done") && ran.out.contains("the gate is open"), "{}", ran.out);
        let after: BTreeSet<String> = sandbox.snapshot().into_keys().collect();
        let new_files: BTreeSet<String> =
            after.difference(&before).filter(|path| sandbox.path(path).is_file()).cloned().collect();
        let links =
            ["containerd", "kubelet"].map(|unit| format!("/etc/systemd/system/multi-user.target.wants/{unit}.service"));
        let mut expected: BTreeSet<String> = BROUGHT.iter().map(|(path, _)| (*path).to_owned()).collect();
        expected.extend(["/run/nodestrap/lock".to_owned(), "/run/nodestrap/stand-in-units.json".to_owned()]);
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
        assert!(
            plain.contains("commit-files: done\n") && plain.ends_with("node complete, the gate is open\n"),
            "{plain}"
        );
        assert!(run("auto").err.contains("commit-files: done\n"), "lines where there is no terminal");
        let silent = run("none").err;
        assert_eq!(silent.lines().count(), 1, "{silent}");
        let json = run("json").err;
        // The remark about the stand-in comes first and is for people.
        let events: Vec<Value> = json.lines().skip(1).map(|line| serde_json::from_str(line).unwrap()).collect();
        assert_eq!(events[0]["kind"], "runStarted");
        assert_eq!(events[events.len() - 1]["kind"], "runFinished");
        assert_eq!(events[events.len() - 1]["outcome"], "done");
    }

    #[test]
    fn reports_for_programs() {
        let sandbox = Sandbox::delivered();
        let report = sandbox.run("apply", &["-o", "json"]).expect(0).json();
        assert_eq!(report["outcome"], "done");
        assert_eq!(report["steps"].as_array().unwrap().len(), 12);
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
        assert!(
            plain.contains("2 files, the first is /etc/kubernetes/bootstrap-kubelet.kubeconfig: mode 0644"),
            "{plain}"
        );
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
        assert!(plain.contains("close-gate: it was opened by plan sha256:"), "{plain}");
        assert!(text(sandbox.path("/etc/kubernetes/bootstrap-kubelet.kubeconfig")).contains("10.99.0.2"));
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
}

mod wrong_input {
    use super::*;

    fn refused(sandbox: &Sandbox, why: &[&str]) {
        let before = sandbox.snapshot();
        for command in ["plan", "apply"] {
            let ran = sandbox.run(command, &[]).expect(2);
            ran.says(why);
            assert_eq!(ran.out, "", "{command}");
        }
        assert_eq!(sandbox.snapshot(), before, "nothing was touched");
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
        assert!(!sandbox.exists(GATE) && !sandbox.exists(JOURNAL));
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
}

mod needs_a_person {
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
}

mod busy {
    use super::*;
    use rustix::fs::{FlockOperation, flock};

    #[test]
    fn only_one_apply_is_at_work_on_a_node() {
        let sandbox = Sandbox::applied();
        let lock = std::fs::File::open(sandbox.path("/run/nodestrap/lock")).unwrap();
        flock(&lock, FlockOperation::NonBlockingLockExclusive).unwrap();
        let before = sandbox.snapshot();
        let ran = sandbox.run("apply", &[]).expect(5);
        ran.says(&["another nodestrap is at work", "/run/nodestrap/lock"]);
        assert_eq!(ran.out, "");
        assert_eq!(sandbox.snapshot(), before);
        // Those who only look need not wait.
        for command in ["plan", "status", "timeline", "gate"] {
            sandbox.run(command, &[]).expect(0);
        }
        drop(lock);
        sandbox.run("apply", &[]).expect(0);
    }

    #[test]
    fn of_many_at_once_one_does_the_work_and_the_others_step_back() {
        let whole = Sandbox::applied().tree();
        let sandbox = Sandbox::delivered();
        let ran: Vec<Ran> = std::thread::scope(|scope| {
            let runs: Vec<_> = (0..6).map(|_| scope.spawn(|| sandbox.run("apply", &["--progress=none"]))).collect();
            runs.into_iter().map(|run| run.join().unwrap()).collect()
        });
        assert!(ran.iter().all(|ran| matches!(ran.code, Some(0 | 5))), "{ran:?}");
        assert_eq!(ran.iter().filter(|ran| ran.out.contains("node complete")).count(), 1, "{ran:?}");
        assert_eq!(sandbox.tree(), whole);
        let events = sandbox.run("timeline", &["-o", "json"]).expect(0).json();
        let runs = events.as_array().unwrap().iter().filter(|event| event["kind"] == "runStarted").count();
        assert_eq!(runs, 1);
    }
}

mod status {
    use super::*;

    /// Code, phase and summary, the same in every form.
    fn at(sandbox: &Sandbox, code: i32, phase: &str, words: &str) -> Value {
        let before = sandbox.snapshot();
        let json = agree(|format| sandbox.run("status", &["-o", format]), code);
        assert_eq!(json["phase"], phase);
        let summary = json["summary"].as_str().unwrap();
        assert!(summary.contains(words), "{summary}");
        let text = sandbox.run("status", &[]).expect(code).out;
        assert!(text.lines().next().unwrap().ends_with(summary), "{text}");
        let brief = sandbox.run("status", &["--brief"]).expect(code).out;
        assert_eq!(brief, format!("{summary}\n"));
        assert_eq!(sandbox.snapshot(), before, "status touches nothing");
        json
    }

    #[test]
    fn before_a_bundle_came() {
        let json = at(&Sandbox::image(), 2, "not-delivered", "no bundle was delivered");
        assert_eq!(json["blocked"]["by"], "bundle");
        assert!(json["blocked"]["advice"].as_str().unwrap().contains("nodestrap render"));
    }

    #[test]
    fn with_a_bundle_that_cannot_be_used() {
        let sandbox = Sandbox::image();
        sandbox.deliver("{}");
        let json = at(&sandbox, 2, "bundle-broken", "cannot be used");
        assert_eq!(json["blocked"]["by"], "bundle");
    }

    #[test]
    fn before_the_first_apply() {
        let json = at(&Sandbox::delivered(), 0, "not-started", "next: nodestrap apply");
        assert_eq!(json["gate"], "shut");
        assert_eq!(json["cluster"], "demo");
        assert_eq!(json["blocked"], Value::Null);
    }

    #[test]
    fn after_a_failure_with_its_class_as_exit_code() {
        let sandbox = Sandbox::delivered();
        sandbox.remove("/usr/bin/kubelet");
        sandbox.run("apply", &[]).expect(4);
        let json = at(&sandbox, 4, "failed", "stopped at check-programs; the gate is shut");
        let blocked = &json["blocked"];
        assert_eq!(blocked["by"], "check-programs");
        assert!(blocked["reason"].as_str().unwrap().contains("/usr/bin/kubelet"));
        assert!(blocked["advice"].as_str().unwrap().contains("put them into the image"));
        assert!(blocked["since"].as_str().unwrap().ends_with('Z'));
        let text = sandbox.run("status", &[]).expect(4).out;
        for word in ["blocked by", "check-programs", "what to do", "since"] {
            assert!(text.contains(word), "{text}");
        }
    }

    #[test]
    fn after_a_run_that_was_cut_off() {
        let sandbox = Sandbox::applied();
        let journal = text(sandbox.path(JOURNAL));
        let lines: Vec<&str> = journal.lines().collect();
        sandbox.write(JOURNAL, format!("{}\n{}", lines[..8].join("\n"), &lines[8][..20]));
        sandbox.remove(GATE);
        let json = at(&sandbox, 0, "unfinished", "the next apply resumes");
        assert_eq!(json["gate"], "shut");
        sandbox.run("apply", &[]).expect(0).says(&["the last run was cut off; resuming"]);
    }

    #[test]
    fn while_the_kubelet_joins_and_after() {
        let sandbox = Sandbox::applied();
        let json = at(&sandbox, 0, "joining", "is asking https://10.99.0.1:6443");
        assert_eq!((&json["gate"], &json["lastRun"]["outcome"]), (&Value::from("open"), &Value::from("done")));
        let bundle: Value = serde_json::from_str(bundle()).unwrap();
        sandbox.write(bundle["join"]["clientCertificate"].as_str().unwrap(), "a certificate");
        at(&sandbox, 0, "joined", "has joined https://10.99.0.1:6443");
    }

    #[test]
    fn with_a_damaged_gate() {
        let sandbox = Sandbox::applied();
        sandbox.write(GATE, "KUBELET_ARGS=\"--forged\"\n");
        let json = at(&sandbox, 0, "unfinished", "the next apply resumes");
        assert!(json["gate"].as_str().unwrap().starts_with("damaged"), "{json}");
    }

    #[test]
    fn tells_a_user_who_may_not_read_the_bundle_to_become_root() {
        let sandbox = Sandbox::applied();
        let ran = sandbox.run_as_nobody("status", &[]);
        assert!(ran.out.contains("run as root") && !ran.out.contains("render it again"), "{}", ran.out);
        assert_eq!(ran.code, Some(4));
    }

    #[test]
    fn tells_that_another_bundle_was_delivered_than_the_one_applied() {
        let sandbox = Sandbox::applied();
        sandbox.deliver(&other_bundle());
        let json = at(&sandbox, 0, "joining", "next: nodestrap apply");
        assert!(!json["summary"].as_str().unwrap().contains("10.99.0.2"), "the kubelet asks the old server");
    }

    #[test]
    fn with_a_damaged_journal() {
        let sandbox = Sandbox::applied();
        sandbox.write(JOURNAL, "garbage\n");
        at(&sandbox, 0, "joining", "");
    }
}

mod gate {
    use super::*;

    #[test]
    fn a_whole_gate_lets_the_kubelet_start() {
        let sandbox = Sandbox::applied();
        let before = sandbox.snapshot();
        let ran = sandbox.run("gate", &[]).expect(0);
        assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", ""));
        assert_eq!(sandbox.snapshot(), before);
    }

    #[test]
    fn an_absent_gate_keeps_it_back() {
        Sandbox::image().run("gate", &[]).expect(3).says(&[GATE, "is shut"]);
    }

    #[test]
    fn a_damaged_gate_is_taken_away_and_the_bootstrap_mends_it() {
        let whole = text(Sandbox::applied().path(GATE));
        let damages = [
            String::new(),
            whole[..whole.len() / 2].to_owned(),
            whole[..whole.len() - 1].to_owned(),
            whole.replace("NODESTRAP_GROUP=\"workers\"", "NODESTRAP_GROUP=\"others\""),
            format!("{whole}EXTRA=\"1\"\n"),
            "\0".repeat(whole.len()),
        ];
        for damaged in damages {
            let sandbox = Sandbox::applied();
            sandbox.write(GATE, &damaged);
            sandbox.run("gate", &[]).expect(3).says(&["was damaged", "is taken away"]);
            assert!(!sandbox.exists(GATE));
            sandbox.run("gate", &[]).expect(3).says(&["is shut"]);
            sandbox.run("apply", &[]).expect(0);
            assert_eq!(text(sandbox.path(GATE)), whole);
        }
    }

    #[test]
    fn apply_itself_mends_a_damaged_gate() {
        let sandbox = Sandbox::applied();
        let whole = sandbox.tree();
        sandbox.write(GATE, "");
        sandbox.run("apply", &[]).expect(0);
        assert_eq!(sandbox.tree(), whole);
    }
}

mod timeline {
    use super::*;

    #[test]
    fn without_a_journal_there_is_advice() {
        let ran = Sandbox::delivered().run("timeline", &[]).expect(2);
        ran.says(&["no journal yet", "nodestrap apply"]);
        assert_eq!(ran.out, "");
    }

    #[test]
    fn shows_every_step_of_every_run() {
        let sandbox = Sandbox::delivered();
        sandbox.remove("/usr/bin/kubelet");
        sandbox.run("apply", &[]).expect(4);
        sandbox.write("/usr/bin/kubelet", "");
        sandbox.run("apply", &[]).expect(0);
        let before = sandbox.snapshot();
        let drawn = sandbox.run("timeline", &[]).expect(0).out;
        for word in ["run 1 of 2", "run 2 of 2", "check-programs", "commit-files", "open-gate", "critical path"] {
            assert!(drawn.contains(word), "no {word:?}:\n{drawn}");
        }
        let events = agree(|format| sandbox.run("timeline", &["-o", format]), 0);
        let runs = events.as_array().unwrap().iter().filter(|event| event["kind"] == "runStarted").count();
        assert_eq!(runs, 2);
        assert_eq!(sandbox.snapshot(), before);
    }

    #[test]
    fn draws_a_picture() {
        let sandbox = Sandbox::applied();
        let place = tempfile::tempdir().unwrap();
        let file = place.path().join("timeline.svg");
        let ran = sandbox.run("timeline", &["--svg", &file.display().to_string()]).expect(0);
        assert_eq!(ran.out, "");
        let picture = text(&file);
        assert!(picture.trim_start().starts_with("<svg") || picture.starts_with("<?xml"), "{picture}");
        assert_well_formed(&picture);
        assert!(picture.contains("commit-files"));
        assert_eq!(sandbox.run("timeline", &["--svg", "-"]).expect(0).out, picture);
        sandbox.run("timeline", &["--svg", "/nonexistent/picture.svg"]).expect(4).says(&["/nonexistent/picture.svg"]);
    }

    /// Every element is closed in order, attributes are quoted, and no character that needs escaping stands alone.
    fn assert_well_formed(xml: &str) {
        let mut open: Vec<&str> = Vec::new();
        let mut rest = xml;
        while let Some(start) = rest.find('<') {
            check_text(&rest[..start]);
            let end = rest[start..].find('>').expect("a tag ends") + start;
            let tag = &rest[start + 1..end];
            rest = &rest[end + 1..];
            if tag.starts_with('?') || tag.starts_with('!') {
                continue;
            }
            assert_eq!(tag.matches('"').count() % 2, 0, "{tag}");
            if let Some(name) = tag.strip_prefix('/') {
                assert_eq!(open.pop(), Some(name), "{tag}");
            } else if !tag.ends_with('/') {
                open.push(tag.split_whitespace().next().unwrap());
            }
        }
        check_text(rest);
        assert!(open.is_empty(), "never closed: {open:?}");
    }

    fn check_text(text: &str) {
        for (at, _) in text.match_indices('&') {
            let entity = text[at..].split(';').next().unwrap();
            assert!(["&amp", "&lt", "&gt", "&quot", "&apos"].contains(&entity) || entity.starts_with("&#"), "{text}");
        }
        assert!(!text.contains('>'), "{text}");
    }
}
