//! Programs as packages: downloaded whole before anything changes, installed and held, mended after any interruption, and
//! taken back with every dependency that came along.

mod support;

use std::collections::BTreeMap;
use std::path::Path;

use bundle::{AbsolutePath, Bundle, File};
use engine::{Condition, ErrorClass, Report, RunOutcome};
use host::disk::Disk as _;
use host::fake::{Crash, FakePackage, Fault, Moment, Repeat};
use host::packages::dpkg::{self, STATUS_PATH};
use host::units::UnitName;
use node::ResetOptions;
use support::{FakeNode, GATE, clock, expect_converged, surroundings};

const CONFIG: &str = "/etc/containerd/config.toml";
const TRANSACTION: &str = "/var/lib/nodestrap/packages.json";
const SOURCE: &str = "/etc/apt/sources.list.d/nodestrap-lab.sources";
/// Of the image, and needed by nobody else.
const IMAGE: &str = "Package: base\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\nDepends: libc\n\n\
    Package: libc\nStatus: install ok installed\nArchitecture: amd64\nVersion: 2\n\n";

/// kubelet, kubectl and containerd of these versions, and what the host needs.
fn bundle(kubelet: &str) -> Bundle {
    let components = format!(
        "  source: package\n  components: {{kubelet: {{version: {kubelet}}}, kubectl: {{version: {kubelet}}}, \
         containerd: {{version: 2.4.2-1}}}}\n"
    );
    with_source(support::render("", &components))
}

fn with_source(mut bundle: Bundle) -> Bundle {
    let path = AbsolutePath::new(SOURCE).expect("a path");
    bundle.files.push(File::public(path.clone(), "Types: deb\n"));
    bundle.files.sort_by(|one, other| one.path.cmp(&other.path));
    if let Some(packages) = &mut bundle.packages {
        packages.settings.push(path.clone());
        packages.repositories.push(path);
    }
    bundle.validate().expect("it keeps the rules");
    bundle
}

fn package(depends: &[&str], files: &[&str], conffiles: &[(&str, &str)]) -> FakePackage {
    let owned = |text: &&str| (*text).to_owned();
    FakePackage {
        depends: depends.iter().map(owned).collect(),
        files: files.iter().map(|path| ((*path).to_owned(), "program".to_owned())).collect(),
        conffiles: conffiles.iter().map(|(path, text)| ((*path).to_owned(), (*text).to_owned())).collect(),
    }
}

/// A machine without any of it, and a repository that has it all.
fn machine(bundle: &Bundle) -> FakeNode {
    let node = FakeNode::new(bundle);
    put(&node, STATUS_PATH, IMAGE);
    let plugins = ["bridge", "host-local", "loopback", "portmap"].map(|name| format!("/opt/cni/bin/{name}"));
    let plugins: Vec<&str> = plugins.iter().map(String::as_str).collect();
    node.units.repository(|repository| {
        for version in ["1.36.3-1.1", "1.36.3-1.2"] {
            repository.add("kubelet", version, package(&["kubernetes-cni", "iptables"], &["/usr/bin/kubelet"], &[]));
            repository.add("kubectl", version, package(&[], &["/usr/bin/kubectl"], &[]));
        }
        let brought = [(CONFIG, "as its maker likes it")];
        repository.add("containerd", "2.4.2-1", package(&["runc"], &["/usr/bin/containerd"], &brought));
        repository.add("runc", "1.5.2-1", package(&[], &["/usr/sbin/runc"], &[]));
        repository.add("kubernetes-cni", "1.9-1", package(&[], &plugins, &[]));
        repository.add("iptables", "1:1.8-2", package(&["libnftnl"], &["/usr/sbin/iptables"], &[]));
        repository.add("libnftnl", "1.2-1", package(&[], &["/usr/lib/libnftnl.so"], &[]));
        repository.add("conntrack", "1.4-2", package(&[], &["/usr/sbin/conntrack"], &[]));
    });
    node
}

fn put(node: &FakeNode, path: &str, content: &str) {
    host::files::write_durable(&node.disk.uncounted(), Path::new(path), 0o644, content.as_bytes(), None)
        .expect("written");
}

