//! Bootstrap credentials are taken away once they have done their work, and a node does not miss them, whatever is killed
//! meanwhile.

mod support;

use std::path::Path;

use bundle::{BUNDLE_PATH, Bundle, SPENDING_UNIT};
use engine::RunOutcome;
use host::disk::{Disk, Kind};
use host::fake::{Crash, FakeDisk, Moment};
use host::units::UnitName;
use node::{KEPT_BUNDLES_FOLDER, KEPT_PLATFORM_PATH, Verdict};
use serde_json::json;
use support::{FakeNode, GATE, bundle, clock, expect_converged};

/// What is in the blocks, nobody but a kubelet wants to know.
const CERTIFICATE: &str = "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----\n";
const KEY: &str = "-----BEGIN EC PRIVATE KEY-----\nMAA=\n-----END EC PRIVATE KEY-----\n";

/// What a kubelet gets for a token, and writes beside it.
fn join(node: &FakeNode, bundle: &Bundle) {
    let server = &bundle.join.api_server;
    let kubeconfig = format!(
        "clusters:\n- cluster:\n    server: {server}\n  name: c\ncontexts:\n- context:\n    cluster: c\n    user: u\n  \
         name: x\ncurrent-context: x\nkind: Config\n"
    );
    write(&node.disk, &bundle.join.kubeconfig, &kubeconfig);
    write(&node.disk, &bundle.join.client_certificate, &(CERTIFICATE.to_owned() + KEY));
}

fn write(disk: &FakeDisk, path: &str, text: &str) {
    host::files::write_durable(&disk.uncounted(), Path::new(path), 0o600, text.as_bytes(), None).expect("written");
}

fn read(disk: &FakeDisk, path: &str) -> Option<String> {
    disk.read(Path::new(path), 1 << 22).expect("readable").map(|bytes| String::from_utf8_lossy(&bytes).into_owned())
}

/// A complete node that has joined, with the bundle in every place where a node may keep it.
fn joined(bundle: &Bundle) -> FakeNode {
    let node = FakeNode::new(bundle);
    expect_converged(&node.apply(bundle, 0).expect("runs"), "first");
    join(&node, bundle);
    write(&node.disk, &format!("{KEPT_BUNDLES_FOLDER}/{}.json", bundle.digest().hex()), &bundle.to_json());
    let said = json!({"value": "x", "source": "y"});
    let metadata = json!({"platform": said, "instanceId": said, "instanceType": said, "localIpv4": said, "region": said, "zone": said});
    let payload = json!({"source": "z", "text": bundle.to_json()});
    let record = json!({"holdsFor": {"machine": "k"}, "metadata": metadata, "payload": payload}).to_string();
    let digest = engine::Digest::of(record.as_bytes());
    write(&node.disk, KEPT_PLATFORM_PATH, &format!("{}\n{record}\n", digest.hex()));
    node
}

/// The token, as it stands in the kubeconfig.
fn token(bundle: &Bundle) -> String {
    let kubeconfig = bundle.file(&bundle.join.bootstrap_kubeconfig).expect("it is there").content.text().expect("text");
    let line = kubeconfig.lines().find(|line| line.contains("token:")).expect("it has a token");
    line.split_once("token:").expect("a value").1.trim().trim_matches('"').to_owned()
}

/// Files of ours that hold the token.
fn holders(disk: &FakeDisk, token: &str, folder: &str) -> Vec<String> {
    let mut found = Vec::new();
    for name in disk.list(Path::new(folder)).expect("listed") {
        let path = format!("{folder}/{name}");
        match disk.stat(Path::new(&path)).expect("stat").map(|stat| stat.kind) {
            Some(Kind::Folder) => found.extend(holders(disk, token, &path)),
            Some(Kind::File) if read(disk, &path).is_some_and(|text| text.contains(token)) => found.push(path),
            _ => {}
        }
    }
    found
}

fn all_holders(node: &FakeNode, token: &str) -> Vec<String> {
    ["/etc", "/var", "/run"].iter().flat_map(|folder| holders(&node.disk, token, folder)).collect()
}

fn own_bundle(node: &FakeNode) -> Bundle {
    Bundle::parse(read(&node.disk, BUNDLE_PATH).expect("it is there").as_bytes()).expect("it is whole")
}

fn spend(node: &FakeNode) {
    let spendable = node::find_spendable(&node.disk).expect("looked").expect("something is left");
    node::spend(&node.disk, &spendable).expect("spent");
}

#[track_caller]
fn assert_nothing_is_missed(node: &FakeNode, bundle: &Bundle) {
    let verified = node::verify(&node.host(), bundle, &clock()).expect("looked");
    assert!(verified.drift.is_empty(), "{:?}", verified.drift);
    assert_eq!(node.apply(bundle, 0).expect("runs").outcome, RunOutcome::NothingToDo);
    assert_eq!(
        node::vouch(&node.disk, node.host().machine.as_ref(), GATE).expect("looked"),
        Verdict::Open { remarks: Vec::new() }
    );
}

