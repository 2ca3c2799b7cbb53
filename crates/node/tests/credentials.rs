//! What the kubelet would take for its own: credentials of another cluster are set aside, those of this one follow the bundle.

mod support;

use std::path::Path;
use std::time::{Duration, SystemTime};

use bundle::{Bundle, SPENDING_UNIT};
use data_encoding::BASE64;
use engine::RunOutcome;
use host::disk::{Disk as _, Kind};
use host::fake::{Crash, Moment};
use host::units::UnitName;
use node::{Phase, ResetOptions, SAVED_FOLDER};
use pki::Authority;
use support::{FakeNode, bundle, clock, expect_converged, rich_bundle, surroundings};

const KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
const CURRENT: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";
const DATED: &str = "kubelet-client-2026-01-01-00-00-00.pem";
const SERVER: &str = "https://10.0.0.10:6443";

/// A certificate and its key, as far as anybody but a kubelet looks.
const PEM: &str = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n-----BEGIN EC PRIVATE KEY-----\nMAA=\n\
                   -----END EC PRIVATE KEY-----\n";

/// A year from the day before.
const STRANGER_MADE: u64 = 1_795_000_000;

fn stranger() -> String {
    let now = SystemTime::UNIX_EPOCH + Duration::from_secs(STRANGER_MADE);
    let day = Duration::from_secs(86_400);
    Authority::create("kubernetes", pki::Validity { start: now - day, lifetime: day * 365 })
        .expect("an authority")
        .certificate_pem()
        .to_owned()
}

/// The authority that the bundle's nodes join with.
fn own_authority(bundle: &Bundle) -> String {
    let file = bundle.file("/etc/kubernetes/pki/ca.crt").expect("the example has it");
    String::from_utf8(file.content.to_vec()).expect("text")
}

/// As a kubelet writes it.
fn kubeconfig(server: &str, authorities: &str) -> String {
    format!(
        "apiVersion: v1\nclusters:\n- cluster:\n    certificate-authority-data: {}\n    server: {server}\n  name: \
         default-cluster\ncontexts:\n- context:\n    cluster: default-cluster\n    namespace: default\n    user: \
         default-auth\n  name: default-context\ncurrent-context: default-context\nkind: Config\nusers:\n- name: \
         default-auth\n  user:\n    client-certificate: {CURRENT}\n    client-key: {CURRENT}\n",
        BASE64.encode(authorities.as_bytes())
    )
}

fn write(node: &FakeNode, path: &str, text: &str) {
    host::files::write_durable(&node.disk.uncounted(), Path::new(path), 0o600, text.as_bytes(), None).expect("written");
}

fn read(node: &FakeNode, path: &str) -> Option<String> {
    let bytes = node.disk.read(Path::new(path), 1 << 20).expect("readable");
    bytes.map(|bytes| String::from_utf8(bytes).expect("text"))
}

/// A kubelet joined here: its kubeconfig, a certificate by date, and the link to it.
fn join(node: &FakeNode, kubeconfig: &str) {
    write(node, KUBECONFIG, kubeconfig);
    write(node, &format!("/var/lib/kubelet/pki/{DATED}"), PEM);
    write(node, "/var/lib/kubelet/pki/kubelet.crt", "self-signed\n");
    node.disk.uncounted().symlink(DATED, Path::new(CURRENT)).expect("linked");
}

fn phase(node: &FakeNode, bundle: &Bundle) -> Phase {
    node::observe_status(&node.host(), Ok(bundle.clone().into())).expect("a status").0.phase
}

fn saved(node: &FakeNode) -> Vec<String> {
    node.disk.list(Path::new(SAVED_FOLDER)).expect("listed")
}

/// As some installers write it: the authority lies in a file that the bundle brings, too.
#[test]
fn credentials_that_name_their_authority_by_a_path_are_judged_before_that_file_is_replaced() {
    let bundle = rich_bundle();
    for order in 0..40 {
        let node = FakeNode::new(&bundle);
        let embedded = kubeconfig("https://old:6443", "");
        let named =
            embedded.replace("certificate-authority-data: ", "certificate-authority: /etc/kubernetes/pki/ca.crt");
        assert_ne!(named, embedded);
        write(&node, "/etc/kubernetes/pki/ca.crt", &stranger());
        join(&node, &named);
        expect_converged(&node.apply(&bundle, order).expect("runs"), "first");
        assert_eq!(read(&node, KUBECONFIG), None, "order {order}: it is of another cluster");
    }
}