/// Name, version, state, and whether it is held.
fn installed(node: &FakeNode) -> BTreeMap<String, String> {
    let status = dpkg::load(&node.disk).expect("readable");
    let text = |package: &dpkg::Package| {
        let held = if package.is_held { ", held" } else { "" };
        format!("{} {:?}{held}", package.version, package.state)
    };
    status.packages.iter().map(|(name, package)| (name.clone(), text(package))).collect()
}

fn reset(node: &FakeNode, bundle: &Bundle, case: &str) {
    let (clock, options) = (clock(), ResetOptions::default());
    let (report, _) = node::reset(&node.host(), Some(bundle), options, &surroundings(&clock, 0)).expect("it runs");
    if let Some(report) = report {
        expect_converged(&report, case);
    }
}

fn apply(node: &FakeNode, bundle: &Bundle, case: &str) -> Report {
    let report = node.apply(bundle, 0).unwrap_or_else(|error| panic!("{case}: {error}"));
    expect_converged(&report, case);
    node.assert_gate_tells_the_truth(bundle, case);
    report
}

#[test]
fn exact_versions_are_installed_and_held_with_all_that_they_need_and_a_second_run_does_nothing() {
    let bundle = bundle("1.36.3-1.1");
    let node = machine(&bundle);
    apply(&node, &bundle, "first boot");
    let found = installed(&node);
    assert_eq!(found["kubelet"], "1.36.3-1.1 Installed, held");
    assert_eq!(found["containerd"], "2.4.2-1 Installed, held");
    assert_eq!(found["iptables"], "1:1.8-2 Installed", "what the host needs follows the system's updates");
    assert_eq!(found["runc"], "1.5.2-1 Installed");
    let again = node.apply(&bundle, 1).expect("it runs");
    assert_eq!(again.outcome, RunOutcome::NothingToDo, "{again:?}");
    assert!(node.disk.stat(Path::new("/var/cache/nodestrap-packages")).expect("readable").is_none(), "archives stayed");
}

#[test]
fn the_configuration_that_a_package_brings_gives_way_to_ours_and_is_nobodys_change() {
    let bundle = bundle("1.36.3-1.1");
    let node = machine(&bundle);
    apply(&node, &bundle, "first boot");
    let config = node.disk.read(Path::new(CONFIG), 1 << 20).expect("readable").expect("there");
    assert_eq!(config, bundle.file(CONFIG).expect("of the bundle").content[..]);
    reset(&node, &bundle, "nothing was changed by anybody");
    assert!(node.disk.stat(Path::new(CONFIG)).expect("readable").is_none());
}

#[test]
fn a_repository_that_is_down_leaves_a_running_node_as_it_is() {
    let (old, new) = (bundle("1.36.3-1.1"), bundle("1.36.3-1.2"));
    let node = machine(&old);
    apply(&node, &old, "first boot");
    let (tree, before) = (node.tree(), installed(&node));
    node.units.repository(|repository| repository.is_down = true);
    let report = node.apply(&new, 0).expect("it runs");
    let RunOutcome::Failed { class, message, .. } = &report.outcome else { panic!("{:?}", report.outcome) };
    assert!(*class == ErrorClass::Transient && message.contains("update of packages failed"), "{message}");
    assert!(node.gate_is_open());
    assert_eq!(installed(&node), before);
    node.units.repository(|repository| repository.is_down = false);
    apply(&node, &new, "when it is back");
    assert_eq!(installed(&node)["kubelet"], "1.36.3-1.2 Installed, held");
    apply(&node, &old, "and back again");
    assert_eq!(installed(&node), before);
    assert_eq!(node.tree(), tree);
}

/// Killed when all was downloaded, and nothing installed.
fn downloaded(bundle: &Bundle) -> FakeNode {
    for at in 1..500 {
        let node = machine(bundle);
        node.disk.crash_point().crash_at(at, Moment::Before);
        let _ = node.apply(bundle, at);
        let wreck = node.after(Crash::ProcessKill, at);
        if wreck.disk.stat(Path::new(TRANSACTION)).expect("readable").is_some() {
            return wreck;
        }
    }
    panic!("nothing is ever downloaded");
}