#[test]
fn what_is_spent_is_gone_from_every_copy_and_nobody_misses_it() {
    let bundle = bundle();
    let (node, token) = (joined(&bundle), token(&bundle));
    assert_eq!(all_holders(&node, &token).len(), 4, "the file, the bundle, a fetched one, the platform's");
    spend(&node);
    assert_eq!(all_holders(&node, &token), [""; 0]);
    let own = own_bundle(&node);
    assert_eq!((own.digest(), &own), (bundle.digest(), &bundle), "it is still the bundle that it was");
    assert!(node::find_spendable(&node.disk).expect("looked").is_none(), "nothing is left to do");
    for bundle in [&own, &bundle] {
        assert_nothing_is_missed(&node, bundle);
    }
    write(&node.disk, BUNDLE_PATH, &bundle.to_json());
    assert_nothing_is_missed(&node, &bundle);
    assert_eq!(all_holders(&node, &token), [""; 0]);
}

#[test]
fn a_kubelet_that_lost_its_certificate_needs_the_bundle_again() {
    let bundle = bundle();
    needs_the_bundle_again(|node| {
        host::files::remove_durable(&node.disk, bundle.join.client_certificate.as_path()).expect("removed");
    });
}

/// Kubelets do not sync it.
#[test]
fn a_kubelet_whose_certificate_is_not_whole_needs_the_bundle_again() {
    let path = bundle().join.client_certificate;
    for damaged in ["", "\0\0\0\0", CERTIFICATE, KEY, "-----BEGIN CERTIFICATE-----\nMA"] {
        needs_the_bundle_again(|node| write(&node.disk, &path, damaged));
    }
    needs_the_bundle_again(|node| {
        host::files::remove_durable(&node.disk, path.as_path()).expect("removed");
        let gone = "kubelet-client-2026-01-01-00-00-00.pem";
        node.disk.uncounted().symlink(gone, path.as_path()).expect("linked");
    });
}

/// It would look for what it joined with, whatever certificate it has.
#[test]
fn a_kubelet_that_lost_its_kubeconfig_needs_the_bundle_again() {
    let kubeconfig = bundle().join.kubeconfig;
    needs_the_bundle_again(|node| {
        host::files::remove_durable(&node.disk, kubeconfig.as_path()).expect("removed");
    });
    for damaged in ["", "\0\0\0\0", "kind: Config\n"] {
        needs_the_bundle_again(|node| write(&node.disk, &kubeconfig, damaged));
    }
}

fn needs_the_bundle_again(lose: impl Fn(&FakeNode)) {
    let bundle = bundle();
    let (node, token) = (joined(&bundle), token(&bundle));
    spend(&node);
    lose(&node);
    assert!(matches!(
        node::vouch(&node.disk, node.host().machine.as_ref(), GATE).expect("looked"),
        Verdict::TakenAway { .. }
    ));
    let RunOutcome::Failed { message, advice, .. } = node.apply(&own_bundle(&node), 0).expect("runs").outcome else {
        panic!("nobody can join with nothing");
    };
    assert!(message.contains("were spent when it joined"), "{message}");
    assert!(advice.is_some_and(|advice| advice.contains("deliver the bundle again")));
    assert!(!node.gate_is_open());
    expect_converged(&node.apply(&bundle, 0).expect("runs"), "delivered again");
    assert!(all_holders(&node, &token).contains(&bundle.join.bootstrap_kubeconfig.to_string()));
    host::files::remove_durable(&node.disk, bundle.join.client_certificate.as_path()).expect("removed");
    join(&node, &bundle);
    spend(&node);
    assert_eq!(all_holders(&node, &token), [""; 0]);
}

/// Of `apply --bundle` before the first token was spent, and of power cuts.
#[test]
fn a_token_is_gone_from_what_nobody_reads_any_more_or_nobody_can_read() {
    let first = bundle();
    let (node, second) = (joined(&first), with_another_token(&first));
    let tokens = [token(&first), token(&second)];
    expect_converged(&node.apply(&second, 0).expect("runs"), "another one");
    write(&node.disk, BUNDLE_PATH, &second.to_json());
    for (name, bundle) in [(".x.json.nodestrap-new", &first), ("torn.json", &second)] {
        let text = bundle.to_json();
        let end = text.rfind(&token(bundle)).expect("it is there") + token(bundle).len();
        write(&node.disk, &format!("{KEPT_BUNDLES_FOLDER}/{name}"), &text[..end]);
    }
    let kept = format!("{KEPT_BUNDLES_FOLDER}/{}.json", first.digest().hex());
    host::files::remove_durable(&node.disk, Path::new(&kept)).expect("removed");
    spend(&node);
    assert_eq!(tokens.each_ref().map(|token| all_holders(&node, token)), [Vec::<String>::new(), Vec::new()]);
    let platform = read(&node.disk, KEPT_PLATFORM_PATH).expect("what it said of the machine stays");
    assert!(platform.contains("instanceId"), "{platform}");
    assert_nothing_is_missed(&node, &second);

    let node = joined(&first);
    host::files::remove_durable(&node.disk, Path::new(BUNDLE_PATH)).expect("removed");
    let whole = read(&node.disk, KEPT_PLATFORM_PATH).expect("it is there");
    write(&node.disk, KEPT_PLATFORM_PATH, &whole[..whole.len() - 2]);
    spend(&node);
    assert_eq!(all_holders(&node, &tokens[0]), [""; 0]);
}