/// The issuer has the same name as the cluster's authority, as with every cluster that kubeadm or nodestrap makes.
#[test]
fn credentials_of_a_former_life_are_set_aside_and_never_taken_for_joined() {
    let bundle = rich_bundle();
    let node = FakeNode::new(&bundle);
    let foreign = kubeconfig("https://old:6443", &stranger());
    join(&node, &foreign);
    let report = node.apply(&bundle, 0).expect("runs");
    expect_converged(&report, "first");
    let said = report.step("settle-credentials").and_then(|step| step.detail.clone()).unwrap_or_default();
    assert!(said.contains("of another cluster, https://old:6443") && said.contains(SAVED_FOLDER), "{said}");
    assert_eq!((read(&node, KUBECONFIG), phase(&node, &bundle)), (None, Phase::Joining));
    assert!(node.disk.stat(Path::new(CURRENT)).expect("readable").is_none());
    assert_eq!(node.disk.list(Path::new("/var/lib/kubelet/pki")).expect("listed"), ["kubelet.crt"]);
    let [folder] = saved(&node).try_into().expect("one folder");
    let kept = |path: &str| read(&node, &format!("{SAVED_FOLDER}/{folder}{path}"));
    assert_eq!(kept(KUBECONFIG).as_deref(), Some(foreign.as_str()));
    assert_eq!(kept(&format!("/var/lib/kubelet/pki/{DATED}")).as_deref(), Some(PEM));
    assert_eq!(node.apply(&bundle, 0).expect("runs").outcome, RunOutcome::NothingToDo);

    join(&node, &kubeconfig(SERVER, &own_authority(&bundle)));
    assert_eq!(phase(&node, &bundle), Phase::Joined);
    let clock = clock();
    let reset = node::reset(&node.host(), Some(&bundle), ResetOptions::default(), &surroundings(&clock, 0));
    let report = reset.expect("it runs").0.expect("a report");
    let told = report.step("tell-of-credentials").and_then(|step| step.detail.clone()).unwrap_or_default();
    assert!(told.contains(&folder), "{told}");
    assert_eq!(saved(&node), [folder]);
}

/// Of a node that was off for longer than its certificate was good for.
#[test]
fn a_certificate_that_has_ended_is_named() {
    let bundle = bundle();
    let node = FakeNode::new(&bundle);
    expect_converged(&node.apply(&bundle, 0).expect("runs"), "first");
    join(&node, &kubeconfig(SERVER, &own_authority(&bundle)));
    let key = PEM.split_once("-----END CERTIFICATE-----\n").expect("two blocks").1;
    write(&node, &format!("/var/lib/kubelet/pki/{DATED}"), &(stranger() + key));
    assert_eq!(phase(&node, &bundle), Phase::Joined);
    let ended = |seconds: u64| {
        node::find_ended_certificate(&node.disk, &bundle, engine::Timestamp(seconds * 1000)).expect("looked")
    };
    assert!(ended(STRANGER_MADE + 86_400 * 363).is_none());
    let blocked = ended(STRANGER_MADE + 86_400 * 365).expect("it has ended");
    assert_eq!(blocked.by, "join");
    assert!(
        blocked.reason.contains("wrong clock or expired") && blocked.reason.contains(CURRENT),
        "{}",
        blocked.reason
    );
}

#[test]
fn whoever_dies_while_setting_aside_loses_nothing_and_never_leaves_the_certificate_alone() {
    let bundle = bundle();
    let foreign = kubeconfig("https://old:6443", &stranger());
    let image = || {
        let node = FakeNode::new(&bundle);
        join(&node, &foreign);
        node
    };
    let effects = {
        let node = image();
        expect_converged(&node.apply(&bundle, 0).expect("runs"), "clean");
        node.disk.crash_point().log()
    };
    let touches = |effect: &String| [SAVED_FOLDER, "/var/lib/kubelet"].iter().any(|path| effect.contains(path));
    let (first, last) = (effects.iter().position(touches), effects.iter().rposition(touches));
    let (first, last) = (first.expect("set aside") as u64, last.expect("set aside") as u64);
    for at in first..=last + 2 {
        for crash in [Crash::ProcessKill, Crash::PowerLoss] {
            let node = image();
            node.disk.crash_point().crash_at(at, Moment::Before);
            let _ = node.apply(&bundle, 0);
            let node = node.after(crash, at);
            let case = format!("{crash:?} at {at}");
            if read(&node, KUBECONFIG).is_none() {
                assert!(node.disk.stat(Path::new(CURRENT)).expect("readable").is_none(), "{case}");
            }
            expect_converged(&node.apply(&bundle, 0).expect("runs"), &case);
            let [folder] = saved(&node).try_into().expect("one folder");
            let certificate = format!("{SAVED_FOLDER}/{folder}/var/lib/kubelet/pki/{DATED}");
            assert_eq!(read(&node, &certificate).as_deref(), Some(PEM), "{case}");
        }
    }
}