#[test]
fn a_dependency_that_was_updated_since_the_download_is_downloaded_again() {
    let bundle = bundle("1.36.3-1.1");
    let node = downloaded(&bundle);
    node.units.repository(|repository| {
        repository.add("runc", "1.5.3-1", package(&[], &["/usr/sbin/runc"], &[]));
    });
    apply(&node, &bundle, "apt takes the newer one");
    assert_eq!(installed(&node)["runc"], "1.5.3-1 Installed");
}

#[test]
fn an_archive_that_is_damaged_is_downloaded_again() {
    let bundle = bundle("1.36.3-1.1");
    let node = downloaded(&bundle);
    put(&node, "/var/cache/nodestrap-packages/runc_1.5.2-1_amd64.deb", "");
    apply(&node, &bundle, "apt does not take it");
    assert_eq!(installed(&node)["runc"], "1.5.2-1 Installed");
}

/// Whose advice it shows, and how often all lists were asked for.
fn fail(node: &FakeNode, bundle: &Bundle) -> (ErrorClass, String, usize) {
    let report = node.apply(bundle, 0).expect("it runs");
    let RunOutcome::Failed { class, message, advice, .. } = &report.outcome else { panic!("{:?}", report.outcome) };
    assert!(!node.gate_is_open());
    let all_lists = |command: &Vec<String>| {
        command[1] == "update" && !command.iter().any(|word| word.starts_with("Dir::Etc::sourcelist"))
    };
    let asked = node.units.commands().iter().filter(|command| all_lists(command)).count();
    (*class, format!("{message}\n{}", advice.as_deref().unwrap_or_default()), asked)
}

#[test]
fn a_version_that_no_repository_has_is_for_people_to_mend() {
    let bundle = bundle("1.36.3-9.9");
    let node = machine(&bundle);
    let (class, text, asked) = fail(&node, &bundle);
    assert_eq!((class, asked), (ErrorClass::NeedsOperator, 1), "{text}");
    assert!(text.contains("no repository has"), "{text}");
}

#[test]
fn a_repository_that_nobody_signed_for_is_for_people_to_mend() {
    let bundle = bundle("1.36.3-1.1");
    let node = machine(&bundle);
    node.units.repository(|repository| repository.is_unsigned = true);
    let (class, text, _) = fail(&node, &bundle);
    assert!(class == ErrorClass::NeedsOperator && text.contains("signed"), "{class:?} {text}");
}

#[test]
fn another_version_restarts_its_readers_and_nobody_else() {
    let (old, new) = (bundle("1.36.3-1.1"), bundle("1.36.3-1.2"));
    let node = machine(&old);
    apply(&node, &old, "first boot");
    let runs = |unit: &str| node.units.runs(&UnitName(unit.to_owned()));
    let (kubelet, containerd) = (runs("kubelet.service"), runs("containerd.service"));
    apply(&node, &new, "another kubelet");
    assert!(runs("kubelet.service") > kubelet);
    assert_eq!(runs("containerd.service"), containerd);
}

#[test]
fn drift_is_named_and_mended() {
    let bundle = bundle("1.36.3-1.1");
    let node = machine(&bundle);
    apply(&node, &bundle, "first boot");
    let text = String::from_utf8(node.disk.read(Path::new(STATUS_PATH), 1 << 20).expect("readable").expect("there"));
    let text = text.expect("text").replace("Status: hold ok", "Status: install ok");
    put(&node, STATUS_PATH, &text);
    let drift = node::verify(&node.host(), &bundle, &clock()).expect("looked at").drift;
    let first = drift.first().expect("there is some");
    assert_eq!((first.subject.as_str(), first.found.as_str()), ("package containerd", "not held"));
    apply(&node, &bundle, "mended");
    assert!(node::verify(&node.host(), &bundle, &clock()).expect("looked at").drift.is_empty());
}

/// As files are written anew: the package manager says that all is there, and need not be right.
#[test]
fn packages_are_installed_again_when_a_sync_failed_in_this_boot() {
    let bundle = bundle("1.36.3-1.1");
    let node = machine(&bundle);
    apply(&node, &bundle, "first boot");
    let again = || node.units.commands().iter().filter(|words| words.iter().any(|word| word == "--reinstall")).count();
    assert_eq!(again(), 0);
    node.disk.crash_point().fail_at(node.disk.operations() + 1, Fault::INPUT_OUTPUT, Repeat::Once);
    node.disk.sync_everything().expect_err("it fails");
    apply(&node, &bundle, "in doubt");
    assert_eq!(again(), 1);
    assert_eq!(apply(&node, &bundle, "no doubt any more").outcome, RunOutcome::NothingToDo);
    assert_eq!(again(), 1);
}

