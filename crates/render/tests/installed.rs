//! What brings programs onto a node, written out: where a package manager looks and whom it believes, what it is asked for, and which
//! system extensions there are.

use bundle::{Bundle, ExtensionName, PackageManager, RuntimeSource};
use render::render_bundle;

/// A worker whose cluster and group say what is given.
fn render(cluster: &str, group: &str) -> Bundle {
    let text = format!(
        "apiVersion: nodestrap.io/v1alpha1\nkind: Cluster\nmetadata: {{name: lab}}\nspec:\n  kubernetesVersion: 1.36.3\n  \
         apiServer: https://10.0.0.1:6443\n  join: {{bootstrapToken: abcdef.0123456789abcdef, certificateAuthority: {{file: ca.crt}}}}\n\
         {cluster}---\napiVersion: nodestrap.io/v1alpha1\nkind: NodeGroup\nmetadata: {{name: workers}}\nspec:\n{group}"
    );
    let spec = spec::parse(&[spec::Source::new("test", text)]).resolve(|reference| match reference.path.as_str() {
        "ca.crt" => Ok(include_bytes!("../../../examples/ca.crt").to_vec()),
        "artefacts.json" => Ok(include_bytes!("../../../examples/artefacts.json").to_vec()),
        "artefacts.json.asc" => Ok(include_bytes!("../../../examples/artefacts.json.asc").to_vec()),
        "artefacts-keys.asc" => Ok(include_bytes!("../../../examples/artefacts-keys.asc").to_vec()),
        "flatcar-artefacts.json" => Ok(include_bytes!("../../../examples/flatcar-artefacts.json").to_vec()),
        "flatcar-artefacts.json.asc" => Ok(include_bytes!("../../../examples/flatcar-artefacts.json.asc").to_vec()),
        "flatcar-artefacts-keys.asc" => Ok(include_bytes!("../../../examples/flatcar-artefacts-keys.asc").to_vec()),
        path => Err(format!("there is no {path}")),
    });
    let complete = spec.and_then(|spec| spec::complete(&spec));
    let complete =
        complete.unwrap_or_else(|mistakes| panic!("{}", spec::render_mistakes(&mistakes, spec::Colour::Plain)));
    render_bundle(&complete, "workers").unwrap_or_else(|error| panic!("{error}"))
}

fn has(bundle: &Bundle, path: &str) -> bool {
    bundle.files.iter().any(|file| *file.path == *path)
}

/// Without its first line, which says who wrote it.
#[track_caller]
fn text<'b>(bundle: &'b Bundle, path: &str) -> &'b str {
    let file = bundle.files.iter().find(|file| *file.path == *path).unwrap_or_else(|| panic!("there is no {path}"));
    let (comment, rest) = file.content.text().and_then(|text| text.split_once('\n')).expect("lines");
    assert!(comment.contains("Written by nodestrap"), "{path}: {comment}");
    rest
}

const REPOSITORIES: &str = "  packages:\n    repositories:\n      - {name: flat, url: https://packages.example.com/flat/, key: {file: artefacts-keys.asc}}\n";
const KEYS: &str = include_str!("../../../examples/artefacts-keys.asc");
const CONTAINERD: &str = "  source: package\n  components: {containerd: {version: 2.4.2-1}}\n";

/// Name, version and whether it is held.
fn packages(bundle: &Bundle) -> Vec<String> {
    let packages = bundle.packages.iter().flat_map(|packages| &packages.packages);
    let text = |package: &bundle::Package| package.title() + if package.is_held() { ", held" } else { "" };
    packages.map(text).collect()
}

#[test]
fn apt_believes_a_repository_by_the_key_that_the_spec_names_and_by_no_other() {
    let suite = "      - {name: suite, url: https://packages.example.com/suite, suite: bookworm, components: [main, more], \
                 key: {file: artefacts-keys.asc}, certificateAuthority: {file: ca.crt}}\n";
    let bundle = render(&[REPOSITORIES, suite].concat(), CONTAINERD);
    let place = |name: &str| format!("/etc/apt/sources.list.d/nodestrap-{name}.sources");
    assert_eq!(
        text(&bundle, &place("flat")),
        "Types: deb\nURIs: https://packages.example.com/flat/\nSuites: ./\nSigned-By: /etc/apt/keyrings/nodestrap-flat.asc\n"
    );
    assert_eq!(
        text(&bundle, &place("suite")),
        "Types: deb\nURIs: https://packages.example.com/suite\nSuites: bookworm\nComponents: main more\n\
         Signed-By: /etc/apt/keyrings/nodestrap-suite.asc\n"
    );
    assert_eq!(
        text(&bundle, "/etc/apt/apt.conf.d/90nodestrap-suite"),
        "Acquire::https::packages.example.com::CAInfo \"/etc/apt/keyrings/nodestrap-suite.crt\";\n"
    );
    let key = bundle.file("/etc/apt/keyrings/nodestrap-flat.asc").expect("its key");
    assert_eq!(key.content.text(), Some(KEYS));
    let packages = bundle.packages.as_ref().expect("there are some");
    assert_eq!(packages.manager, PackageManager::Apt);
    assert_eq!(
        packages.repositories.iter().map(|path| path.as_str()).collect::<Vec<_>>(),
        ["flat", "suite"].map(place)
    );
    // All of these come before the package manager is asked for anything.
    assert_eq!(packages.settings.len(), 6, "{:?}", packages.settings);
    assert!(packages.settings.iter().all(|path| has(&bundle, path.as_str())));
}