#[test]
fn a_renamed_api_server_and_a_rotated_authority_are_followed_and_the_node_stays() {
    let bundle = bundle();
    let (own, next) = (own_authority(&bundle), stranger());
    for before in [
        kubeconfig("https://renamed.example:6443", &own),
        kubeconfig(SERVER, &format!("{own}{next}")),
        kubeconfig("https://renamed.example:6443", &format!("{next}{own}")),
    ] {
        let node = FakeNode::new(&bundle);
        expect_converged(&node.apply(&bundle, 0).expect("runs"), "first");
        join(&node, &before);
        assert_eq!(phase(&node, &bundle), Phase::Joined, "another address is no other cluster");
        let jobs = node.units.jobs().len();
        expect_converged(&node.apply(&bundle, 0).expect("runs"), "followed");
        assert_eq!(read(&node, KUBECONFIG), Some(kubeconfig(SERVER, &own)));
        assert_eq!(read(&node, CURRENT).as_deref(), Some(PEM), "nothing is destroyed");
        assert_eq!(
            node.units.jobs()[jobs..],
            ["kubelet.service", SPENDING_UNIT].map(|unit| UnitName(unit.to_owned())),
            "it reads it when it starts"
        );
        assert!(saved(&node).is_empty());
        assert_eq!(node.apply(&bundle, 0).expect("runs").outcome, RunOutcome::NothingToDo);
    }
}

/// The usual way round: the bundle begins to trust the next authority before anybody else does.
#[test]
fn a_bundle_that_trusts_the_next_authority_as_well_is_followed_and_the_node_stays() {
    let first = bundle();
    let (own, next) = (own_authority(&first), stranger());
    let both = format!("{own}{next}");
    let mut second = first.clone();
    for file in &mut second.files {
        if let Some(text) = file.content.text() {
            let embedded = [&own, &both].map(|pem| BASE64.encode(pem.as_bytes()));
            let text = text.replace(&own, &both).replace(&embedded[0], &embedded[1]);
            file.content = text.into();
        }
    }
    assert_ne!(first.digest(), second.digest());
    let node = FakeNode::new(&first);
    expect_converged(&node.apply(&first, 0).expect("runs"), "first");
    join(&node, &kubeconfig(SERVER, &own));
    assert_eq!(phase(&node, &second), Phase::Joined);
    expect_converged(&node.apply(&second, 0).expect("runs"), "followed");
    assert_eq!(read(&node, KUBECONFIG), Some(kubeconfig(SERVER, &both)));
    assert_eq!(read(&node, CURRENT).as_deref(), Some(PEM), "nothing is destroyed");
    assert_eq!(phase(&node, &second), Phase::Joined);
    assert_eq!(node.apply(&second, 0).expect("runs").outcome, RunOutcome::NothingToDo);
}

/// Kubeconfigs that lead nowhere: a kubelet takes each of them for none, and joins with its token, unless it finds a
/// certificate.
const SAYING_NOTHING: [Option<&str>; 4] = [None, Some(""), Some("\0\0\0\0"), Some("apiVersion: v1\nkind: Config\n")];

/// What a kubelet has, with a kubeconfig that says nothing or without any.
fn join_without_saying_where(node: &FakeNode, text: Option<&str>) {
    join(node, text.unwrap_or_default());
    if text.is_none() {
        host::files::remove_durable(&node.disk.uncounted(), Path::new(KUBECONFIG)).expect("removed");
    }
}

