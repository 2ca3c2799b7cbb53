//! Being told: status, timeline, report, sentinels, webhook, and plans that are held to their word.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

mod support;

use std::io::{BufRead as _, BufReader, Read as _, Write as _};
use std::net::TcpListener;
use std::os::unix::net::UnixDatagram;
use std::process::Stdio;
use std::sync::mpsc;
use std::thread::JoinHandle;

use support::{BINARY, Sandbox, bundle, example, finish, nodestrap, other_bundle, program, text};

const REPORT: &str = "/run/nodestrap/report.json";
const DURABLE_REPORT: &str = "/var/lib/nodestrap/report.json";
const SUCCESS: &str = "/run/nodestrap/success";
const FAILED: &str = "/run/nodestrap/failed";
const CLUSTER_API: &str = "/run/cluster-api/bootstrap-success.complete";

/// What a delivery by reference leaves on a node, for a store at this address.
fn stub(url: &str) -> String {
    let whole: serde_json::Value = serde_json::from_str(bundle()).unwrap();
    let value = serde_json::json!({
        "apiVersion": whole["apiVersion"], "kind": "BundleReference",
        "reference": { "cluster": "demo", "group": "workers", "digest": whole["digest"], "urls": [url] },
    });
    value.to_string()
}

/// Nobody listens there.
fn nowhere() -> String {
    let free = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap();
    format!("http://{free}/bundles")
}

/// Breaks the image so that `check-programs` fails; gives what was there.
fn break_image(sandbox: &Sandbox) {
    sandbox.remove("/usr/bin/kubelet");
}

#[test]
fn status_says_what_comes_next_and_where_each_fact_came_from() {
    let sandbox = Sandbox::delivered();
    let before = sandbox.run("status", &["--json"]).expect(0).json();
    assert_eq!(before["phase"], "not-started");
    assert!(before["next"].as_str().unwrap().contains("nodestrap apply"), "{before}");
    sandbox.run("apply", &[]).expect(0);
    let after = sandbox.run("status", &["--json"]).expect(0).json();
    assert_eq!(after, sandbox.run("status", &["-o", "json"]).expect(0).json());
    let facts = after["facts"].as_array().unwrap();
    let named = |name: &str| facts.iter().find(|fact| fact["name"] == name).unwrap_or_else(|| panic!("{name}"));
    assert_eq!(named("hostname")["value"], "node-1");
    assert_eq!(named("os")["source"], "os-release");
    assert!(facts.iter().all(|fact| !fact["source"].as_str().unwrap().is_empty()), "{facts:?}");
    let shown = sandbox.run("status", &[]).expect(0).out;
    assert!(shown.contains("decided from") && shown.contains("(os-release)"), "{shown}");
}

#[test]
fn a_failure_is_as_old_as_its_first_time_and_names_what_is_left() {
    let sandbox = Sandbox::delivered();
    break_image(&sandbox);
    sandbox.run("apply", &[]).expect(4);
    let first = sandbox.run("status", &["--json"]).expect(4).json();
    sandbox.run("apply", &[]).expect(4);
    let second = sandbox.run("status", &["--json"]).expect(4).json();
    assert_eq!(second["phase"], "failed");
    assert_eq!(first["blocked"]["since"], second["blocked"]["since"]);
    assert_eq!(second["blocked"]["by"], "check-programs");
    assert!(second["remaining"].as_array().unwrap().contains(&"open-gate".into()), "{second}");
    assert!(second["next"].as_str().unwrap().contains("tries again"), "{second}");
}