#[test]
fn a_reset_leaves_packages_and_holds_as_they_were() {
    let bundle = bundle("1.36.3-1.1");
    let node = machine(&bundle);
    let runc = "Package: runc\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1.5.2-1\n\n";
    put(&node, STATUS_PATH, &[IMAGE, runc].concat());
    let image = node.disk.uncounted();
    let runc = Path::new("/usr/sbin/runc");
    host::files::write_durable(&image, runc, 0o755, b"program", None).expect("written");
    let before = installed(&node);
    apply(&node, &bundle, "first boot");
    reset(&node, &bundle, "reset");
    assert_eq!(installed(&node), before);
    // Folders that packages made and dpkg leaves are nobody's harm; no file of ours is left.
    for path in [SOURCE, GATE, "/var/lib/nodestrap", "/usr/bin/kubelet"] {
        assert!(node.disk.stat(Path::new(path)).expect("readable").is_none(), "{path}");
    }
}

/// A prerequisite and a program that the image has in older versions than the repository.
fn image_with_older_packages(bundle: &Bundle) -> FakeNode {
    let node = machine(bundle);
    node.units.repository(|repository| {
        for version in ["1:1.8-1", "1:1.8-3"] {
            repository.add("iptables", version, package(&["libnftnl"], &["/usr/sbin/iptables"], &[]));
        }
        repository.add("kubectl", "1.36.3-1.3", package(&[], &["/usr/bin/kubectl"], &[]));
    });
    let stanza = |name: &str, version: &str| {
        format!("Package: {name}\nStatus: install ok installed\nArchitecture: amd64\nVersion: {version}\n\n")
    };
    let older = [stanza("iptables", "1:1.8-1"), stanza("kubectl", "1.36.3-1.1"), stanza("libnftnl", "1.2-1")];
    put(&node, STATUS_PATH, &[IMAGE.to_owned(), older.concat()].concat());
    for program in ["/usr/sbin/iptables", "/usr/bin/kubectl"] {
        host::files::write_durable(&node.disk.uncounted(), Path::new(program), 0o755, b"program", None)
            .expect("written");
    }
    node
}

/// As somebody does it by hand: from one state of a package to another.
fn change(node: &FakeNode, name: &str, from: &str, to: &str) {
    let text = node.disk.read(Path::new(STATUS_PATH), 1 << 20).expect("readable").expect("there");
    let text = String::from_utf8(text).expect("text");
    let stanzas = text.split_inclusive("\n\n").map(|stanza| match stanza.contains(&format!("Package: {name}\n")) {
        true => stanza.replace(from, to),
        false => stanza.to_owned(),
    });
    put(node, STATUS_PATH, &stanzas.collect::<String>());
}

#[test]
fn what_the_host_needs_and_has_is_left_in_its_version() {
    let bundle = bundle("1.36.3-1.2");
    let node = image_with_older_packages(&bundle);
    apply(&node, &bundle, "first boot");
    assert_eq!(installed(&node)["iptables"], "1:1.8-1 Installed");
    assert_eq!(installed(&node)["kubectl"], "1.36.3-1.2 Installed, held");
}

#[test]
fn a_reset_leaves_what_somebody_else_has_raised_or_held_since() {
    let bundle = bundle("1.36.3-1.2");
    let node = image_with_older_packages(&bundle);
    apply(&node, &bundle, "first boot");
    change(&node, "iptables", "1:1.8-1", "1:1.8-3");
    change(&node, "iptables", "install ok", "hold ok");
    change(&node, "kubectl", "1.36.3-1.2", "1.36.3-1.3");
    reset(&node, &bundle, "reset");
    assert_eq!(installed(&node)["iptables"], "1:1.8-3 Installed, held");
    assert_eq!(installed(&node)["kubectl"], "1.36.3-1.3 Installed", "its hold was ours");
}