#[test]
fn a_bundle_that_cannot_be_looked_into_is_told_of() {
    let bundle = bundle();
    for make in [
        |disk: &dyn Disk| disk.symlink("elsewhere.json", Path::new(BUNDLE_PATH)).expect("linked"),
        |disk: &dyn Disk| disk.make_folder(Path::new(BUNDLE_PATH), 0o700).expect("made"),
    ] {
        let node = joined(&bundle);
        host::files::remove_durable(&node.disk, Path::new(BUNDLE_PATH)).expect("removed");
        make(&node.disk.uncounted());
        let spendable = node::find_spendable(&node.disk).expect("looked").expect("something is left");
        let spent = node::spend(&node.disk, &spendable).expect("spent");
        assert!(spent.unread.is_some_and(|what| what.starts_with(BUNDLE_PATH)));
    }
}

fn with_another_token(bundle: &Bundle) -> Bundle {
    let mut other = bundle.clone();
    let file = other.files.iter_mut().find(|file| file.path == bundle.join.bootstrap_kubeconfig).expect("it is there");
    let content = file.content.text().expect("text").replace(&token(bundle), "fedcba.fedcba9876543210");
    file.content = content.into();
    other
}

#[test]
fn other_credentials_are_written_to_a_node_that_spent_its_first() {
    let bundle = bundle();
    let node = joined(&bundle);
    spend(&node);
    let other = with_another_token(&bundle);
    let place = other.join.bootstrap_kubeconfig.clone();
    let content = other.file(&place).expect("it is there").content.text().expect("text").to_owned();
    write(&node.disk, BUNDLE_PATH, &other.to_json());
    // Not applied yet: what was spent is not what was delivered.
    assert!(node::find_spendable(&node.disk).expect("looked").is_none());
    expect_converged(&node.apply(&other, 0).expect("runs"), "another token");
    assert_eq!(read(&node.disk, &place), Some(content));
}

/// No kubelet is restarted for a token, and with its next start the unit might come too late.
#[test]
fn a_token_that_comes_to_a_node_that_has_joined_is_taken_away_without_a_restart_of_the_kubelet() {
    let bundle = bundle();
    let node = joined(&bundle);
    spend(&node);
    let unit = |name: &str| UnitName(name.to_owned());
    let before = (node.units.runs(&unit("kubelet.service")), node.units.runs(&unit(SPENDING_UNIT)));
    let other = with_another_token(&bundle);
    expect_converged(&node.apply(&other, 0).expect("runs"), "another token");
    let after = (node.units.runs(&unit("kubelet.service")), node.units.runs(&unit(SPENDING_UNIT)));
    assert_eq!(after, (before.0, before.1 + 1));
    assert_eq!(node.apply(&other, 0).expect("runs").outcome, RunOutcome::NothingToDo, "it is asked once");
}

#[test]
fn killed_at_any_instant_a_node_has_too_much_and_never_too_little() {
    let bundle = bundle();
    let token = token(&bundle);
    let start = joined(&bundle);
    let reference = start.after(Crash::ProcessKill, 0);
    let before = reference.disk.operations();
    spend(&reference);
    let effects = reference.disk.operations() - before;
    assert!(effects > 10, "{effects}");
    for at in 1..=effects {
        for (crash, moment) in [Crash::ProcessKill, Crash::PowerLoss]
            .into_iter()
            .flat_map(|crash| [Moment::Before, Moment::Midway, Moment::After].map(|moment| (crash, moment)))
        {
            let case = format!("{crash:?} {moment:?} effect {at}");
            // A copy of the machine.
            let node = start.after(Crash::ProcessKill, 0);
            let spendable = node::find_spendable(&node.disk).expect("looked").expect("something is left");
            node.disk.crash_point().crash_at(node.disk.operations() + at, moment);
            let _ = node::spend(&node.disk, &spendable);
            let wreck = node.after(crash, at);
            // Whichever copy is read next, the node stays complete.
            expect_converged(&wreck.apply(&own_bundle(&wreck), at).expect("runs"), &case);
            assert_eq!(
                node::vouch(&wreck.disk, wreck.host().machine.as_ref(), GATE).expect("looked"),
                Verdict::Open { remarks: Vec::new() },
                "{case}"
            );
            if node::find_spendable(&wreck.disk).expect("looked").is_some() {
                spend(&wreck);
            }
            assert_eq!(all_holders(&wreck, &token), [""; 0], "{case}");
            assert_nothing_is_missed(&wreck, &own_bundle(&wreck));
        }
    }
}
