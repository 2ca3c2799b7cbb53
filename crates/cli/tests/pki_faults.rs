//! `pki` and folders that are not as they should be: expired, of another cluster, damaged, open to everybody.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

mod support;

use std::collections::BTreeMap;
use std::os::unix::fs::{PermissionsExt as _, symlink};
use std::path::{Path, PathBuf};
use std::time::{Duration, SystemTime};

use pki::{ControlPlane, KeyAlgorithm, Validity, control_plane_files};
use serde_json::Value;
use support::{Ran, example, finish, nodestrap, program, text};

const API_SERVER: &str = "https://10.0.0.10:6443";
const MINUTE: Duration = Duration::from_secs(60);

struct Desk {
    folder: tempfile::TempDir,
}

impl Desk {
    fn created() -> Self {
        let desk = Self { folder: tempfile::tempdir().unwrap() };
        desk.create(&[]).expect(0);
        desk
    }

    /// Authorities that ended a minute ago, and leaves that ended before them.
    fn ended() -> Self {
        let desk = Self { folder: tempfile::tempdir().unwrap() };
        let now = SystemTime::now();
        let past = |lifetime| Validity { start: now - MINUTE * 60, lifetime };
        let wanted = ControlPlane {
            cluster_name: "demo".into(),
            api_server: API_SERVER.into(),
            nodes: vec![],
            service_addresses: vec!["10.96.0.1".parse().unwrap()],
            cluster_domain: "cluster.local".into(),
            aliases: vec![],
            extra_names: vec![],
            algorithm: KeyAlgorithm::EcdsaP256,
            authority_validity: past(MINUTE * 59),
            validity: past(MINUTE * 58),
            now: now - MINUTE * 60,
        };
        for file in control_plane_files(&wanted).unwrap() {
            let path = desk.path(&file.path);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(&path, file.content.expose()).unwrap();
            std::fs::set_permissions(&path, std::fs::Permissions::from_mode(file.mode)).unwrap();
        }
        desk
    }

    fn path(&self, file: &str) -> PathBuf {
        self.folder.path().join("out").join(file)
    }

    fn out(&self) -> String {
        self.path("").display().to_string().trim_end_matches('/').to_owned()
    }

    fn create(&self, more: &[&str]) -> Ran {
        let mut words = vec!["pki", "create", "--cluster=demo", "--api-server", API_SERVER, "--out"];
        let out = self.out();
        words.push(&out);
        words.extend(more);
        nodestrap(words)
    }

    fn run(&self, command: &str, more: &[&str]) -> Ran {
        nodestrap([&["pki", command, &self.out()], more].concat())
    }

    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        let mut found = BTreeMap::new();
        let mut folders = vec![self.path("")];
        while let Some(folder) = folders.pop() {
            for entry in std::fs::read_dir(folder).unwrap() {
                let path = entry.unwrap().path();
                match path.is_dir() {
                    true => folders.push(path),
                    false => drop(found.insert(path.clone(), std::fs::read(&path).unwrap_or_default())),
                }
            }
        }
        found.remove(&self.path(".nodestrap-pki.lock"));
        found
    }
}

#[test]
fn an_expired_authority_renews_nothing_and_what_to_do_is_said() {
    let desk = Desk::ended();
    let before = desk.files();
    for more in [&[][..], &["--all"], &["apiserver"], &["--all", "--new-key"]] {
        desk.run("renew", more).expect(4).says(&["has expired", "make new authorities", "pki create"]);
        assert!(before == desk.files(), "{more:?}");
    }
}

#[test]
fn create_names_what_has_expired_and_signs_nothing_with_it() {
    let desk = Desk::ended();
    let ran = desk.create(&[]).expect(4);
    for line in ["✗ pki/ca.crt has expired", "make new authorities in another folder"] {
        assert!(ran.out.contains(line), "{}", ran.out);
    }
    let json = desk.create(&["-o", "json"]).expect(4).json();
    assert_eq!(json["expired"].as_array().unwrap().len(), 15);
    std::fs::remove_file(desk.path("pki/apiserver.crt")).unwrap();
    desk.create(&[]).expect(4).says(&["pki/ca.crt has expired", "pki/apiserver.crt"]);
    assert!(!desk.path("pki/apiserver.crt").exists());
}

#[test]
fn create_for_another_server_or_cluster_keeps_nothing_silently() {
    let desk = Desk::created();
    let (before, out) = (desk.files(), desk.out());
    for (cluster, server, words) in [
        ("demo", "https://10.9.9.9:6443", vec!["pki/apiserver.crt lacks 10.9.9.9"]),
        // The certificate knows this one.
        ("demo", "https://127.0.0.1:6443", vec!["admin.conf", "10.0.0.10", "127.0.0.1", "another folder"]),
        ("other", API_SERVER, vec!["admin.conf", "\"demo\"", "\"other\"", "another folder"]),
    ] {
        let ran = nodestrap(["pki", "create", "--cluster", cluster, "--api-server", server, "--out", &out]);
        ran.expect(4).says(&words);
        assert!(before == desk.files(), "{cluster} {server}");
    }
}