#[test]
fn a_reset_gives_back_the_version_that_ours_has_replaced() {
    let bundle = bundle("1.36.3-1.2");
    let node = image_with_older_packages(&bundle);
    change(&node, "kubectl", "install ok", "hold ok");
    let before = installed(&node);
    apply(&node, &bundle, "first boot");
    reset(&node, &bundle, "reset");
    assert_eq!(installed(&node), before);
}

#[test]
fn the_configuration_of_a_package_that_was_removed_and_not_purged_stays_after_a_reset() {
    let bundle = bundle("1.36.3-1.1");
    let node = machine(&bundle);
    let removed = "Package: containerd\nStatus: deinstall ok config-files\nArchitecture: amd64\nVersion: 2.4.1-1\n\n";
    put(&node, STATUS_PATH, &[IMAGE, removed].concat());
    put(&node, CONFIG, "as its owner likes it");
    let before: Vec<String> = installed(&node).into_keys().collect();
    apply(&node, &bundle, "first boot");
    reset(&node, &bundle, "reset");
    let after = installed(&node);
    assert_eq!(after.keys().cloned().collect::<Vec<_>>(), before);
    assert!(after["containerd"].ends_with("ConfigFiles"), "{after:?}");
    let config = node.disk.read(Path::new(CONFIG), 1 << 20).expect("readable").expect("there");
    assert_eq!(config, b"as its owner likes it");
}

#[test]
fn a_reset_asks_repositories_by_the_proxy_of_the_bundle() {
    let mut bundle = bundle("1.36.3-1.2");
    let proxy = ("https_proxy".to_owned(), "http://proxy.example:3128".to_owned());
    bundle.packages.as_mut().expect("there are some").environment.extend([proxy.clone()]);
    let node = image_with_older_packages(&bundle);
    apply(&node, &bundle, "first boot");
    reset(&node, &bundle, "reset");
    let asked = node.units.transients();
    let last = asked.iter().rfind(|one| one.command[1] == "update").expect("lists are asked for");
    assert!(last.environment.contains_key("https_proxy"), "{last:?}");
}

#[test]
fn what_others_need_by_then_stays() {
    let bundle = bundle("1.36.3-1.1");
    let node = machine(&bundle);
    apply(&node, &bundle, "first boot");
    let text = String::from_utf8(node.disk.read(Path::new(STATUS_PATH), 1 << 20).expect("readable").expect("there"));
    let user =
        "Package: firewall\nStatus: install ok installed\nArchitecture: amd64\nVersion: 1\nDepends: iptables\n\n";
    put(&node, STATUS_PATH, &(text.expect("text") + user));
    reset(&node, &bundle, "reset");
    let left: Vec<String> = installed(&node).into_keys().collect();
    assert_eq!(left, ["base", "firewall", "iptables", "libc", "libnftnl"]);
}

#[test]
fn what_a_new_bundle_does_not_want_goes_with_all_that_only_it_needed() {
    let bundle = bundle("1.36.3-1.1");
    let node = machine(&bundle);
    apply(&node, &bundle, "first boot");
    let mut fewer = bundle.clone();
    let packages = fewer.packages.as_mut().expect("there are some");
    packages.packages.retain(|package| !["kubectl", "conntrack"].contains(&package.name.as_str()));
    packages.commands.retain(|command| command != "kubectl");
    apply(&node, &fewer, "fewer");
    let fresh = machine(&fewer);
    apply(&fresh, &fewer, "a fresh one");
    assert_eq!(installed(&node), installed(&fresh), "however a node got here, it equals a fresh one");
}

#[test]
fn an_interrupted_dpkg_of_somebody_else_is_mended_first() {
    let bundle = bundle("1.36.3-1.1");
    let node = machine(&bundle);
    put(&node, STATUS_PATH, &IMAGE.replacen("install ok installed", "install ok half-configured", 1));
    apply(&node, &bundle, "after somebody's dpkg was killed");
    assert_eq!(installed(&node)["base"], "1 Installed");
    let commands = node.units.commands();
    assert!(commands.iter().any(|command| command.ends_with(&["--configure".to_owned(), "-a".to_owned()])));
}