#[test]
fn a_certificate_that_nobody_vouches_for_is_set_aside_on_a_machine_that_never_was_a_node() {
    let bundle = rich_bundle();
    for text in SAYING_NOTHING {
        let node = FakeNode::new(&bundle);
        join_without_saying_where(&node, text);
        assert_eq!(phase(&node, &bundle), Phase::NotStarted, "{text:?}");
        let report = node.apply(&bundle, 0).expect("runs");
        expect_converged(&report, "first");
        let said = report.step("settle-credentials").and_then(|step| step.detail.clone()).unwrap_or_default();
        assert!(said.contains(DATED) && said.contains("of a former life") && said.contains(SAVED_FOLDER), "{said}");
        assert_eq!(phase(&node, &bundle), Phase::Joining, "{text:?}");
        assert_eq!(node.disk.list(Path::new("/var/lib/kubelet/pki")).expect("listed"), ["kubelet.crt"], "{text:?}");
        let [folder] = saved(&node).try_into().expect("one folder");
        let certificate = format!("{SAVED_FOLDER}/{folder}/var/lib/kubelet/pki/{DATED}");
        assert_eq!(read(&node, &certificate).as_deref(), Some(PEM));
        assert_eq!(node.apply(&bundle, 0).expect("runs").outcome, RunOutcome::NothingToDo);
    }
}

#[test]
fn whoever_dies_while_setting_a_lone_certificate_aside_finishes_it_in_the_same_folder() {
    let bundle = bundle();
    let image = || {
        let node = FakeNode::new(&bundle);
        join_without_saying_where(&node, None);
        // As kubelets of long ago called theirs.
        write(&node, "/var/lib/kubelet/pki/kubelet-client.key", "an older key\n");
        node
    };
    let effects = {
        let node = image();
        expect_converged(&node.apply(&bundle, 0).expect("runs"), "clean");
        node.disk.crash_point().log()
    };
    let touches = |effect: &String| [SAVED_FOLDER, "/var/lib/kubelet"].iter().any(|path| effect.contains(path));
    let (first, last) = (effects.iter().position(touches), effects.iter().rposition(touches));
    let (first, last) = (first.expect("set aside") as u64, last.expect("set aside") as u64);
    for at in first..=last + 2 {
        for crash in [Crash::ProcessKill, Crash::PowerLoss] {
            let node = image();
            node.disk.crash_point().crash_at(at, Moment::Before);
            let _ = node.apply(&bundle, 0);
            let node = node.after(crash, at);
            let case = format!("{crash:?} at {at}");
            expect_converged(&node.apply(&bundle, 0).expect("runs"), &case);
            assert_eq!(node.disk.list(Path::new("/var/lib/kubelet/pki")).expect("listed"), ["kubelet.crt"], "{case}");
            let [folder] = saved(&node).try_into().expect("one folder");
            for (name, content) in [(DATED, PEM), ("kubelet-client.key", "an older key\n")] {
                let copy = format!("{SAVED_FOLDER}/{folder}/var/lib/kubelet/pki/{name}");
                assert_eq!(read(&node, &copy).as_deref(), Some(content), "{case}");
            }
        }
    }
}

/// It may be the kubelet's own, whose kubeconfig a power cut took.
#[test]
fn what_does_not_say_whose_it_is_stays_on_a_node_that_was_complete_and_is_no_sign_of_having_joined() {
    let bundle = rich_bundle();
    for text in SAYING_NOTHING {
        let node = FakeNode::new(&bundle);
        expect_converged(&node.apply(&bundle, 0).expect("runs"), "complete");
        for record in [Some(""), None] {
            join_without_saying_where(&node, text);
            // Torn by the same power cut, it is still that of a node which was complete.
            if let Some(torn) = record {
                write(&node, "/var/lib/nodestrap/complete.json", torn);
            }
            expect_converged(&node.apply(&bundle, 0).expect("runs"), "again");
            assert_eq!((read(&node, KUBECONFIG).as_deref(), phase(&node, &bundle)), (text, Phase::Joining));
            let link = node.disk.stat(Path::new(CURRENT)).expect("readable").expect("there");
            assert!(matches!(link.kind, Kind::Link { .. }));
            host::files::remove_durable(&node.disk.uncounted(), Path::new(CURRENT)).expect("removed");
        }
        assert!(saved(&node).is_empty());
    }
}

/// Nobody can tell whose it is, and it may be this cluster's: the system may trust its authority.
#[test]
fn a_kubeconfig_that_names_a_server_and_no_authority_stays() {
    let bundle = bundle();
    let node = FakeNode::new(&bundle);
    let own = kubeconfig(SERVER, &own_authority(&bundle));
    let text: String = own.lines().filter(|line| !line.contains("authority")).map(|line| format!("{line}\n")).collect();
    join(&node, &text);
    expect_converged(&node.apply(&bundle, 0).expect("runs"), "first");
    assert_eq!(read(&node, KUBECONFIG), Some(text));
    assert_eq!(read(&node, CURRENT).as_deref(), Some(PEM));
}
