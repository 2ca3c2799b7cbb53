//! Container Linux in Tectonic's layout: the release of the cluster, an update of the system, an addon for each system that may boot, one
//! reboot, then the gate.
#![allow(clippy::disallowed_methods, reason = "the test reads nothing but what it made")]

mod support;

use std::path::Path;

use bundle::torcx::{Location, Package, PackageList, PackageVersion};
use bundle::{Bundle, OsUpdate, SeedFallback, Signatures, sha256_hex};
use cluster::Answer;
use engine::{ErrorClass, Report, RunOutcome};
use host::disk::Disk as _;
use host::fake::{Crash, Finds, Moment};
use host::machine::BootId;
use host::update_engine::{Operation, OsVersion};
use node::{Cleaned, FOLLOWED_PATH, GateState, ResetOptions, SessionError, clean_runtime_data};
use support::{FakeNode, GATE, STORY, clock, expect_converged, golden_bundle, surroundings};

const FIRST: &str = "2512.1.0";
const NEXT: &str = "2605.6.0";
const DATA: &str = "/var/lib/docker";
const MAPPINGS: &str = "kind: VersionManifestV1\nversions:\n  k8s:\n    1.9: {docker: ['18.06', '17.03']}\n";

/// Of Tectonic's time, with docker, whose data is cleaned away. Nobody has to have signed: what GnuPG signs is tried on booted nodes.
fn bundle() -> Bundle {
    let mut bundle = golden_bundle("tectonic-worker");
    addon(&mut bundle).signatures = Signatures::Unverified {};
    bundle.follow.as_mut().expect("it follows").os_update = OsUpdate::Attempt;
    bundle.validate().expect("it keeps the rules");
    bundle
}

fn addon(bundle: &mut Bundle) -> &mut bundle::FollowedAddon {
    bundle.follow.as_mut().and_then(|follow| follow.addon.as_mut()).expect("it has an addon")
}

fn archive(os: &str, version: &str) -> Vec<u8> {
    format!("docker {version} for {os}").into_bytes()
}

fn archive_place(os: &str, version: &str) -> String {
    format!("https://torcx.example.com/{os}/docker-{version}")
}

fn list_place(os: &str) -> String {
    format!("https://torcx.example.com/manifests/amd64-usr/{os}/torcx_manifest.json")
}

fn store(os: &str, version: &str) -> String {
    format!("/var/lib/torcx/store/{os}/docker:{version}.torcx.tgz")
}

/// Offers these versions to one release of the system.
fn publish(node: &FakeNode, os: &str, versions: &[&str]) {
    let offer = |version: &&str| PackageVersion {
        version: (*version).to_owned(),
        hash: format!("sha256-{}", sha256_hex(&archive(os, version))),
        size: None,
        locations: vec![Location { path: String::new(), url: archive_place(os, version) }],
    };
    let package = Package {
        name: "docker".to_owned(),
        default_version: "17.03".to_owned(),
        versions: versions.iter().map(offer).collect(),
    };
    node.shelf.put(&list_place(os), PackageList { packages: vec![package] }.to_json().into_bytes());
    for version in versions {
        node.shelf.put(&archive_place(os, version), archive(os, version));
    }
}

fn version(text: &str) -> OsVersion {
    OsVersion::try_from(text.to_owned()).expect("a version")
}

fn put(node: &FakeNode, path: &str, content: &[u8]) {
    host::files::write_durable(&node.disk.uncounted(), Path::new(path), 0o644, content, None).expect("written");
}

fn read(node: &FakeNode, path: &str) -> Option<String> {
    let bytes = node.disk.uncounted().read(Path::new(path), 1 << 20).expect("readable");
    bytes.map(|bytes| String::from_utf8(bytes).expect("a text"))
}

/// In its first boot, with both releases published, and a cluster of 1.9.7.
fn machine(bundle: &Bundle) -> FakeNode {
    let node = FakeNode::new(bundle);
    put(&node, "/usr/lib/systemd/system/docker.service", b"[Service]\nExecStart=/run/torcx/bin/dockerd\n");
    put(&node, "/usr/lib/systemd/system/locksmithd.service", b"[Service]\nExecStart=/usr/bin/locksmithd\n");
    publish(&node, FIRST, &["18.06", "17.03"]);
    publish(&node, NEXT, &["17.03", "18.06"]);
    answer(&node, "v1.9.7+coreos.1");
    node.engine.find(Finds::Version(version(NEXT)));
    boot(node, 1)
}