#[test]
fn dnf_checks_every_signature_and_passes_over_no_repository_that_is_down() {
    let bundle = render(REPOSITORIES, &format!("  os: rhel\n{CONTAINERD}"));
    assert_eq!(
        text(&bundle, "/etc/yum.repos.d/nodestrap-flat.repo"),
        "[nodestrap-flat]\nname=flat, for nodestrap\nbaseurl=https://packages.example.com/flat/\nenabled=1\n\
         skip_if_unavailable=0\ngpgcheck=1\ngpgkey=file:///etc/pki/rpm-gpg/nodestrap-flat.asc\n"
    );
    let key = bundle.file("/etc/pki/rpm-gpg/nodestrap-flat.asc").expect("its key");
    assert_eq!(key.content.text(), Some(KEYS));
    let packages = bundle.packages.as_ref().expect("there are some");
    assert_eq!(packages.manager, PackageManager::Dnf);
    assert!(!packages.keys.is_empty(), "rpm keeps keys as packages, which a reset takes away");
}

#[test]
fn packages_have_one_version_and_are_held_and_what_a_host_needs_has_any() {
    let held = |revision: &str, containerd: &str| {
        [
            format!("{containerd} 2.4.2-1, held"),
            format!("kubectl 1.36.3-{revision}, held"),
            format!("kubelet 1.36.3-{revision}, held"),
        ]
    };
    let sorted = |packages: Vec<String>| {
        let mut packages = packages;
        packages.sort();
        packages
    };
    let expected = |held: [String; 3], needed: &[&str]| {
        sorted(held.into_iter().chain(needed.iter().map(|name| (*name).to_owned())).collect())
    };
    let debian = render(REPOSITORIES, CONTAINERD);
    assert_eq!(sorted(packages(&debian)), expected(held("1.1", "containerd"), &["conntrack", "iptables"]));
    let red_hat = render(REPOSITORIES, &format!("  os: rhel\n{CONTAINERD}"));
    let needed = ["conntrack-tools", "iptables-nft"];
    assert_eq!(sorted(packages(&red_hat)), expected(held("150500.1.1", "containerd.io"), &needed));
    let none = render(REPOSITORIES, &format!("{CONTAINERD}  packages: {{prerequisites: []}}\n"));
    assert_eq!(sorted(packages(&none)), expected(held("1.1", "containerd"), &[]));
    assert_eq!(debian.runtime.source, RuntimeSource::Package);
}

#[test]
fn beside_trees_nothing_is_installed_but_what_the_spec_asks_for() {
    let artefacts = "  artefacts:\n    store: https://a.example.com/nodes/\n    manifest: {file: artefacts.json}\n    \
                     keyrings: [{file: artefacts-keys.asc}]\n";
    assert_eq!(render(artefacts, "  source: tree\n").packages, None);
    let asked = render(artefacts, "  source: tree\n  packages: {prerequisites: [iptables]}\n");
    assert_eq!(packages(&asked), ["iptables"]);
    assert_eq!(render("", "  role: worker\n").packages, None, "nor where the image brings all");
}

const DROP_IN: &str = "/etc/systemd/system/containerd.service.d/10-nodestrap-config.conf";
const UNIT: &str = "/etc/systemd/system/containerd.service";
const FLATCAR: &str = "  artefacts:\n    store: https://artefacts.example.com/nodes\n    manifest: {file: flatcar-artefacts.json}\n    \
                       keyrings: [{file: flatcar-artefacts-keys.asc}]\n";

#[test]
fn flatcars_containerd_stays_and_reads_our_configuration_unless_the_spec_asks_for_another() {
    let names = |bundle: &Bundle| bundle.extensions.iter().map(|extension| extension.name).collect::<Vec<_>>();
    let bundle = render(FLATCAR, "  os: flatcar\n  source: sysext\n");
    assert_eq!(names(&bundle), [ExtensionName::Kubernetes]);
    assert_eq!(bundle.runtime.source, RuntimeSource::Preinstalled);
    assert!(text(&bundle, DROP_IN).contains("[Service]\nEnvironment=") && !has(&bundle, UNIT));
    assert!(text(&bundle, DROP_IN).contains("CONTAINERD_CONFIG=/etc/containerd/config.toml"));
    assert!(bundle.required_programs.iter().any(|path| path.as_str().ends_with("/containerd")));
    let [kubernetes] = bundle.extensions.as_slice() else { panic!("one extension") };
    assert_eq!((kubernetes.version.as_str(), kubernetes.release.sysext_level.as_deref()), ("1.36.3", Some("1.0")));
    assert!(kubernetes.programs.iter().any(|path| path.as_str() == "/usr/bin/kubelet"));
    assert!(kubernetes.links().all(|(place, _)| !place.contains("containerd")));

    let asked = render(FLATCAR, "  os: flatcar\n  source: sysext\n  components: {containerd: {source: sysext}}\n");
    assert_eq!(names(&asked), [ExtensionName::Containerd, ExtensionName::Kubernetes]);
    assert_eq!(asked.runtime.source, RuntimeSource::Sysext);
    assert!(has(&asked, UNIT) && !has(&asked, DROP_IN), "its unit is ours");
    let hidden: Vec<_> = asked.extensions[0].links().filter(|(_, target)| target == "/dev/null").collect();
    assert_eq!(hidden, [("/etc/extensions/containerd-flatcar.raw".to_owned(), "/dev/null".to_owned())]);
}