#[test]
fn the_api_server_is_known_by_the_names_that_dns_publishes() {
    let folder = tempfile::tempdir().unwrap();
    let spec = folder.path().join("spec.yaml");
    let names = "  kubeApiserver: {internalName: api.internal.example, externalName: api.example.com}\n";
    let document = text(example("control-plane.yaml")).replacen("  pki: ", &format!("{names}  pki: "), 1);
    std::fs::write(&spec, document).unwrap();
    let out = folder.path().join("control-plane").display().to_string();
    nodestrap(["pki", "create", &spec.display().to_string(), "--out", &out]).expect(0);
    let inspected = |file: &str| {
        let file = format!("{out}/pki/{file}");
        nodestrap(["pki", "inspect", &file, "-o", "json"]).expect(0).json()["certificates"][0]["names"].to_string()
    };
    for name in ["api.internal.example", "api.example.com"] {
        assert!(inspected("apiserver.crt").contains(&format!("\"{name}\"")), "{name}");
        assert!(!inspected("etcd/server.crt").contains(name), "{name}");
    }
}

fn openssl(words: &[&str]) {
    let mut command = program("openssl");
    command.args(words);
    finish(command).expect(0);
}

/// Another authority of the same name, whose name is a printable string as kubeadm's is.
fn put_another_authority(desk: &Desk) {
    let [key, certificate] = ["pki/ca.key", "pki/ca.crt"].map(|file| desk.path(file).display().to_string());
    let settings = desk.folder.path().join("openssl.cnf");
    let text = "[req]\ndistinguished_name=dn\nx509_extensions=ca\nstring_mask=default\nprompt=no\n\
                [dn]\nCN=kubernetes\n[ca]\nbasicConstraints=critical,CA:true\n";
    std::fs::write(&settings, text).unwrap();
    openssl(&["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", &key]);
    let settings = settings.display().to_string();
    openssl(&["req", "-x509", "-new", "-key", &key, "-days", "9", "-config", &settings, "-out", &certificate]);
}

#[test]
fn another_authority_of_the_same_name_is_found_however_the_name_is_encoded() {
    let desk = Desk::created();
    put_another_authority(&desk);
    let ran = desk.run("inspect", &[]).expect(4);
    for line in ["✗ pki/apiserver.crt was not signed by pki/ca.crt", "✗ admin.conf was not signed by pki/ca.crt"] {
        assert!(ran.out.contains(line), "{}", ran.out);
    }
    let before = desk.files();
    desk.run("renew", &["--all"]).expect(4).says(&["admin.conf was not issued by pki/ca.crt"]);
    assert!(before == desk.files());
}

#[test]
fn one_odd_file_is_one_row_and_the_rest_is_inspected_and_renewed() {
    let desk = Desk::created();
    let der = desk.path("pki/der.crt").display().to_string();
    openssl(&["x509", "-in", &desk.path("pki/ca.crt").display().to_string(), "-outform", "DER", "-out", &der]);
    std::fs::write(desk.path("pki/binary.pem"), [0xff, 0, 1]).unwrap();
    symlink("/nonexistent/place", desk.path("pki/dangling.key")).unwrap();
    let mut pipe = program("mkfifo");
    pipe.arg(desk.path("pki/pipe.pem"));
    finish(pipe).expect(0);
    let odd = ["pki/binary.pem", "pki/dangling.key", "pki/der.crt", "pki/pipe.pem"];
    let json = desk.run("inspect", &["-o", "json"]).expect(4).json();
    assert_eq!(json["certificates"].as_array().unwrap().len(), 15);
    let rows: Vec<&Value> = json["others"].as_array().unwrap().iter().filter(|row| row["fault"].is_string()).collect();
    assert_eq!(rows.iter().map(|row| row["file"].as_str().unwrap()).collect::<Vec<_>>(), odd);
    assert!(rows.iter().all(|row| row["what"] == "not readable"), "{rows:?}");
    assert!(rows[1]["fault"].as_str().unwrap().contains("No such file"), "{rows:?}");
    std::fs::remove_file(desk.path("pki/pipe.pem")).unwrap();
    let before = desk.files();
    let ran = desk.run("renew", &["--all"]).expect(4);
    assert!(ran.out.contains("12 renewed"), "{}", ran.out);
    for file in &odd[..3] {
        assert!(ran.out.contains(&format!("✗ {file} was left alone: ")), "{}", ran.out);
        assert!(before[&desk.path(file)] == desk.files()[&desk.path(file)]);
    }
    // What is damaged and called as a kubeconfig is not taken for the configuration of something else.
    std::fs::write(desk.path("scheduler.conf"), "garbage\n").unwrap();
    assert!(desk.run("inspect", &[]).expect(4).out.contains("✗ scheduler.conf "));
    // A key that cannot be read stops a renewal that needs it, before anything is written.
    std::fs::write(desk.path("pki/apiserver.key"), [0xff]).unwrap();
    let before = desk.files();
    desk.run("renew", &["apiserver", "admin.conf"]).expect(4).says(&["pki/apiserver.key", "not text"]);
    assert!(before == desk.files());
}

