//! No bundle was delivered by a file: the platform has it, and the facts.

use lab::metadata::{Instance, Manner, MetadataServer, Provider};

use super::*;

const KEPT: &str = "/var/lib/nodestrap/platform.json";
const SETTING: &str = "/etc/nodestrap/platform";
const UUID: &str = "/sys/class/dmi/id/product_uuid";
const BOOT: &str = "/run/nodestrap/boot_id";
/// Long enough for a few attempts, short enough to wait for.
const SOON: &str = "--metadata-deadline=2";
const NAMES: [(Provider, &str); 4] =
    [(Provider::Aws, "aws"), (Provider::Gce, "gce"), (Provider::Azure, "azure"), (Provider::OpenStack, "openstack")];

/// What `render` writes for the example in this format.
fn user_data(format: &str) -> Vec<u8> {
    let mut command = program(support::BINARY);
    let output = command.arg("render").arg(example("minimal.yaml")).args(["--format", format]).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    output.stdout
}

fn serve(provider: Provider, user_data: impl Into<Vec<u8>>) -> MetadataServer {
    MetadataServer::start(Instance::of(provider).with_user_data(user_data)).unwrap()
}

/// A machine of its own on this platform.
fn machine(name: &str, service: &MetadataServer) -> Sandbox {
    let sandbox = Sandbox::image();
    sandbox.write(SETTING, format!("{name} {}\n", service.url()));
    sandbox.write(UUID, "ec2a1b2c-0123-4567-89ab-cdef01234567\n");
    sandbox
}

fn apply(sandbox: &Sandbox) -> Ran {
    sandbox.run("apply", &["--progress=none"])
}

#[test]
fn every_platform_and_every_format_gives_the_same_node_as_a_file() {
    let wanted = Sandbox::applied();
    let formats = ["cloud-config", "mime", "ignition", "ignition-2.3", "bundle"];
    for ((provider, name), format) in NAMES.into_iter().zip(formats).chain([(NAMES[0], formats[4])]) {
        let service = serve(provider, user_data(format));
        let sandbox = machine(name, &service);
        let ran = apply(&sandbox).expect(0);
        let mut tree = sandbox.tree();
        let mut expected = wanted.tree();
        for tree in [&mut tree, &mut expected] {
            // What made them different.
            tree.retain(|path, _| ![SETTING, BUNDLE].contains(&path.as_str()) && !path.starts_with("/sys"));
        }
        // The gate names the plan, and the plan names the platform.
        let gate = |tree: &mut std::collections::BTreeMap<String, String>| tree.remove(GATE).is_some();
        assert!(gate(&mut tree) && gate(&mut expected), "{name}: the gate is open");
        assert_eq!(tree, expected, "{name}, {format}");
        assert!(!ran.out.contains(support::TOKEN_OF_EXAMPLE) && !ran.err.contains(support::TOKEN_OF_EXAMPLE));
        assert_eq!(sandbox.mode(KEPT), 0o600);
        let status = sandbox.run("status", &["-o", "json"]).json();
        let source = status["bundleSource"].as_str().unwrap().to_owned();
        assert!(source.contains(&service.url()), "{name}: {source}");
        let facts = sandbox.run("plan", &["-o", "json"]).expect(0).json()["facts"].clone();
        assert_eq!(facts["platform"]["value"], name);
        assert_eq!(facts["instanceId"]["value"], Instance::of(provider).id);
        assert!(service.requests().len() <= 10, "{:?}", service.requests());
    }
}

#[test]
fn what_was_heard_holds_for_this_machine_only() {
    let service = serve(Provider::Aws, user_data("cloud-config"));
    let sandbox = machine("aws", &service);
    apply(&sandbox).expect(0);
    let asked = service.requests().len();
    let expect_asked = |count: usize, case: &str| assert_eq!(service.requests().len(), count, "{case}");

    apply(&sandbox).expect(0);
    sandbox.run("status", &[]);
    sandbox.run("plan", &[]).expect(0);
    expect_asked(asked, "a rerun, a look and a plan");
    sandbox.write(BOOT, "00000000-0000-4000-8000-000000000002\n");
    let plan = sandbox.run("plan", &["-o", "json"]).expect(0).json();
    expect_asked(asked, "a reboot");
    let source = plan["facts"]["instanceType"]["source"].as_str().unwrap();
    assert!(source.starts_with("kept from an earlier run: http://"), "{source}");

    let plan_asks = |case: &str| {
        let before = service.requests().len();
        sandbox.run("plan", &[]).expect(0);
        expect_asked(before + asked, case);
        let before = service.requests().len();
        apply(&sandbox).expect(0);
        apply(&sandbox).expect(0);
        expect_asked(before + asked, case);
    };
    sandbox.write(UUID, "ec2a1b2c-0123-4567-89ab-cdef0123ffff\n");
    plan_asks("a copy of the disk boots as another machine");
    sandbox.write("/sys/class/dmi/id/product_name", "m5.xlarge\n");
    plan_asks("the same machine in another size");
    let whole = std::fs::read(sandbox.path(KEPT)).unwrap();
    sandbox.write(KEPT, &whole[..whole.len() / 2]);
    plan_asks("a torn copy");

    // Its address is now another one; the copy says 10.0.0.7.
    let trie = |address: &str| format!("Main:\n  +-- 0.0.0.0/0\n     |-- {address}\n        /32 host LOCAL\n");
    sandbox.write("/proc/net/fib_trie", trie("10.0.0.7"));
    let before = service.requests().len();
    sandbox.run("plan", &[]).expect(0);
    expect_asked(before, "the address is its own");
    sandbox.write("/proc/net/fib_trie", trie("10.0.0.8"));
    sandbox.run("plan", &[]).expect(0);
    expect_asked(before + asked, "the address is no more its own");
    sandbox.remove("/proc/net/fib_trie");

    let before = service.requests().len();
    sandbox.run("plan", &["--ask-again"]).expect(0);
    expect_asked(before + asked, "somebody wants it so");
}

