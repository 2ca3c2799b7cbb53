//! What `make dist` puts together: the same bytes every time, and a Debian package that works where no systemd runs.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

mod support;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use support::{BINARY, can_run, finish, program, repository, text};

/// With the program that is tested here, which is not the static one; without what debuggers need, which is most of it.
fn package(out: &Path) -> PathBuf {
    let folder = tempfile::tempdir().unwrap();
    let stripped = folder.path().join("nodestrap");
    let mut strip = program("strip");
    strip.arg(BINARY).arg("-o").arg(&stripped);
    finish(strip).expect(0);
    let pages = tempfile::tempdir().unwrap();
    for (folder, files) in [("man", pages::manual()), ("completions", pages::completions())] {
        for (name, content) in files {
            let path = pages.path().join(folder).join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content).unwrap();
        }
    }
    std::fs::write(pages.path().join("nodestrap.cdx.json"), sbom()).unwrap();
    let mut script = program(repository().join("scripts/package"));
    script.arg(&stripped).arg(out).arg(pages.path());
    assert_eq!(finish(script).expect(0).out, format!("{}\n", out.display()));
    let mut packages = std::fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path());
    packages.find(|path| path.extension().is_some_and(|extension| extension == "deb")).unwrap()
}

/// With the environment that it was started in: it has to find its compiler.
fn cargo(arguments: &[&str]) -> String {
    let asked = std::process::Command::new(env!("CARGO")).args(arguments).current_dir(repository()).output().unwrap();
    assert!(asked.status.success(), "{}", String::from_utf8_lossy(&asked.stderr));
    String::from_utf8(asked.stdout).unwrap()
}

/// Where the tests run, as `make dist` does for the target of a release.
fn sbom() -> String {
    let tree = cargo(&pages::TREE_ARGUMENTS);
    pages::sbom(&tree, &text(repository().join("Cargo.lock")), "1.95.0").unwrap()
}

/// Asked of cargo in another way than the list was made from.
#[test]
fn the_list_of_what_the_binary_is_made_of_has_every_crate_with_its_licence_and_checksum() {
    let written = sbom();
    assert_eq!(written, sbom(), "two lists differ");
    for chance in ["timestamp", "serialNumber", "urn:uuid", &repository().display().to_string()] {
        assert!(!written.contains(chance), "{chance}");
    }
    let document: serde_json::Value = serde_json::from_str(&written).unwrap();
    assert_eq!((&document["bomFormat"], &document["specVersion"]), (&"CycloneDX".into(), &"1.5".into()));
    let lock = text(repository().join("Cargo.lock"));
    let components = document["components"].as_array().unwrap();
    let arguments =
        ["tree", "--locked", "-p", "cli", "-e", "normal", "--prefix", "none", "--no-dedupe", "--format={p} "];
    let wanted: BTreeSet<String> = cargo(&arguments).lines().map(str::to_owned).collect();
    assert!(wanted.len() > 100, "{wanted:?}");
    for line in &wanted {
        let [name, version] = line.split(' ').take(2).collect::<Vec<_>>()[..] else { panic!("{line}") };
        let version = version.trim_start_matches('v');
        if name == "cli" {
            assert_eq!(document["metadata"]["component"]["version"], version);
            continue;
        }
        let is_it = |component: &&serde_json::Value| component["name"] == name && component["version"] == version;
        let found: Vec<_> = components.iter().filter(is_it).collect();
        let [component] = found[..] else { panic!("{line} is there {} times", found.len()) };
        assert!(component["licenses"][0]["expression"].as_str().is_some_and(|text| text.len() >= 3), "{component}");
        assert!(component["purl"].as_str().unwrap().ends_with(&format!("{name}@{version}")), "{component}");
        if !line.contains("(/") {
            let checksum = component["hashes"][0]["content"].as_str().unwrap();
            let source = "source = \"registry+https://github.com/rust-lang/crates.io-index\"";
            let entry = format!("name = \"{name}\"\nversion = \"{version}\"\n{source}\nchecksum = \"{checksum}\"");
            assert!(lock.contains(&entry), "{component}");
        }
        let reference = format!("{name}@{version}");
        assert!(document["dependencies"].as_array().unwrap().iter().any(|one| one["ref"] == *reference), "{reference}");
    }
    assert_eq!(components.len(), wanted.len(), "all but the binary itself, and the standard library");
}

fn ask(tool: &str, arguments: &[&str], place: &Path) -> String {
    let mut command = program(tool);
    command.args(arguments).current_dir(place);
    finish(command).expect(0).out
}

