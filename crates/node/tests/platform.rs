//! A bundle that came from the platform survives crashes, and is not asked for again.
#![allow(clippy::unwrap_used, reason = "tests may panic")]

mod support;

use std::path::Path;

use bundle::Stub;
use bundle::{BUNDLE_PATH, Bundle};
use engine::Report;
use host::disk::Disk as _;
use host::fake::{Crash, Moment};
use node::{BundleSourceError, Delivered, NodeHost};
use support::{FakeNode, bundle, clock, expect_converged, surroundings};

const VOLUME: &str = "/dev/disk/by-label/cidata";

/// A machine with a name of its own and a volume in place of the delivered file.
fn on_volume(bundle: &Bundle, payload: &str) -> FakeNode {
    let node = FakeNode::new(bundle);
    let image = node.disk.uncounted();
    let put = |path: &str, content: &str| {
        host::files::write_durable(&image, Path::new(path), 0o644, content.as_bytes(), None).unwrap();
    };
    put("/sys/class/dmi/id/product_uuid", "11111111-2222-3333-4444-555555555555\n");
    put(&format!("{VOLUME}/meta-data"), "instance-id: vm-7\n");
    put(&format!("{VOLUME}/user-data"), payload);
    host::files::remove_durable(&image, Path::new(BUNDLE_PATH)).unwrap();
    node
}

fn take_volume_away(node: &FakeNode) {
    let image = node.disk.uncounted();
    for name in ["meta-data", "user-data"] {
        host::files::remove_durable(&image, &Path::new(VOLUME).join(name)).unwrap();
    }
    image.remove(Path::new(VOLUME)).unwrap();
}

fn load(host: &NodeHost, bundle: &Bundle) -> Result<Delivered, BundleSourceError> {
    let fetch = |stub: &Stub| Ok(stub.accept(bundle.to_json().as_bytes()).unwrap());
    node::load_platform_bundle(host, Some(&fetch), &|_| {})
}

/// Load and apply, as one run of the program does it.
fn run(node: &FakeNode, bundle: &Bundle, order: u64) -> Option<Report> {
    let host = node.host();
    let delivered = load(&host, bundle).ok()?;
    node::apply(&host, &delivered, &surroundings(&clock(), order)).ok()
}

#[test]
fn what_the_platform_said_survives_a_crash_at_every_effect_or_is_read_again() {
    let bundle = bundle();
    let stub = Stub::new(&bundle, &["https://store.example/bundles".to_owned()], None, None).unwrap();
    for payload in [bundle.to_json(), stub.to_json()] {
        let clean = on_volume(&bundle, &payload);
        expect_converged(&run(&clean, &bundle, 0).unwrap(), "clean");
        let (tree, effects) = (clean.tree(), clean.disk.operations());
        let mut seed = 0;
        // It is kept in the first effects; the rest is walked through in full by the tests of crashes.
        for at in (1..=effects).filter(|at| *at <= 40 || at % 7 == 0) {
            for crash in [Crash::ProcessKill, Crash::PowerLoss] {
                for moment in [Moment::Before, Moment::After] {
                    seed += 1;
                    let case = format!("seed {seed}: {crash:?} {moment:?} effect {at}");
                    let node = on_volume(&bundle, &payload);
                    node.disk.crash_point().crash_at(at, moment);
                    run(&node, &bundle, seed);
                    let wreck = node.after(crash, seed);
                    wreck.assert_gate_tells_the_truth(&bundle, &case);
                    expect_converged(&run(&wreck, &bundle, seed / 2).unwrap(), &case);
                    assert_eq!(wreck.tree(), tree, "{case}: another tree");
                    let later = wreck.after(Crash::PowerLoss, seed);
                    take_volume_away(&later);
                    let kept = load(&later.host(), &bundle).unwrap_or_else(|error| panic!("{case}: {error}"));
                    assert_eq!(kept.bundle.digest(), bundle.digest(), "{case}");
                    assert!(kept.source.starts_with("kept from an earlier run: "), "{case}: {}", kept.source);
                }
            }
        }
        assert!(seed > 150, "{seed}");
    }
}

#[test]
fn a_rerun_writes_nothing() {
    let bundle = bundle();
    let node = on_volume(&bundle, &bundle.to_json());
    expect_converged(&run(&node, &bundle, 0).unwrap(), "first");
    let kept = |node: &FakeNode| node.disk.read(Path::new(node::KEPT_PLATFORM_PATH), 1 << 22).unwrap().unwrap();
    let before = kept(&node);
    expect_converged(&run(&node, &bundle, 0).unwrap(), "again");
    take_volume_away(&node);
    expect_converged(&run(&node, &bundle, 0).unwrap(), "without the volume");
    assert_eq!(kept(&node), before);
}