fn answer(node: &FakeNode, release: &str) {
    node.cluster.answer(Answer::Found(release.to_owned()), Answer::Found(MAPPINGS.to_owned()));
}

fn running_release(node: &FakeNode) -> String {
    let text = read(node, "/etc/os-release").expect("a system");
    let line = text.lines().find_map(|line| line.strip_prefix("VERSION_ID=")).expect("a version");
    line.to_owned()
}

/// As torcx's generator does: what the next profile names is applied if it is in the store of the system that runs.
fn boot(node: FakeNode, number: u32) -> FakeNode {
    put_volatile(&node, "/run/nodestrap/boot_id", &format!("00000000-0000-4000-8000-{number:012}\n"));
    let (os, profile) = (running_release(&node), read(&node, "/etc/torcx/next-profile"));
    let profile = profile.and_then(|name| read(&node, &format!("/etc/torcx/profiles/{}.json", name.trim())));
    let Some(profile) = profile else { return node };
    let parsed = bundle::torcx::Profile::parse(profile.as_bytes()).expect("a profile");
    let docker = bundle::torcx::AddonName::new("docker").expect("a name");
    let wanted = parsed.version_of(&docker).expect("docker is in it").to_owned();
    if read(&node, &store(&os, &wanted)) == Some(String::from_utf8(archive(&os, &wanted)).expect("a text")) {
        put_volatile(&node, "/run/torcx/profile.json", &profile);
        put_volatile(&node, "/run/metadata/torcx", "TORCX_UPPER_PROFILE=\"tectonic\"\n");
    }
    node
}

fn put_volatile(node: &FakeNode, path: &str, text: &str) {
    host::files::write_volatile(&node.disk.uncounted(), Path::new(path), 0o644, text.as_bytes()).expect("written");
}

fn reboot(node: &FakeNode, number: u32) -> FakeNode {
    boot(node.after(Crash::PowerLoss, u64::from(number)), number)
}

fn is_rebooting(report: &Report) -> bool {
    matches!(report.outcome, RunOutcome::Rebooting { .. })
}

fn failure(report: &Report) -> (&str, ErrorClass, &str) {
    match &report.outcome {
        RunOutcome::Failed { step, class, message, .. } => (step.as_str(), *class, message),
        other => panic!("{other:?}"),
    }
}

fn gate(node: &FakeNode) -> std::collections::BTreeMap<String, String> {
    match node::observe_gate(&node.disk, GATE).expect("readable") {
        GateState::Open { environment, .. } => environment,
        other => panic!("{other:?}"),
    }
}

/// To the end, however many boots that takes; gives the number of the last one.
fn converge(mut node: FakeNode, bundle: &Bundle, mut number: u32) -> (FakeNode, u32) {
    for round in 0..4 {
        let report = node.apply(bundle, round).expect("it runs");
        if !is_rebooting(&report) {
            expect_converged(&report, &format!("boot {number}"));
            return (node, number);
        }
        assert!(!node.gate_is_open(), "the gate is open before the last boot");
        number += 1;
        node = reboot(&node, number);
    }
    panic!("it reboots for ever");
}

#[test]
fn an_updated_system_gets_its_addon_by_one_reboot_and_the_kubelet_of_its_cluster() {
    let bundle = bundle();
    let node = machine(&bundle);
    let report = node.apply(&bundle, 0).expect("it runs");
    assert!(is_rebooting(&report), "{:?}", report.outcome);
    assert!(read(&node, GATE).is_none());
    for os in [FIRST, NEXT] {
        assert_eq!(read(&node, &store(os, "18.06")).expect("it is there").as_bytes(), archive(os, "18.06"));
    }
    let (node, boots) = converge(reboot(&node, 2), &bundle, 2);
    assert_eq!((boots, running_release(&node).as_str()), (2, NEXT));
    let gate = gate(&node);
    assert_eq!(gate["KUBELET_IMAGE_TAG"], "v1.9.7_coreos.1");
    assert_eq!(gate["KUBELET_IMAGE_URL"], "docker://quay.io/coreos/hyperkube");
    let questions = (node.cluster.questions(), node.shelf.asked().len());
    assert_eq!(node.apply(&bundle, 5).expect("it runs").outcome, RunOutcome::NothingToDo);
    node.disk.uncounted().remove(Path::new(GATE)).expect("somebody took it away");
    node.cluster.answer(Answer::Found("v1.9.9".to_owned()), Answer::NotThere);
    expect_converged(&node.apply(&bundle, 6).expect("it runs"), "mended");
    assert_eq!(self::gate(&node), gate, "nothing that the cluster says since is a change");
    assert_eq!((node.cluster.questions(), node.shelf.asked().len()), questions, "a complete node asks nobody");
}