#[test]
fn a_machine_that_has_no_name_of_its_own_keeps_it_for_one_boot() {
    let service = serve(Provider::OpenStack, user_data("cloud-config"));
    let sandbox = machine("openstack", &service);
    sandbox.write(UUID, "00000000-0000-0000-0000-000000000000\n");
    apply(&sandbox).expect(0);
    let asked = service.requests().len();
    apply(&sandbox).expect(0);
    assert_eq!(service.requests().len(), asked, "the same boot");
    sandbox.write(BOOT, "00000000-0000-4000-8000-000000000002\n");
    apply(&sandbox).expect(0);
    assert_eq!(service.requests().len(), 2 * asked, "another boot, perhaps of another machine");
}

#[test]
fn a_plan_asks_and_touches_nothing() {
    let service = serve(Provider::Azure, user_data("cloud-config"));
    let sandbox = machine("azure", &service);
    let before = sandbox.snapshot();
    sandbox.run("plan", &[]).expect(0);
    assert_eq!(sandbox.snapshot(), before);
    let status = sandbox.run("status", &["-o", "json"]).json();
    assert_eq!(status["phase"], "not-delivered", "a look asks nobody");
    assert_eq!(service.requests().len(), 1);
}

#[test]
fn a_delivered_file_wins_and_the_platform_still_tells_the_facts() {
    let service = serve(Provider::Aws, "#cloud-config\n{}\n");
    let sandbox = machine("aws", &service);
    sandbox.deliver(bundle());
    apply(&sandbox).expect(0);
    assert!(!service.requests().iter().any(|request| request.contains("user-data")), "{:?}", service.requests());
    let facts = sandbox.run("plan", &["-o", "json"]).expect(0).json()["facts"].clone();
    assert_eq!(facts["instanceType"]["value"], "m5.large");
    assert_eq!(facts["localIpv4"]["value"], "10.0.0.7");
    let status = sandbox.run("status", &["-o", "json"]).json();
    assert_eq!(status["bundleSource"], BUNDLE);
}

#[test]
fn user_data_that_is_not_ours_is_named_as_such_and_not_shown() {
    const CANARY: &str = "canary-5c1e";
    for text in [format!("#cloud-config\npassword: {CANARY}\n"), format!("#!/bin/sh\necho {CANARY}\n")] {
        let service = serve(Provider::Gce, text);
        let sandbox = machine("gce", &service);
        let before = sandbox.without_story();
        let ran = apply(&sandbox).expect(2);
        ran.says(&["user data of this platform has no nodestrap bundle", &service.url()]);
        assert!(!ran.err.contains(CANARY) && !ran.out.contains(CANARY), "{}", ran.err);
        assert_eq!(sandbox.without_story(), before);
    }
    let none = MetadataServer::start(Instance::of(Provider::OpenStack)).unwrap();
    let ran = apply(&machine("openstack", &none)).expect(2);
    ran.says(&["openstack has no user data", "nodestrap render"]);
}

#[test]
fn a_service_that_does_not_answer_may_do_so_later() {
    for (manner, reason) in [(Manner::Silence, "waited"), (Manner::Page, "form"), (Manner::Status(503), "503")] {
        let service = serve(Provider::Aws, user_data("cloud-config"));
        service.always(manner);
        let sandbox = machine("aws", &service);
        let ran = sandbox.run("apply", &["--progress=none", SOON]).expect(3);
        ran.says(&["metadata service of aws", &service.url(), reason]);
        assert!(!sandbox.exists(GATE) && !sandbox.exists(KEPT));
        service.always(Manner::Faithful);
        apply(&sandbox).expect(0);
    }
    let mistaken = Sandbox::image();
    mistaken.write(SETTING, "amazon\n");
    apply(&mistaken).expect(4).says(&[SETTING, "amazon", "aws"]);
}

#[test]
fn volumes_serve_without_a_network_and_may_be_gone_later() {
    let sandbox = Sandbox::image();
    sandbox.write(UUID, "11111111-2222-3333-4444-555555555555\n");
    sandbox.write("/dev/disk/by-label/CIDATA/meta-data", "instance-id: vm-7\n");
    sandbox.write("/dev/disk/by-label/CIDATA/user-data", user_data("cloud-config"));
    apply(&sandbox).expect(0);
    let digest = |sandbox: &Sandbox| sandbox.run("plan", &["-o", "json"]).expect(0).json()["digest"].clone();
    let before = digest(&sandbox);
    std::fs::remove_dir_all(sandbox.path("/dev/disk/by-label/CIDATA")).unwrap();
    sandbox.write(BOOT, "00000000-0000-4000-8000-000000000002\n");
    assert_eq!(digest(&sandbox), before, "the plan is the same without the volume");
    assert!(apply(&sandbox).expect(0).out.contains("nothing to do"));
}

#[test]
fn a_proxy_of_the_environment_is_never_asked() {
    let service = serve(Provider::Aws, user_data("cloud-config"));
    let proxy = serve(Provider::Aws, user_data("cloud-config"));
    let sandbox = machine("aws", &service);
    let mut command = program(support::BINARY);
    command.args(sandbox.arguments("plan", &[]));
    for name in ["http_proxy", "HTTP_PROXY", "all_proxy", "ALL_PROXY"] {
        command.env(name, proxy.url());
    }
    finish(command).expect(0);
    assert!(proxy.requests().is_empty(), "{:?}", proxy.requests());
    assert!(!service.requests().is_empty());
}