#[test]
fn keys_that_everybody_may_read_are_named() {
    let desk = Desk::created();
    let open = |path: &Path| std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
    assert!(!desk.run("inspect", &[]).expect(0).out.contains("open to everybody"));
    open(&desk.path("pki/ca.key"));
    open(&desk.path("admin.conf"));
    for ran in [desk.run("inspect", &[]).expect(0), desk.create(&[]).expect(0)] {
        for file in ["pki/ca.key", "admin.conf"] {
            let line = format!("! {file} holds a private key and is open to everybody (mode 0644): chmod 600");
            assert!(ran.out.contains(&line), "{}", ran.out);
        }
    }
    let json = desk.run("inspect", &["-o", "json"]).expect(0).json();
    assert_eq!(json["exposed"][0]["file"], "admin.conf");
}

/// The example of a control plane, with its folder beside it.
fn control_plane_spec() -> (tempfile::TempDir, String) {
    let folder = tempfile::tempdir().unwrap();
    let spec = folder.path().join("control-plane.yaml");
    std::fs::copy(example("control-plane.yaml"), &spec).unwrap();
    let (spec, out) = (spec.display().to_string(), folder.path().join("control-plane").display().to_string());
    nodestrap(["pki", "create", &spec, "--node=cp-1=10.0.0.10", "--out", &out]).expect(0);
    nodestrap(["check", &spec]).expect(0);
    (folder, spec)
}

#[test]
fn a_spec_whose_folder_is_damaged_or_of_another_cluster_is_refused() {
    let (folder, spec) = control_plane_spec();
    let out = folder.path().join("control-plane");
    for file in ["pki/ca.key", "pki/apiserver.crt", "pki/etcd/peer.key", "pki/sa.pub", "admin.conf", "super-admin.conf"]
    {
        let kept = std::fs::read(out.join(file)).unwrap();
        std::fs::write(out.join(file), "garbage\n").unwrap();
        for command in ["check", "complete"] {
            nodestrap([command, &spec]).expect(2).says(&["control-plane.yaml:9:", file, "nodestrap pki create"]);
        }
        std::fs::write(out.join(file), kept).unwrap();
    }
    let other = Desk::created();
    for file in ["pki/apiserver.crt", "pki/apiserver.key"] {
        std::fs::copy(other.path(file), out.join(file)).unwrap();
    }
    nodestrap(["check", &spec]).expect(2).says(&["pki/apiserver.crt was not signed by pki/ca.crt"]);
    // What the advice says helps.
    for file in ["pki/apiserver.crt", "pki/apiserver.key"] {
        std::fs::remove_file(out.join(file)).unwrap();
    }
    nodestrap(["pki", "create", &spec, "--node=cp-1=10.0.0.10", "--out", &out.display().to_string()]).expect(0);
    nodestrap(["check", &spec]).expect(0);
    let moved = text(&spec).replace("https://10.0.0.10:6443", "https://10.0.0.11:6443");
    std::fs::write(&spec, moved).unwrap();
    nodestrap(["check", &spec]).expect(2).says(&["admin.conf is for the API server \"https://10.0.0.10:6443\""]);
    let again = ["pki", "create", &spec, "--node=cp-1=10.0.0.10", "--out", &out.display().to_string()];
    nodestrap(again).expect(4).says(&["pki/apiserver.crt lacks 10.0.0.11"]);
}

#[test]
fn the_super_administrator_reaches_a_node_only_as_the_first_identity_of_its_kubelet() {
    let (folder, spec) = control_plane_spec();
    let files = folder.path().join("files");
    let out = files.display().to_string();
    nodestrap(["render", &spec, "--group=control-plane", "--format=folder", "--out", &out]).expect(0);
    let below = files.join("root/etc/kubernetes");
    assert!(!below.join("super-admin.conf").exists());
    let first = text(below.join("bootstrap-kubelet.kubeconfig"));
    assert_eq!(first, text(folder.path().join("control-plane/super-admin.conf")));
}
