//! The part handler as cloud-init runs it: in Python, against mirrors on loopback that fail in every way they know.
//!
//! The scenarios are in `delivery_handler.py`, which loads the handler from the user data that is rendered here.
#![allow(clippy::disallowed_methods, reason = "runs python3 on what it wrote to a temporary folder")]

mod support;

use std::path::Path;
use std::process::Command;

use render::delivery::{Compress, Delivery, Format, Installation, Provider, Proxy};
use render::user_data;

fn run(scenario: &str) {
    let bundle = support::cases::bundle("minimal");
    let installation = Installation::Download {
        // The scenario puts its own mirrors and digest in their place.
        urls: vec!["http://127.0.0.1:9/nodestrap".to_owned()],
        sha256: "00".repeat(32),
        sha512: None,
        proxy: Proxy::default(),
    };
    let delivery = Delivery {
        bundle: &bundle,
        installation: &installation,
        nodestrap_path: "/opt/bin/nodestrap",
        additional: &[],
        store: None,
        provider: Provider::Metal,
        compress: Compress::Never,
    };
    let folder = tempfile::tempdir().expect("a temporary folder");
    let message = folder.path().join("user-data");
    std::fs::write(&message, user_data(Format::Mime, &delivery).expect("it fits").bytes).expect("it can be written");
    std::fs::write(folder.path().join("expected.json"), bundle.to_json()).expect("it can be written");
    let script = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/delivery_handler.py");
    let output = Command::new("python3")
        .arg("-B")
        .arg(script)
        .args([scenario.as_ref(), folder.path().as_os_str()])
        .output()
        .expect("python3 is what cloud-init runs on");
    assert!(
        output.status.success(),
        "{scenario}: {}\n{}",
        String::from_utf8_lossy(&output.stdout),
        String::from_utf8_lossy(&output.stderr)
    );
}

macro_rules! scenarios {
    ($($name:ident)*) => { $(#[test] fn $name() { run(stringify!($name)); })* };
}

scenarios! {
    installs_the_binary_the_unit_and_the_bundle
    does_not_download_what_is_there_already
    goes_on_to_the_next_mirror_after_404_and_a_refused_connection
    tries_again_when_all_mirrors_fail_once
    refuses_a_wrong_digest_and_leaves_nothing
    refuses_a_truncated_body_and_leaves_nothing
    writes_no_bundle_when_the_installation_failed
    finishes_on_a_later_boot_and_then_leaves_the_machine_alone
    recovers_from_being_killed_during_the_download
    asks_by_the_proxy_of_the_spec_unless_a_mirror_is_reached_directly
    tells_the_proxy_who_it_is
    ignores_a_proxy_of_the_environment
    refuses_a_bundle_that_is_none_or_too_large
}