#[test]
fn a_bundle_that_cannot_be_fetched_is_in_journal_status_timeline_and_report() {
    let sandbox = Sandbox::image();
    sandbox.deliver(&stub(&nowhere()));
    let ran = sandbox.run("apply", &["--fetch-deadline=1"]).expect(3);
    ran.says(&["load-bundle", "no connection"]);
    let status = sandbox.run("status", &["--json"]).expect(3).json();
    assert_eq!((&status["phase"], &status["blocked"]["by"]), (&"not-fetched".into(), &"load-bundle".into()));
    let shown = sandbox.run("timeline", &[]).expect(0).out;
    assert!(shown.contains("failed after") && shown.contains("✗ load-bundle"), "{shown}");
    assert!(sandbox.run("timeline", &["--svg", "-"]).expect(0).out.contains("load-bundle"));
    let report: serde_json::Value = serde_json::from_str(&text(sandbox.path(REPORT))).unwrap();
    assert_eq!((&report["result"], &report["gateOpen"]), (&"failure".into(), &false.into()));
    assert_eq!(report["run"]["phases"][0]["error"]["class"], "transient");
    // The unit tries for ever; the journal does not grow for ever.
    let journal = text(sandbox.path(support::JOURNAL)).lines().count();
    sandbox.run("apply", &["--fetch-deadline=1"]).expect(3);
    let again = text(sandbox.path(support::JOURNAL)).lines().count();
    assert!(again <= journal * 2 + 2, "{journal} lines, then {again}");
    // Delivered after all.
    sandbox.deliver(bundle());
    sandbox.run("apply", &[]).expect(0);
    let shown = sandbox.run("timeline", &[]).expect(0).out;
    assert!(shown.contains("● load-bundle") && shown.contains("● gather-facts"), "{shown}");
}

#[test]
fn watching_ends_when_the_node_is_complete() {
    for (format, last) in [("json", "\"phase\":\"joining\""), ("text", "complete; the kubelet")] {
        let sandbox = Sandbox::image();
        let mut watch = program(BINARY);
        watch.args(sandbox.arguments("status", &["--watch", "-o", format])).stdout(Stdio::piped());
        let mut watching = watch.spawn().unwrap();
        let mut lines = BufReader::new(watching.stdout.take().unwrap()).lines();
        let first = lines.next().unwrap().unwrap();
        assert!(
            first.contains(if format == "json" { "\"not-delivered\"" } else { "no bundle was delivered" }),
            "{first}"
        );
        // Once it has said where the node is, every change wakes it.
        sandbox.deliver(bundle());
        sandbox.run("apply", &[]).expect(0);
        let rest: Vec<String> = lines.map(Result::unwrap).collect();
        assert!(rest.last().unwrap().contains(last), "{rest:#?}");
        assert_eq!(watching.wait().unwrap().code(), Some(0));
        if format == "json" {
            rest.iter().for_each(|line| drop(serde_json::from_str::<serde_json::Value>(line).unwrap()));
        }
    }
}

#[test]
fn sentinels_tell_how_the_last_run_went() {
    let sandbox = Sandbox::delivered();
    sandbox.run("apply", &[]).expect(0);
    assert_eq!(text(sandbox.path(CLUSTER_API)), "success");
    assert!(text(sandbox.path(SUCCESS)).contains("node-1 of demo/workers: complete"));
    assert!(!sandbox.exists(FAILED));
    assert_eq!(text(sandbox.path(REPORT)), text(sandbox.path(DURABLE_REPORT)));
    assert_eq!((sandbox.mode(REPORT), sandbox.mode(SUCCESS)), (0o644, 0o644));
    let report: serde_json::Value = serde_json::from_str(&text(sandbox.path(REPORT))).unwrap();
    assert_eq!((&report["kind"], &report["result"]), (&"NodeReport".into(), &"success".into()));
    assert_eq!(report["run"]["outcome"], "done");
    // A rerun that changes nothing leaves them alone, to the nanosecond.
    let before = sandbox.snapshot();
    sandbox.run("apply", &[]).expect(0);
    assert_eq!(sandbox.snapshot(), before);
    // Another bundle begins to change the node, and fails: nothing claims success.
    sandbox.deliver(&other_bundle());
    sandbox.remove("/usr/lib/systemd/system/containerd.service");
    sandbox.run("apply", &[]).expect(4);
    assert!(!sandbox.exists(SUCCESS) && !sandbox.exists(CLUSTER_API));
    assert!(text(sandbox.path(FAILED)).contains("FAILED at"), "{}", text(sandbox.path(FAILED)));
    // A gate that somebody took away, and a run that stops before its first change.
    let sandbox = Sandbox::applied();
    sandbox.remove(support::GATE);
    break_image(&sandbox);
    sandbox.run("apply", &[]).expect(4);
    assert!(!sandbox.exists(SUCCESS) && !sandbox.exists(CLUSTER_API) && sandbox.exists(FAILED));
    // After a reboot, which takes /run away, a run that finds nothing to do tells again.
    let sandbox = Sandbox::applied();
    std::fs::remove_dir_all(sandbox.path("/run")).unwrap();
    sandbox.run("apply", &[]).expect(0);
    assert!(sandbox.exists(SUCCESS) && sandbox.exists(CLUSTER_API) && sandbox.exists(REPORT));
}

