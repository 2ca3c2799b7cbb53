//! What `make dist` puts together: the same bytes every time, and a Debian package that works where no systemd runs.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

mod support;

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
    let mut script = program(repository().join("scripts/package"));
    script.arg(&stripped).arg(out).arg(pages.path());
    assert_eq!(finish(script).expect(0).out, format!("{}\n", out.display()));
    let mut packages = std::fs::read_dir(out).unwrap().map(|entry| entry.unwrap().path());
    packages.find(|path| path.extension().is_some_and(|extension| extension == "deb")).unwrap()
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
    for file in
        ["nodestrap", "man/nodestrap-apply.1", "completions/zsh/_nodestrap", "systemd/k8s-node-bootstrap.service"]
    {
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