#[test]
fn a_release_is_the_same_every_time_and_its_package_can_be_installed() {
    if !can_run("dpkg-deb") {
        return;
    }
    let place = tempfile::tempdir().unwrap();
    let deb = package(&place.path().join("one"));
    let again = package(&place.path().join("two"));
    assert!(std::fs::read(&deb).unwrap() == std::fs::read(&again).unwrap(), "two packages differ");
    assert_eq!(text(place.path().join("one/SHA256SUMS")), text(place.path().join("two/SHA256SUMS")));
    ask("sha256sum", &["--check", "--strict", "--quiet", "SHA256SUMS"], &place.path().join("one"));
    for file in [
        "nodestrap",
        "nodestrap.cdx.json",
        "man/nodestrap-apply.1",
        "completions/zsh/_nodestrap",
        "systemd/k8s-node-bootstrap.service",
    ] {
        assert!(text(place.path().join("one/SHA256SUMS")).contains(&format!("  ./{file}\n")), "{file}");
    }
    let deb = deb.display().to_string();
    let information = ask("dpkg-deb", &["--info", &deb], place.path());
    for line in ["Package: nodestrap", "Version: 0.1.0", "Architecture: "] {
        assert!(information.contains(line), "{information}");
    }
    assert!(!information.contains("postinst"), "an image that is not running can run no script");
    let contents = ask("dpkg-deb", &["--contents", &deb], place.path());
    for line in contents.lines() {
        assert!(line.contains(" root/root ") && line.contains(" 1970-01-01 00:00 "), "{line}");
    }
    install(place.path(), &deb);
}

/// As an image is baked: dpkg on a folder, and systemd asked about that folder.
fn install(place: &Path, deb: &str) {
    let root = place.join("image");
    if support::is_root() {
        std::fs::create_dir_all(root.join("var/lib/dpkg/info")).unwrap();
        std::fs::create_dir_all(root.join("var/lib/dpkg/updates")).unwrap();
        std::fs::write(root.join("var/lib/dpkg/status"), "").unwrap();
        ask("dpkg", &[&format!("--root={}", root.display()), "--log=/dev/null", "--install", deb], place);
        let listed = ask("dpkg", &[&format!("--root={}", root.display()), "--verify", "nodestrap"], place);
        assert_eq!(listed, "", "an installed file is not what the package says");
    } else {
        ask("dpkg-deb", &["-x", deb, &root.display().to_string()], place);
    }
    let installed = root.join("usr/bin/nodestrap").display().to_string();
    assert!(ask(&installed, &["--version"], place).starts_with("nodestrap 0.1.0"));
    for file in [
        "usr/share/man/man1/nodestrap.1.gz",
        "usr/share/doc/nodestrap/copyright",
        "usr/share/bash-completion/completions/nodestrap",
    ] {
        assert!(root.join(file).is_file(), "{file}");
    }
    for target in ["multi-user.target", "kubelet.service"] {
        let link = root.join(format!("usr/lib/systemd/system/{target}.wants/k8s-node-bootstrap.service"));
        let unit = std::fs::read_to_string(&link).unwrap_or_else(|error| panic!("{target} does not want it: {error}"));
        assert!(unit.contains("ExecStartPre=/usr/bin/nodestrap apply"), "{target}");
    }
}

#[test]
fn advisories_are_checked_wherever_their_database_can_be_had() {
    let place = tempfile::tempdir().unwrap();
    let deny = place.path().join("cargo-deny");
    let stand_in = "#!/bin/sh\ncase \"$*\" in *'fetch db') exit $NO_NETWORK;; *check*advisories) exit $ADVISORIES;; esac\nexit 99\n";
    std::fs::write(&deny, stand_in).unwrap();
    std::fs::set_permissions(&deny, std::os::unix::fs::PermissionsExt::from_mode(0o755)).unwrap();
    let copy = place.path().join("copied");
    std::fs::create_dir_all(copy.join("advisory-dbs/advisory-db-1/crates")).unwrap();
    std::fs::write(copy.join("advisory-dbs/advisory-db-1/crates/RUSTSEC-1.md"), "").unwrap();
    for (no_network, home, advisories, code, word) in [
        ("0", "none", "0", 0, "none, says the newest"),
        ("0", "none", "1", 1, ""),
        ("1", "copied", "0", 0, "could not be refreshed"),
        ("1", "copied", "1", 1, ""),
        ("1", "none", "1", 0, "NOT CHECKED"),
    ] {
        let mut script = program(repository().join("scripts/check-advisories"));
        script.arg(&deny).env("CARGO_HOME", place.path().join(home));
        script.env("NO_NETWORK", no_network).env("ADVISORIES", advisories);
        let ran = finish(script).expect(code);
        assert!(format!("{}{}", ran.out, ran.err).contains(word), "{}{}", ran.out, ran.err);
    }
}