/// Takes one request and gives its head and body.
fn webhook(answers: &'static str) -> (String, JoinHandle<(String, String)>) {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let heard = std::thread::spawn(move || {
        let mut stream = BufReader::new(listener.accept().unwrap().0);
        let (mut head, mut length) = (String::new(), 0);
        while !head.ends_with("\r\n\r\n") {
            let start = head.len();
            stream.read_line(&mut head).unwrap();
            let line = head[start..].to_lowercase();
            length = line.strip_prefix("content-length: ").map_or(length, |text| text.trim().parse().unwrap());
        }
        let mut body = vec![0; length];
        stream.read_exact(&mut body).unwrap();
        write!(stream.get_mut(), "HTTP/1.1 {answers}\r\nContent-Length: 0\r\n\r\n").unwrap();
        (head, String::from_utf8(body).unwrap())
    });
    (format!("http://{address}/hook"), heard)
}

fn bundle_with_webhook(url: &str) -> String {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("cluster.yaml");
    let report = format!("\n  report: {{webhook: \"{url}\", headers: {{Authorization: Bearer s3cret}}}}\n  join:");
    std::fs::write(&file, text(example("minimal.yaml")).replacen("\n  join:", &report, 1)).unwrap();
    nodestrap(["render", &file.display().to_string(), "--format=bundle"]).expect(0).out
}

#[test]
fn a_webhook_hears_of_success_and_of_failure() {
    for broken in [false, true] {
        let (url, heard) = webhook("204 No Content");
        let sandbox = Sandbox::image();
        sandbox.deliver(&bundle_with_webhook(&url));
        if broken {
            break_image(&sandbox);
        }
        let ran = sandbox.run("apply", &[]).expect(if broken { 4 } else { 0 });
        assert!(!ran.err.contains("not told"), "{}", ran.err);
        let (head, body) = heard.join().unwrap();
        assert!(head.contains("POST /hook") && head.to_lowercase().contains("authorization: bearer s3cret"), "{head}");
        let report: serde_json::Value = serde_json::from_str(&body).unwrap();
        assert_eq!(report["result"], if broken { "failure" } else { "success" });
        assert_eq!((&report["hostname"], &report["cluster"]), (&"node-1".into(), &"demo".into()));
        assert_eq!(body, text(sandbox.path(REPORT)));
    }
}

#[test]
fn a_webhook_that_refuses_fails_nothing() {
    let (url, heard) = webhook("403 Forbidden");
    let sandbox = Sandbox::image();
    sandbox.deliver(&bundle_with_webhook(&url));
    let ran = sandbox.run("apply", &[]).expect(0);
    heard.join().unwrap();
    ran.says(&["not told to the outside", "403"]);
    assert!(!ran.err.contains("s3cret") && !ran.err.contains("/hook"), "{}", ran.err);
}

#[test]
fn the_service_manager_hears_how_long_a_step_may_take() {
    let sandbox = Sandbox::delivered();
    let socket = sandbox.path("/notify");
    let manager = UnixDatagram::bind(&socket).unwrap();
    let (send, receive) = mpsc::channel();
    std::thread::spawn(move || {
        let mut buffer = [0; 4096];
        while let Ok(length) = manager.recv(&mut buffer) {
            if send.send(String::from_utf8_lossy(&buffer[..length]).into_owned()).is_err() {
                return;
            }
        }
    });
    let mut apply = program(BINARY);
    apply.args(sandbox.arguments("apply", &[])).env("NOTIFY_SOCKET", &socket);
    finish(apply).expect(0);
    let mut heard = Vec::new();
    while let Ok(message) = receive.recv_timeout(std::time::Duration::from_secs(20)) {
        let is_last = message.contains("READY=1");
        heard.push(message);
        if is_last {
            break;
        }
    }
    // A service has five minutes, and a margin.
    let containerd = heard.iter().find(|message| message.starts_with("STATUS=start-containerd: containerd")).unwrap();
    assert!(containerd.contains("\nEXTEND_TIMEOUT_USEC=360000000"), "{heard:#?}");
    assert!(heard.last().unwrap().contains("node complete"), "{heard:#?}");
}