#[test]
fn no_command_line_has_more_than_it_needs_and_no_shell() {
    let bundle = bundle("1.36.3-1.1");
    let node = machine(&bundle);
    apply(&node, &bundle, "first boot");
    for command in node.units.commands() {
        let program = command[0].as_str();
        assert!(["/usr/bin/apt-get", "/usr/bin/apt-mark", "/usr/bin/dpkg"].contains(&program), "{command:?}");
        // A proxy, a password or a path of somebody's is for files and the environment.
        let is_known = |word: &String| {
            let (name, _) = word.split_once('=').unwrap_or((word, ""));
            let known =
                ["Dir::Etc::sourcelist", "Dir::Etc::sourceparts", "Dir::Cache::archives", "DPkg::Lock::Timeout"];
            let is_option = known.contains(&name) || name.starts_with("APT::") || name.starts_with("DPkg::");
            let verbs = ["update", "install", "hold"];
            is_option
                || verbs.contains(&name)
                || name.starts_with('-')
                || bundle.packages.as_ref().is_some_and(|all| all.find(name).is_some())
        };
        assert!(command[1..].iter().all(is_known), "{command:?}");
    }
}

/// Nobody is there to answer, and units are down until they are configured.
#[test]
fn no_package_asks_anything_or_starts_a_unit() {
    let bundle = bundle("1.36.3-1.1");
    let node = machine(&bundle);
    apply(&node, &bundle, "first boot");
    for asked in node.units.transients() {
        for (name, value) in [("DEBIAN_FRONTEND", "noninteractive"), ("SYSTEMD_OFFLINE", "1"), ("LC_ALL", "C.UTF-8")] {
            assert_eq!(asked.environment.get(name).map(String::as_str), Some(value), "{asked:?}");
        }
        let keeps_ours = asked.command.iter().any(|word| word == "DPkg::Options::=--force-confold");
        assert_eq!(keeps_ours, asked.command[1] == "install", "{asked:?}");
    }
}

#[test]
fn whoever_asks_rpm_waits_for_nobody_and_leaves_no_answer_behind() {
    let components = "  os: rhel\n  source: package\n  components: {containerd: {version: 2.4.2-1}}\n";
    let bundle = support::render("", components);
    let node = machine(&bundle);
    let drift = node::verify(&node.host(), &bundle, &clock()).expect("looked at").drift;
    assert!(drift.iter().any(|one| one.subject == "package kubelet" && one.found == "nothing"), "{drift:?}");
    for asked in node.units.transients() {
        assert_eq!(asked.command[..2], ["/usr/bin/rpm", "-qa"]);
        assert_ne!(asked.unit.0, "nodestrap-packages.service", "an installation may be at work");
        assert!(node.disk.stat(&asked.output).expect("readable").is_none(), "{:?} is left", asked.output);
    }
}

#[test]
fn a_plan_that_cannot_ask_rpm_does_not_say_that_nothing_goes() {
    let brought = bundle("1.36.3-1.1");
    let node = machine(&brought);
    apply(&node, &brought, "a node with packages");
    let without = support::render("", "  os: rhel\n");
    let (facts, plan) = node::prepare(&node.host(), &without).expect("a plan");
    let previews = node::preview(&node.host(), &without, &facts, &plan, &clock()).expect("a look");
    let remove = previews.iter().find(|preview| preview.step.0 == "remove-packages").expect("a step");
    assert!(matches!(&remove.condition, Ok(Condition::Needed(why)) if why.contains("rpm")), "{:?}", remove.condition);
}

/// Where two machines differ, for people who look why.
fn differing(one: &FakeNode, other: &FakeNode) -> Vec<String> {
    let (one, other) = (one.disk.snapshot(), other.disk.snapshot());
    let paths: std::collections::BTreeSet<_> = one.keys().chain(other.keys()).collect();
    let differ = paths.into_iter().filter(|path| one.get(*path) != other.get(*path));
    let paths = differ.map(|path| path.display().to_string());
    paths.filter(|path| !support::STORY.iter().any(|story| path.starts_with(story))).collect()
}

fn kinds() -> impl Iterator<Item = (Crash, Moment)> {
    [Crash::ProcessKill, Crash::PowerLoss]
        .into_iter()
        .flat_map(|crash| [Moment::Before, Moment::Midway, Moment::After].map(move |moment| (crash, moment)))
}