#[test]
fn an_addon_that_runs_already_costs_no_reboot() {
    let bundle = bundle();
    let node = machine(&bundle);
    node.engine.find(Finds::Nothing);
    put(&node, &store(FIRST, "18.06"), &archive(FIRST, "18.06"));
    let images = r#"[{"name":"docker","reference":"18.06"}]"#;
    let profile = format!(r#"{{"kind":"profile-manifest-v0","value":{{"images":{images}}}}}"#);
    put(&node, "/etc/torcx/profiles/mine.json", profile.as_bytes());
    put(&node, "/etc/torcx/next-profile", b"mine\n");
    put(&node, &format!("{DATA}/image"), b"pulled before");
    let (node, boots) = converge(boot(node, 1), &bundle, 1);
    assert_eq!(boots, 1);
    assert_eq!(read(&node, &format!("{DATA}/image")).as_deref(), Some("pulled before"));
    assert_eq!(read(&node, "/etc/torcx/next-profile").as_deref(), Some("mine\n"), "whoever chose it keeps it");
}

#[test]
fn killed_or_without_power_anywhere_it_ends_the_same_and_no_gate_is_open_before_the_last_boot() {
    let bundle = bundle();
    // Without power after the update is staged, the machine is in the new system before anything was fetched for the old one.
    let old_store = format!("/var/lib/torcx/store/{FIRST}");
    let tree = |node: &FakeNode| node.disk.tree_digest(&[&STORY[..], &[&old_store]].concat());
    let wanted = tree(&converge(machine(&bundle), &bundle, 1).0);
    let clean = machine(&bundle);
    assert!(is_rebooting(&clean.apply(&bundle, 0).expect("it runs")));
    let effects = clean.disk.operations();
    for at in 1..=effects {
        for (crash, moment) in [
            (Crash::ProcessKill, Moment::After),
            (Crash::PowerLoss, Moment::Before),
            (Crash::PowerLoss, Moment::Midway),
        ] {
            let case = format!("{crash:?} {moment:?} at {at}");
            let node = machine(&bundle);
            node.disk.crash_point().crash_at(at, moment);
            let _ = node.apply(&bundle, at);
            assert!(read(&node, GATE).is_none(), "{case}");
            let node = match crash {
                Crash::ProcessKill => node.after(crash, at),
                Crash::PowerLoss => boot(node.after(crash, at), 2),
            };
            let (node, boots) = converge(node, &bundle, 2);
            assert!(boots <= 4, "{case}: {boots} boots");
            assert_eq!(running_release(&node), NEXT, "{case}");
            for folder in ["sha256", "staging"] {
                let left = node.disk.uncounted().list(Path::new(&format!("/var/lib/nodestrap/store/{folder}")));
                assert_eq!(left.expect("listed"), [""; 0], "{case}: left in the store");
            }
            assert_eq!(tree(&node), wanted, "{case}");
        }
    }
}

#[test]
fn a_seed_stands_in_for_a_cluster_that_is_silent_and_never_for_one_that_spoke_before_the_reboot() {
    let bundle = bundle();
    let down = || Answer::Unreachable { reason: "connection refused".to_owned() };
    let silent = machine(&bundle);
    silent.cluster.answer(down(), down());
    let (silent, _) = converge(silent, &bundle, 1);
    assert_eq!(gate(&silent)["KUBELET_IMAGE_TAG"], "v1.9.6_coreos.0", "that of the installer");

    let node = machine(&bundle);
    assert!(is_rebooting(&node.apply(&bundle, 0).expect("it runs")));
    node.cluster.answer(down(), down());
    let (node, _) = converge(reboot(&node, 2), &bundle, 2);
    assert_eq!(gate(&node)["KUBELET_IMAGE_TAG"], "v1.9.7_coreos.1");
    let release = |node: &FakeNode| read(node, FOLLOWED_PATH).expect("it is written down");
    assert!(
        release(&node).contains("the API server") && release(&silent).contains("installer"),
        "{}",
        release(&silent)
    );
}

#[test]
fn who_cannot_be_believed_or_is_not_known_stops_the_node_before_anything_changes() {
    let down = || Answer::Unreachable { reason: "connection refused".to_owned() };
    let found = |text: &str| Answer::Found(text.to_owned());
    let untrusted = || Answer::Untrusted { reason: "unknown issuer".to_owned() };
    type Asked = (Answer<String>, Answer<String>);
    let cases: [(Asked, SeedFallback, ErrorClass, &str); 6] = [
        ((untrusted(), found(MAPPINGS)), SeedFallback::Allowed, ErrorClass::NeedsOperator, "unknown issuer"),
        ((found("latest"), found(MAPPINGS)), SeedFallback::Allowed, ErrorClass::NeedsOperator, "no version"),
        ((found("v1.10.1"), found(MAPPINGS)), SeedFallback::Allowed, ErrorClass::NeedsOperator, "made for 1.9"),
        ((found("v1.9.7"), found("kind: Other")), SeedFallback::Allowed, ErrorClass::NeedsOperator, "\"Other\""),
        ((down(), down()), SeedFallback::Never, ErrorClass::Transient, "connection refused"),
        ((found("v1.9.7"), Answer::Refused { status: 403 }), SeedFallback::Never, ErrorClass::NeedsOperator, "403"),
    ];
    for ((release, mappings), fallback, class, words) in cases {
        let mut bundle = bundle();
        bundle.follow.as_mut().expect("it follows").release.seed_fallback = fallback;
        let node = machine(&bundle);
        node.cluster.answer(release, mappings);
        let touched = [&STORY[..], &["/var"]].concat();
        let before = node.disk.tree_digest(&touched);
        let error = match node.apply(&bundle, 0) {
            Err(error @ SessionError::Follow(_)) => (error.class(), error.to_string()),
            Ok(report) => (failure(&report).1, failure(&report).2.to_owned()),
            Err(other) => panic!("{other}"),
        };
        assert_eq!(error.0, class, "{words}: {}", error.1);
        assert!(error.1.contains(words), "{words}: {}", error.1);
        assert_eq!(node.disk.tree_digest(&touched), before, "{words}");
    }
}

#[test]
fn a_list_that_is_missing_unsigned_or_has_nothing_that_fits_is_named_and_one_that_is_away_is_asked_for_again() {
    let bundle = bundle();
    let node = machine(&bundle);
    node.shelf.forget(&list_place(NEXT));
    let report = node.apply(&bundle, 0).expect("it runs");
    let (step, class, message) = failure(&report);
    assert_eq!((step, class), ("resolve-versions", ErrorClass::NeedsOperator));
    assert!(message.contains(&list_place(NEXT)), "{message}");

    publish(&node, NEXT, &["1.12"]);
    let report = node.apply(&bundle, 0).expect("it runs");
    let (_, class, message) = failure(&report);
    assert_eq!(class, ErrorClass::NeedsOperator);
    assert!(message.contains(NEXT) && message.contains("18.06, 17.03") && message.contains("1.12"), "{message}");

    publish(&node, NEXT, &["18.06"]);
    node.shelf.put(&archive_place(NEXT, "18.06"), b"something else altogether".to_vec());
    let report = node.apply(&bundle, 0).expect("it runs");
    let (step, class, message) = failure(&report);
    assert_eq!((step, class), ("fetch-addon-docker", ErrorClass::Permanent), "{message}");
    assert!(message.contains("docker:18.06") && read(&node, "/etc/torcx/next-profile").is_none(), "{message}");

    publish(&node, NEXT, &["18.06"]);
    node.shelf.take_down(&list_place(FIRST));
    let signed = {
        let mut signed = golden_bundle("tectonic-worker");
        signed.follow.as_mut().expect("it follows").os_update = OsUpdate::Attempt;
        signed
    };
    let stranger = machine(&signed);
    for os in [FIRST, NEXT] {
        stranger.shelf.put(&format!("{}.asc", list_place(os)), b"-----BEGIN PGP SIGNATURE-----\n".to_vec());
    }
    let report = stranger.apply(&signed, 0).expect("it runs");
    let (step, class, message) = failure(&report);
    assert_eq!((step, class), ("resolve-versions", ErrorClass::NeedsOperator));
    assert!(message.contains("cannot be believed"), "{message}");
    assert!(read(&stranger, GATE).is_none() && read(&stranger, "/etc/torcx/next-profile").is_none());
}

#[test]
fn an_update_that_fails_is_no_reason_to_have_no_node_and_one_that_hangs_is_waited_for_again() {
    let bundle = bundle();
    let failed = machine(&bundle);
    failed.engine.find(Finds::Error(Operation::Downloading));
    let (failed, boots) = converge(failed, &bundle, 1);
    assert_eq!((boots, running_release(&failed).as_str()), (2, FIRST), "one reboot, for the addon");

    let hung = machine(&bundle);
    hung.engine.find(Finds::Hang(Operation::Downloading));
    let report = hung.apply(&bundle, 0).expect("it runs");
    let (step, class, message) = failure(&report);
    assert_eq!((step, class), ("update-system", ErrorClass::Transient), "{message}");
    assert!(message.contains("DOWNLOADING") && read(&hung, GATE).is_none(), "{message}");
    hung.engine.find(Finds::Version(version(NEXT)));
    assert_eq!(converge(hung, &bundle, 1).1, 2);

    let forgetful = machine(&bundle);
    let engine = forgetful.engine.clone();
    let _ = host::UpdateEngine::attempt_and_wait(&engine, std::time::Duration::from_secs(9), &mut |_| {});
    engine.restart();
    let report = forgetful.apply(&bundle, 0).expect("it runs");
    let (step, class, message) = failure(&report);
    assert_eq!((step, class), ("update-system", ErrorClass::NeedsOperator), "{message}");
    assert!(message.contains("not which"), "{message}");
}

#[test]
fn the_data_of_another_runtime_goes_early_in_the_next_boot_and_no_sooner() {
    let bundle = bundle();
    let node = machine(&bundle);
    put(&node, &format!("{DATA}/overlay2/layer"), b"of another docker");
    assert!(is_rebooting(&node.apply(&bundle, 0).expect("it runs")));
    let this_boot = BootId(read(&node, "/run/nodestrap/boot_id").expect("a boot").trim().to_owned());
    assert_eq!(clean_runtime_data(&node.disk, &this_boot).expect("looked at"), Cleaned::SameBoot);
    assert!(read(&node, &format!("{DATA}/overlay2/layer")).is_some(), "a reboot that was cancelled");

    let by_its_unit = reboot(&node, 2);
    let next_boot = BootId("00000000-0000-4000-8000-000000000002".to_owned());
    let done = clean_runtime_data(&by_its_unit.disk, &next_boot).expect("cleaned");
    assert_eq!(done, Cleaned::Done { folder: DATA.to_owned() });
    assert_eq!(by_its_unit.disk.list(Path::new("/var/lib")).expect("listed"), ["nodestrap", "torcx"]);
    assert_eq!(clean_runtime_data(&by_its_unit.disk, &next_boot).expect("looked at"), Cleaned::NothingToDo);
    converge(by_its_unit, &bundle, 2);

    let (before_the_gate, _) = converge(reboot(&node, 2), &bundle, 2);
    assert!(read(&before_the_gate, &format!("{DATA}/overlay2/layer")).is_none());

    let linked = reboot(&node, 2);
    linked.disk.uncounted().remove_tree(Path::new(DATA)).expect("gone");
    linked.disk.uncounted().symlink("/srv/elsewhere", Path::new(DATA)).expect("linked");
    let error = clean_runtime_data(&linked.disk, &next_boot).expect_err("refused");
    assert!(error.to_string().contains("is a link"), "{error}");
}

#[test]
fn the_data_folder_is_gone_or_whole_wherever_its_removal_is_cut_off() {
    let bundle = bundle();
    let node = machine(&bundle);
    for layer in 0..4 {
        put(&node, &format!("{DATA}/overlay2/{layer}"), b"of another docker");
    }
    assert!(is_rebooting(&node.apply(&bundle, 0).expect("it runs")));
    let next_boot = BootId("00000000-0000-4000-8000-000000000002".to_owned());
    let clean = reboot(&node, 2);
    let before = clean.disk.operations();
    clean_runtime_data(&clean.disk, &next_boot).expect("cleaned");
    for at in before + 1..=clean.disk.operations() {
        for (crash, moment) in [(Crash::ProcessKill, Moment::Before), (Crash::PowerLoss, Moment::Midway)] {
            let cut = reboot(&node, 2);
            cut.disk.crash_point().crash_at(at, moment);
            let _ = clean_runtime_data(&cut.disk, &next_boot);
            let left = cut.after(crash, at);
            let layers = left.disk.uncounted().list(Path::new("/var/lib/docker/overlay2")).expect("listed").len();
            assert!([0, 4].contains(&layers), "{layers} layers are left at {at} {moment:?}");
            clean_runtime_data(&left.disk, &next_boot).expect("cleaned");
            assert_eq!(left.disk.list(Path::new("/var/lib")).expect("listed"), ["nodestrap", "torcx"], "{at}");
        }
    }
}

#[test]
fn a_reset_gives_torcx_back_as_it_was() {
    let bundle = bundle();
    let image = machine(&bundle);
    put(&image, "/etc/torcx/next-profile", b"mine\n");
    put(&image, "/etc/torcx/profiles/mine.json", br#"{"kind":"profile-manifest-v0","value":{"images":[]}}"#);
    put(&image, "/var/lib/torcx/store/other:1.torcx.tgz", b"somebody's");
    let before = image.disk.tree_digest(&[&STORY[..], &["/etc/nodestrap", "/etc/os-release"]].concat());
    let (node, _) = converge(image, &bundle, 1);
    assert!(read(&node, "/etc/torcx/profiles/mine.json").expect("it is there").contains("18.06"));
    let (clock, options) = (clock(), ResetOptions { force: false, kubelet_state: false });
    let (report, _) = node::reset(&node.host(), Some(&bundle), options, &surroundings(&clock, 0)).expect("it runs");
    expect_converged(&report.expect("there was something"), "reset");
    assert_eq!(node.disk.tree_digest(&[&STORY[..], &["/etc/nodestrap", "/etc/os-release"]].concat()), before);
}

#[test]
fn what_is_no_longer_as_it_was_chosen_is_drift() {
    let bundle = bundle();
    let (node, _) = converge(machine(&bundle), &bundle, 1);
    let drift = |node: &FakeNode| {
        let verified = node::verify(&node.host(), &bundle, &clock()).expect("looked at");
        verified.drift.into_iter().map(|one| one.subject).collect::<Vec<_>>()
    };
    assert_eq!(drift(&node), [""; 0]);
    put(&node, &store(NEXT, "18.06"), b"torn");
    put(&node, "/etc/torcx/next-profile", b"vendor\n");
    assert_eq!(drift(&node), ["/etc/torcx/next-profile".to_owned(), store(NEXT, "18.06")]);
    expect_converged(&node.apply(&bundle, 1).expect("it runs"), "put back");
    assert_eq!(drift(&node), [""; 0]);
}

/// Which the pre-reboot hook asks, and whether it is ready for what boots next.
fn is_ready(node: &FakeNode, bundle: &Bundle) -> Result<(), node::NextBootRefused> {
    node::prepare_next_boot(&node.host(), bundle, &clock(), &|_| {}).map(drop)
}

fn stage_update(node: &FakeNode, os: &str) {
    node.engine.find(Finds::Version(version(os)));
    let _ = host::UpdateEngine::attempt_and_wait(&node.engine, std::time::Duration::from_secs(9), &mut |_| {});
}

fn runs_its_addon(node: &FakeNode) -> bool {
    read(node, "/run/metadata/torcx").is_some()
}

/// A store that has what it should have, or lacks or spoils a part of it.
fn publish_badly(node: &FakeNode, os: &str, how: u64) {
    publish(node, os, &["18.06", "17.03"]);
    match how % 6 {
        0 => node.shelf.forget(&list_place(os)),
        1 => node.shelf.take_down(&list_place(os)),
        2 => node.shelf.put(&list_place(os), b"{}".to_vec()),
        3 => node.shelf.put(&archive_place(os, "18.06"), b"something else".to_vec()),
        4 => publish(node, os, &["1.12"]),
        _ => node.shelf.take_down(&archive_place(os, "18.06")),
    }
}

#[test]
fn no_update_strands_a_node_whatever_its_store_lacks() {
    let bundle = bundle();
    let (mut node, mut number) = converge(machine(&bundle), &bundle, 1);
    let (mut refused, mut booted) = (0, 0);
    for round in 0..1000_u64 {
        let os = format!("{}.0.0", 3000 + round);
        // Without a pattern that the rounds could fall into.
        let dice = (round.wrapping_mul(6_364_136_223_846_793_005) >> 33) % 11;
        publish_badly(&node, &os, dice);
        if dice < 5 {
            node.shelf.bring_back();
            publish(&node, &os, &["18.06", "17.03"]);
        }
        stage_update(&node, &os);
        match is_ready(&node, &bundle) {
            Ok(()) => booted += 1,
            Err(error) => {
                refused += 1;
                let problems = error.problems();
                assert!(problems.iter().all(|problem| problem.artefact.contains("docker")), "{error}");
                // Nobody reboots it, but a loss of power does, into the system that it ran; or its store comes back.
                node.shelf.bring_back();
                publish(&node, &os, &["18.06", "17.03"]);
                is_ready(&node, &bundle).expect("everything is there now");
            }
        }
        number += 1;
        node = reboot(&node, number);
        assert_eq!(running_release(&node), os);
        assert!(runs_its_addon(&node), "round {round}: no runtime in {os}");
        let stores = node.disk.uncounted().list(Path::new("/var/lib/torcx/store")).expect("listed");
        assert!(stores.len() <= 3, "{stores:?}");
    }
    assert!(refused > 300 && booted > 300, "{refused} refused, {booted} booted");
    expect_converged(&node.apply(&bundle, 1).expect("it runs"), "at the end");
}

#[test]
fn an_update_that_is_taken_back_or_rolled_back_leaves_a_node_that_runs() {
    let bundle = bundle();
    let (node, number) = converge(machine(&bundle), &bundle, 1);
    // Only the update lacks what runs now.
    publish(&node, "4000.0.0", &["17.03"]);
    publish(&node, NEXT, &["18.06", "17.03"]);
    stage_update(&node, "4000.0.0");
    is_ready(&node, &bundle).expect("17.03 goes with the release, too");
    assert!(read(&node, "/etc/torcx/profiles/tectonic.json").expect("a profile").contains("17.03"));

    let updated = reboot(&node, number + 1);
    assert!(running_release(&updated) == "4000.0.0" && runs_its_addon(&updated));
    put(&updated, "/etc/os-release", format!("ID=coreos\nVERSION_ID={NEXT}\nCOREOS_BOARD=\"amd64-usr\"\n").as_bytes());
    let back = boot(updated.after(Crash::PowerLoss, 1), number + 2);
    assert!(runs_its_addon(&back), "17.03 was stored for the system that ran as well");

    node.engine.find(Finds::Nothing);
    let taken_back = FakeNode { engine: host::fake::FakeUpdateEngine::new(&node.disk, Finds::Nothing), ..node };
    is_ready(&taken_back, &bundle).expect("nothing is staged");
    assert!(read(&taken_back, "/etc/torcx/profiles/tectonic.json").expect("a profile").contains("18.06"));
    assert!(runs_its_addon(&reboot(&taken_back, number + 1)));
}

#[test]
fn stores_of_older_systems_go_only_while_another_one_is_staged() {
    let bundle = bundle();
    let (node, number) = converge(machine(&bundle), &bundle, 1);
    assert!(read(&node, &store(FIRST, "18.06")).is_some());
    is_ready(&node, &bundle).expect("nothing is staged");
    assert!(read(&node, &store(FIRST, "18.06")).is_some(), "the other partition can still be booted");
    publish(&node, "4000.0.0", &["18.06"]);
    stage_update(&node, "4000.0.0");
    is_ready(&node, &bundle).expect("it is published");
    assert!(read(&node, &store(FIRST, "18.06")).is_none(), "its partition has another system now");
    assert!(runs_its_addon(&reboot(&node, number + 1)));
}

#[test]
fn addons_of_others_in_the_same_profile_are_proved_too() {
    let bundle = bundle();
    let image = machine(&bundle);
    let images = r#"[{"name":"theirs","reference":"2"}]"#;
    let profile = format!(r#"{{"kind":"profile-manifest-v0","value":{{"images":{images}}}}}"#);
    put(&image, "/etc/torcx/profiles/mine.json", profile.as_bytes());
    put(&image, "/etc/torcx/next-profile", b"mine\n");
    let (node, _) = converge(image, &bundle, 1);
    publish(&node, "4000.0.0", &["18.06"]);
    stage_update(&node, "4000.0.0");
    let error = is_ready(&node, &bundle).expect_err("theirs is in no store").to_string();
    assert!(error.contains("theirs:2") && error.contains("4000.0.0"), "{error}");
    put(&node, "/var/lib/torcx/store/4000.0.0/theirs:2.torcx.tgz", b"theirs");
    is_ready(&node, &bundle).expect("it is there now");
}