#[test]
fn a_plan_that_is_blocked_is_no_success() {
    let sandbox = Sandbox::delivered();
    sandbox.run("plan", &[]).expect(0);
    break_image(&sandbox);
    let ran = sandbox.run("plan", &["-o", "json"]).expect(4);
    let blocked: Vec<_> = ran.json()["preview"].as_array().unwrap().clone();
    let blocked: Vec<_> = blocked.iter().filter(|step| step["state"] == "blocked").collect();
    assert_eq!((blocked.len(), &blocked[0]["step"]), (1, &"check-programs".into()));
}

#[test]
fn another_bundle_can_be_looked_at_before_it_is_delivered() {
    let sandbox = Sandbox::applied();
    let folder = tempfile::tempdir().unwrap();
    let spec = folder.path().join("cluster.yaml");
    std::fs::write(&spec, text(example("minimal.yaml")) + "spec: {kubelet: {config: {maxPods: 77}}}\n").unwrap();
    let other = folder.path().join("workers").display().to_string();
    nodestrap(["render", &spec.display().to_string(), "--format=folder", "--out", &other]).expect(0);
    let before = sandbox.snapshot();
    let ran = sandbox.run("plan", &["--against", &other]).expect(0);
    for wanted in ["maxPods", "77", "needs a restart of the kubelet", "commit-files", "to do: "] {
        assert!(ran.out.contains(wanted), "no {wanted:?} in\n{}", ran.out);
    }
    let json = sandbox.run("plan", &["--against", &other, "-o", "json"]).expect(0).json();
    assert_eq!(json["diff"]["consequence"], "restartKubelet");
    assert_ne!(json["from"], json["to"]);
    assert!(json["preview"].as_array().unwrap().iter().any(|step| step["state"] == "toDo"), "{json}");
    // The same bundle changes nothing; a spec and a file do as well as a folder.
    let here = sandbox.path(support::BUNDLE).display().to_string();
    let same = sandbox.run("plan", &["--against", &here]).expect(0).out;
    assert!(same.contains("nothing changes on the node") && !same.contains("to do: "), "{same}");
    let by_spec = sandbox.run("plan", &["--against", &spec.display().to_string()]).expect(0).out;
    assert_eq!(by_spec, ran.out);
    assert_eq!(sandbox.snapshot(), before);
}

#[test]
fn apply_does_the_plan_that_was_shown_or_nothing() {
    let sandbox = Sandbox::delivered();
    let plan = sandbox.run("plan", &["-o", "json"]).expect(0);
    let digest = plan.json()["digest"].as_str().unwrap().to_owned();
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), &plan.out).unwrap();
    let file = file.path().display().to_string();
    sandbox.deliver(&other_bundle());
    sandbox.write("/etc/hostname", "node-2\n");
    let tree = sandbox.tree();
    sandbox.run("apply", &["--plan", &file]).expect(2).says(&[
        "nothing was changed",
        "hostname was \"node-1\" and is \"node-2\"",
        "bundle was",
        "step commit-files differs",
    ]);
    sandbox.run("apply", &["--plan", &digest]).expect(2).says(&["nothing was changed", &digest, "node-2"]);
    sandbox.run("apply", &["--plan", "/nonexistent"]).expect(2).says(&["neither the digest"]);
    assert_eq!(sandbox.tree(), tree);
    assert!(!sandbox.exists(support::JOURNAL), "a refused run is no run");
    sandbox.deliver(bundle());
    sandbox.write("/etc/hostname", "node-1\n");
    sandbox.run("apply", &["--plan", &file]).expect(0);
    sandbox.run("apply", &["--plan", &digest]).expect(0);
    // A plan that somebody edited is no plan that anybody was shown.
    std::fs::write(&file, plan.out.replace("node-1", "node-3")).unwrap();
    sandbox.run("apply", &["--plan", &file]).expect(2).says(&["changed after it was printed"]);
}