#[test]
fn a_crash_at_every_effect_ends_in_the_same_packages_and_files() {
    let bundle = bundle("1.36.3-1.1");
    let clean = machine(&bundle);
    let before = clean.disk.operations();
    apply(&clean, &bundle, "clean");
    let (tree, packages, effects) = (clean.tree(), installed(&clean), clean.disk.operations() - before);
    let mut seed = 0;
    for at in 1..=effects {
        for (crash, moment) in kinds() {
            seed += 1;
            let case = format!("seed {seed}: {crash:?} {moment:?} effect {at}");
            let node = machine(&bundle);
            node.disk.crash_point().crash_at(at, moment);
            let _ = node.apply(&bundle, seed);
            let wreck = node.after(crash, seed);
            wreck.assert_gate_tells_the_truth(&bundle, &case);
            apply(&wreck, &bundle, &case);
            assert_eq!(installed(&wreck), packages, "{case}");
            assert_eq!(wreck.tree(), tree, "{case}: {:?}", differing(&wreck, &clean));
        }
    }
    assert!(seed > 500, "{seed}");
}

#[test]
fn a_reset_after_a_crash_at_any_effect_leaves_the_packages_of_the_image() {
    let bundle = bundle("1.36.3-1.1");
    let clean = machine(&bundle);
    let (image, before) = (installed(&clean), clean.disk.operations());
    apply(&clean, &bundle, "clean");
    let effects = clean.disk.operations() - before;
    for at in 1..=effects {
        for (crash, moment) in kinds() {
            let case = format!("{crash:?} {moment:?} effect {at}");
            let node = machine(&bundle);
            node.disk.crash_point().crash_at(at, moment);
            let _ = node.apply(&bundle, at);
            let wreck = node.after(crash, at);
            reset(&wreck, &bundle, &case);
            assert_eq!(installed(&wreck), image, "{case}");
            for path in ["/var/cache/nodestrap-packages", "/var/lib/nodestrap", SOURCE] {
                assert!(wreck.disk.stat(Path::new(path)).expect("readable").is_none(), "{case}: {path} is left");
            }
        }
    }
}

/// A package brings a configuration before ours takes its place: a crash in between must not make every later edit ours.
#[test]
fn an_edit_after_a_crash_at_any_effect_is_not_taken_for_ours() {
    let bundle = bundle("1.36.3-1.1");
    let clean = machine(&bundle);
    let before = clean.disk.operations();
    apply(&clean, &bundle, "clean");
    for at in 1..=clean.disk.operations() - before {
        let node = machine(&bundle);
        node.disk.crash_point().crash_at(at, Moment::Before);
        let _ = node.apply(&bundle, at);
        let wreck = node.after(Crash::ProcessKill, at);
        apply(&wreck, &bundle, &format!("after effect {at}"));
        put(&wreck, CONFIG, "as somebody likes it better");
        let (clock, options) = (clock(), ResetOptions::default());
        let (report, _) =
            node::reset(&wreck.host(), Some(&bundle), options, &surroundings(&clock, 0)).expect("it runs");
        let outcome = report.expect("it ran").outcome;
        assert!(matches!(outcome, RunOutcome::Failed { .. }), "after effect {at}: {outcome:?}");
    }
}

#[test]
fn a_reset_that_crashes_is_finished_by_the_next() {
    let bundle = bundle("1.36.3-1.1");
    let complete = || {
        let node = machine(&bundle);
        apply(&node, &bundle, "complete");
        node
    };
    let clean = complete();
    let before = clean.disk.operations();
    reset(&clean, &bundle, "clean");
    let (tree, packages, effects) = (clean.tree(), installed(&clean), clean.disk.operations() - before);
    for at in 1..=effects {
        for (crash, moment) in kinds() {
            let case = format!("{crash:?} {moment:?} effect {at}");
            let node = complete();
            node.disk.crash_point().crash_at(at, moment);
            let (clock, options) = (clock(), ResetOptions::default());
            let _ = node::reset(&node.host(), Some(&bundle), options, &surroundings(&clock, at));
            let wreck = node.after(crash, at);
            reset(&wreck, &bundle, &case);
            assert_eq!(installed(&wreck), packages, "{case}");
            assert_eq!(wreck.tree(), tree, "{case}");
        }
    }
}
