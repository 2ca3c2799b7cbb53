//! `pki create`, `inspect` and `renew` as people run them, with openssl as the judge of every certificate.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

mod support;

use std::collections::BTreeMap;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::{Duration, SystemTime};

use serde_json::Value;
use support::{BINARY, Ran, example, finish, nodestrap, program, text};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

struct Desk {
    folder: tempfile::TempDir,
}

impl Desk {
    fn new() -> Self {
        Self { folder: tempfile::tempdir().unwrap() }
    }

    fn created() -> Self {
        let desk = Self::new();
        desk.create(&[]).expect(0);
        desk
    }

    fn out(&self) -> PathBuf {
        self.folder.path().join("out")
    }

    fn path(&self, file: &str) -> PathBuf {
        self.out().join(file)
    }

    fn create(&self, more: &[&str]) -> Ran {
        let out = self.out().display().to_string();
        let mut words =
            vec!["pki", "create", "--cluster=demo", "--api-server=https://api.example.com:6443", "--out", &out];
        words.extend(["--node=cp-1=10.0.0.10,fd00::10", "--name=extra.example.com"]);
        words.extend(more);
        nodestrap(words)
    }

    fn run(&self, command: &str, more: &[&str]) -> Ran {
        let out = self.out().display().to_string();
        let mut words = vec!["pki", command, &out];
        words.extend(more);
        nodestrap(words)
    }

    /// The certificates by file.
    fn inspected(&self, code: i32) -> BTreeMap<String, Value> {
        let json = self.run("inspect", &["-o", "json"]).expect(code).json();
        let certificates = json["certificates"].as_array().unwrap().iter();
        certificates.map(|found| (found["file"].as_str().unwrap().to_owned(), found.clone())).collect()
    }

    fn files(&self) -> BTreeMap<PathBuf, Vec<u8>> {
        files_below(&self.out())
    }
}

fn files_below(folder: &Path) -> BTreeMap<PathBuf, Vec<u8>> {
    let mut found = BTreeMap::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            found.extend(files_below(&path));
        } else if path.file_name().is_some_and(|name| name != ".nodestrap-pki.lock") {
            found.insert(path.clone(), std::fs::read(&path).unwrap());
        }
    }
    found
}

fn mode(path: &Path) -> u32 {
    path.metadata().unwrap().permissions().mode() & 0o7777
}

fn openssl(words: &[&str]) -> Ran {
    let mut command = program("openssl");
    command.args(words);
    finish(command)
}

/// Every key that lies in the folder, as the lines that must appear nowhere else.
fn key_lines(files: &BTreeMap<PathBuf, Vec<u8>>) -> Vec<String> {
    let mut lines = Vec::new();
    for content in files.values() {
        let content = String::from_utf8(content.clone()).unwrap();
        if content.contains("PRIVATE KEY") {
            lines.extend(content.lines().filter(|line| line.len() > 40).map(str::to_owned));
        }
        let data = content.lines().filter_map(|line| line.trim().strip_prefix("client-key-data: "));
        lines.extend(data.map(|data| data[60..120].to_owned()));
    }
    lines
}

#[test]
fn keys_are_for_their_owner_whatever_the_umask() {
    for umask in ["000", "077"] {
        let desk = Desk::new();
        let mut shell = program("sh");
        let script = "umask \"$1\"; exec \"$0\" pki create --cluster demo --api-server https://10.0.0.10 --node cp-1 --out \"$2\"";
        shell.args(["-c", script, BINARY, umask]).arg(desk.out());
        finish(shell).expect(0);
        let files = desk.files();
        assert_eq!(files.len(), 28);
        for path in files.keys() {
            let is_public = path.extension().is_some_and(|ending| ending == "crt" || ending == "pub");
            assert_eq!(mode(path), if is_public { 0o644 } else { 0o600 }, "{}", path.display());
        }
        for folder in ["", "pki", "pki/etcd", "nodes", "nodes/cp-1"] {
            assert_eq!(mode(&desk.path(folder)), 0o700, "{folder}");
        }
    }
}

#[test]
fn creating_twice_changes_nothing_and_says_what_was_kept() {
    let desk = Desk::created();
    let before = desk.files();
    let view = desk.create(&["-o", "json"]).expect(0).json();
    assert_eq!(view["written"].as_array().unwrap().len(), 0);
    assert_eq!(view["kept"].as_array().unwrap().len(), before.len());
    assert!(before == desk.files());
    std::fs::remove_file(desk.path("pki/apiserver.crt")).unwrap();
    let ran = desk.create(&[]).expect(0);
    assert!(ran.out.contains("new   pki/apiserver.crt") && ran.out.contains("kept  pki/apiserver.key"), "{}", ran.out);
    let after = desk.files();
    let changed: Vec<_> = before.keys().filter(|path| before[*path] != after[*path]).collect();
    assert_eq!(changed, [&desk.path("pki/apiserver.crt")]);
}

#[test]
fn a_run_that_is_killed_anywhere_is_completed_by_the_next_one() {
    if !support::can_run("strace") {
        return;
    }
    let mut kills = 0;
    for call in
        ["renameat:when=1", "renameat:when=2", "renameat:when=9", "renameat:when=27", "syncfs:when=1", "syncfs:when=2"]
    {
        let desk = Desk::new();
        let (name, when) = call.split_once(':').unwrap();
        let name = if name == "renameat" { "rename,renameat,renameat2" } else { name };
        let mut strace = program("strace");
        strace.args(["-f", "-qq", "-o", "/dev/null", "-e", &format!("inject={name}:signal=SIGKILL:{when}"), BINARY]);
        strace.args(["pki", "create", "--cluster=demo", "--api-server=https://api.example.com:6443"]);
        strace.args(["--node=cp-1=10.0.0.10,fd00::10", "--name=extra.example.com", "--out"]).arg(desk.out());
        kills += i32::from(finish(strace).code != Some(0));
        let before = desk.files();
        desk.create(&[]).expect(0);
        assert!(desk.inspected(0).len() > 10, "{call}");
        let after = desk.files();
        for (path, content) in before {
            // What had its name kept its bytes; what had none yet is gone.
            let is_temporary = path.file_name().unwrap().to_string_lossy().starts_with('.');
            assert!(
                if is_temporary { !after.contains_key(&path) } else { after[&path] == content },
                "{}",
                path.display()
            );
        }
        assert_eq!(after.len(), 28, "{call}");
    }
    assert_eq!(kills, 6);
}

#[test]
fn two_at_once_do_not_mix() {
    let desk = Desk::new();
    std::fs::create_dir(desk.out()).unwrap();
    let out = desk.out().display().to_string();
    let lock = desk.path(".nodestrap-pki.lock");
    let mut holder = program("flock");
    holder.arg(&lock).args(["sh", "-c", "echo ready; read line"]).stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut holder = holder.spawn().unwrap();
    let mut ready = String::new();
    std::io::BufRead::read_line(&mut std::io::BufReader::new(holder.stdout.take().unwrap()), &mut ready).unwrap();
    desk.create(&[]).expect(5).says(&[&out]);
    drop(holder.stdin.take());
    holder.wait().unwrap();
    desk.create(&[]).expect(0);
}

#[test]
fn a_spec_says_the_same_as_options() {
    let desk = Desk::new();
    let (file, out) = (example("minimal.yaml").display().to_string(), desk.out().display().to_string());
    nodestrap(["pki", "create", &file, "--out", &out]).expect(0);
    let names = desk.inspected(0)["pki/apiserver.crt"]["names"].to_string();
    for name in ["10.0.0.10", "10.96.0.1", "kubernetes.default.svc.cluster.local"] {
        assert!(names.contains(name), "{names}");
    }
    assert!(text(desk.path("admin.conf")).contains("https://10.0.0.10:6443"));
    nodestrap(["pki", "create", "--out", &out]).expect(2);
    nodestrap(["pki", "create", &file, "--cluster", "x", "--api-server", "https://x", "--out", &out]).expect(2);
    nodestrap(["pki", "create", "--cluster", "x", "--api-server", "http://x", "--out", &out]).expect(2);
}

#[test]
fn a_spec_may_name_the_files_that_are_made_from_it() {
    let desk = Desk::new();
    let spec = desk.folder.path().join("control-plane.yaml");
    std::fs::copy(example("control-plane.yaml"), &spec).unwrap();
    let out = desk.folder.path().join("control-plane").display().to_string();
    let spec = spec.display().to_string();
    nodestrap(["pki", "create", &spec, "--node=cp-1=10.0.0.10", "--out", &out]).expect(0);
    let authority = std::fs::read(desk.folder.path().join("control-plane/pki/ca.crt")).unwrap();
    nodestrap(["check", &spec]).expect(0);
    let shown = openssl(&["x509", "-noout", "-subject", "-in", &format!("{out}/pki/ca.crt")]).expect(0).out;
    assert!(!shown.contains("nobody"), "{shown}");
    nodestrap(["pki", "create", &spec, "--node=cp-1=10.0.0.10", "--out", &out]).expect(0);
    assert_eq!(std::fs::read(desk.folder.path().join("control-plane/pki/ca.crt")).unwrap(), authority);
}

#[test]
fn openssl_accepts_every_certificate_for_what_it_is_for() {
    for (algorithm, described) in [("ecdsa-p256", "ECDSA P-256"), ("rsa2048", "RSA 2048")] {
        let desk = Desk::new();
        desk.create(&["--algorithm", algorithm]).expect(0);
        let mut checked = 0;
        for (file, found) in desk.inspected(0) {
            assert_eq!(found["algorithm"], described, "{file}");
            let authority = desk.path(found["issuedBy"].as_str().unwrap()).display().to_string();
            let usages: Vec<&str> =
                found["usages"].as_array().unwrap().iter().map(|usage| usage.as_str().unwrap()).collect();
            let mut path = desk.path(&file).display().to_string();
            if file.ends_with(".conf") {
                path = desk.folder.path().join("inner.crt").display().to_string();
                let kubeconfig: Value = serde_saphyr::from_str(&text(desk.path(&file))).unwrap();
                let data = kubeconfig["users"][0]["user"]["client-certificate-data"].as_str().unwrap().to_owned();
                std::fs::write(&path, data_encoding::BASE64.decode(data.as_bytes()).unwrap()).unwrap();
            }
            for (usage, purpose) in [("client", "sslclient"), ("server", "sslserver")] {
                let verify = openssl(&["verify", "-x509_strict", "-CAfile", &authority, "-purpose", purpose, &path]);
                let is_authority = usages == ["authority"];
                let expected = if is_authority || usages.contains(&usage) { 0 } else { 2 };
                assert_eq!(verify.code, Some(expected), "{file} {purpose}: {}{}", verify.out, verify.err);
                checked += i32::from(!is_authority && expected == 0);
            }
            let name = ["verify", "-CAfile", &authority, "-verify_hostname", "cp-1", &path];
            let is_server = usages.contains(&"server");
            assert_eq!(openssl(&name).code == Some(0), is_server, "{file}");
        }
        // Ten leaves with one use, two with both.
        assert_eq!(checked, 15);
        let (key, public) = (desk.path("pki/sa.key").display().to_string(), text(desk.path("pki/sa.pub")));
        assert_eq!(openssl(&["pkey", "-in", &key, "-pubout"]).expect(0).out, public);
    }
}

#[test]
fn the_pin_is_the_one_that_openssl_computes() {
    let desk = Desk::created();
    let certificate = desk.path("pki/ca.crt").display().to_string();
    let public = openssl(&["x509", "-in", &certificate, "-noout", "-pubkey"]).expect(0).out;
    let der = desk.folder.path().join("public.der").display().to_string();
    let pem = desk.folder.path().join("public.pem");
    std::fs::write(&pem, public).unwrap();
    openssl(&["pkey", "-pubin", "-in", &pem.display().to_string(), "-outform", "DER", "-out", &der]).expect(0);
    let hash = openssl(&["dgst", "-sha256", "-r", &der]).expect(0).out;
    let pin = format!("sha256:{}", hash.split_whitespace().next().unwrap());
    assert_eq!(desk.inspected(0)["pki/ca.crt"]["pin"], pin.as_str());
    assert!(desk.run("inspect", &[]).expect(0).out.contains(&format!("pin of pki/ca.crt: {pin}")));
    assert_eq!(desk.create(&["-o", "json"]).expect(0).json()["authorityPin"], pin.as_str());
}

/// What openssl and kubeadm write: PKCS#1 and SEC 1 instead of PKCS#8.
#[test]
fn authorities_that_others_made_go_on_signing() {
    let desk = Desk::new();
    std::fs::create_dir_all(desk.path("pki/etcd")).unwrap();
    let (rsa, curve) =
        (desk.path("pki/ca.key").display().to_string(), desk.path("pki/etcd/ca.key").display().to_string());
    openssl(&["genrsa", "-traditional", "-out", &rsa, "2048"]).expect(0);
    openssl(&["ecparam", "-name", "prime256v1", "-genkey", "-noout", "-out", &curve]).expect(0);
    assert!(text(&rsa).contains("BEGIN RSA PRIVATE KEY") && text(&curve).contains("BEGIN EC PRIVATE KEY"));
    for key in [&rsa, &curve] {
        let certificate = key.replace(".key", ".crt");
        openssl(&["req", "-x509", "-new", "-key", key, "-subj", "/CN=theirs", "-days", "9", "-out", &certificate])
            .expect(0);
    }
    let before = desk.files();
    desk.create(&[]).expect(0);
    for (path, content) in before {
        assert!(std::fs::read(&path).unwrap() == content, "{}", path.display());
    }
    for (authority, leaf) in [("pki/ca.crt", "pki/apiserver.crt"), ("pki/etcd/ca.crt", "pki/etcd/peer.crt")] {
        let [authority, leaf] = [authority, leaf].map(|file| desk.path(file).display().to_string());
        openssl(&["verify", "-CAfile", &authority, &leaf]).expect(0);
    }
    let found = desk.inspected(0);
    assert_eq!(found["pki/apiserver.crt"]["expires"], found["pki/ca.crt"]["expires"], "no leaf outlives its authority");
}

fn put_leaf(desk: &Desk, name: &str, start: SystemTime, lifetime: Duration) {
    let read = |file: &str| pki::Secret::new(text(desk.path(file)));
    let authority = pki::Authority::parse(read("pki/ca.crt").expose(), &read("pki/ca.key")).unwrap();
    let request = pki::LeafRequest {
        common_name: name.into(),
        organization: None,
        names: vec![],
        usages: vec![pki::Usage::Client],
        validity: pki::Validity { start, lifetime },
    };
    let leaf = authority.issue(&request).unwrap();
    std::fs::write(desk.path(&format!("pki/{name}.crt")), leaf.certificate_pem).unwrap();
    std::fs::write(desk.path(&format!("pki/{name}.key")), leaf.key_pem.expose()).unwrap();
}

#[test]
fn inspecting_finds_what_has_expired_and_what_does_not_fit() {
    let (desk, other) = (Desk::created(), Desk::created());
    let ran = desk.run("inspect", &[]).expect(0);
    for word in ["pki/apiserver.crt", "CN=kube-apiserver", "364 days", "ECDSA P-256", "extra.example.com", "admin.conf"]
    {
        assert!(ran.out.contains(word), "no {word:?} in:\n{}", ran.out);
    }
    assert!(!ran.out.contains('\x1b'));
    put_leaf(&desk, "old", SystemTime::now() - DAY * 100, DAY * 90);
    put_leaf(&desk, "soon", SystemTime::now() - DAY, DAY * 21);
    assert_eq!(desk.inspected(4)["pki/old.crt"]["fault"], "has expired");
    let coloured = desk.run("inspect", &["--color=always"]).expect(4).out;
    assert!(
        coloured.contains("\x1b[1;31mexpired\x1b[0m") && coloured.contains("\x1b[1;31m19 days\x1b[0m"),
        "{coloured}"
    );
    assert!(coloured.contains("pki/old.crt has expired"));
    std::fs::remove_file(desk.path("pki/old.crt")).unwrap();
    std::fs::remove_file(desk.path("pki/old.key")).unwrap();
    desk.inspected(0);
    for file in ["pki/apiserver.key", "scheduler.conf", "pki/sa.pub"] {
        let kept = std::fs::read(desk.path(file)).unwrap();
        std::fs::copy(other.path(file), desk.path(file)).unwrap();
        let ran = desk.run("inspect", &[]).expect(4);
        assert!(ran.out.contains("✗ "), "{file}: {}", ran.out);
        desk.create(&[]).expect(4).says(&[file]);
        std::fs::write(desk.path(file), kept).unwrap();
    }
    desk.inspected(0);
    let one = desk.path("pki/apiserver.crt").display().to_string();
    let ran = nodestrap(["pki", "inspect", &one, "-o", "json"]).expect(0).json();
    assert_eq!(ran["certificates"][0]["key"], "matches");
    nodestrap(["pki", "inspect", "/nonexistent"]).expect(4);
    nodestrap(["pki", "inspect", &desk.folder.path().join("out/nodes/cp-1/nothing").display().to_string()]).expect(4);
}

#[test]
fn renewing_keeps_the_key_and_changes_serial_and_dates() {
    let desk = Desk::new();
    desk.create(&["--lifetime=20d", "--ca-lifetime=25d"]).expect(0);
    let (before, files) = (desk.inspected(0), desk.files());
    let ran = desk.run("renew", &["--within=30d", "--lifetime=24d"]).expect(0);
    assert!(ran.out.contains("pki/ca.crt ends in 24 days and is not renewed"), "{}", ran.out);
    let after = desk.inspected(0);
    for (file, old) in &before {
        let new = &after[file];
        let is_authority = old["usages"] == serde_json::json!(["authority"]);
        for field in ["subject", "names", "usages", "pin", "issuer"] {
            assert_eq!(old[field], new[field], "{file} {field}");
        }
        for field in ["serial", "expires", "starts"] {
            // Two runs within one second begin in the same second.
            assert!(field == "starts" || is_authority == (old[field] == new[field]), "{file} {field}");
        }
    }
    let now_there = desk.files();
    for (path, content) in &files {
        let is_certificate = path.extension().is_some_and(|ending| ending == "crt" || ending == "conf");
        assert!(is_certificate || now_there[path] == *content, "{}", path.display());
    }
    assert_eq!(files.len(), now_there.len());
    let nothing = desk.run("renew", &["--within=1d", "-o", "json"]).expect(0).json();
    assert_eq!(nothing["renewed"].as_array().unwrap().len(), 0);
    assert!(desk.files() == now_there);
}

#[test]
fn new_keys_are_made_on_request_only_and_old_ones_stay() {
    let desk = Desk::created();
    let files = desk.files();
    desk.run("renew", &["apiserver", "admin.conf", "--new-key"]).expect(0);
    let after = desk.files();
    let changed: Vec<String> = after
        .iter()
        .filter(|(path, content)| files.get(*path) != Some(*content))
        .map(|(path, _)| path.strip_prefix(desk.out()).unwrap().display().to_string())
        .collect();
    assert_eq!(
        changed,
        ["admin.conf", "admin.conf.old", "pki/apiserver.crt", "pki/apiserver.key", "pki/apiserver.key.old"]
    );
    assert!(after[&desk.path("pki/apiserver.key.old")] == files[&desk.path("pki/apiserver.key")]);
    assert_eq!(mode(&desk.path("pki/apiserver.key.old")), 0o600);
    desk.inspected(0);
    desk.run("renew", &["apiserver", "--new-key"]).expect(4).says(&["pki/apiserver.key.old", "not overwritten"]);
    assert!(after == desk.files());
    for (name, words) in [("ca", "is an authority"), ("nobody", "no certificate is called")] {
        desk.run("renew", &[name]).expect(4).says(&[words]);
    }
    nodestrap(["pki", "renew", "/nonexistent"]).expect(2);
}

#[test]
fn no_command_says_a_key() {
    let desk = Desk::new();
    let mut said = desk.create(&[]).expect(0).out;
    for format in ["text", "json", "yaml"] {
        for (command, more) in [("inspect", vec![]), ("renew", vec!["--all"])] {
            let ran = desk.run(command, &[&["-o", format], more.as_slice()].concat()).expect(0);
            said.push_str(&(ran.out + &ran.err));
        }
    }
    // Failures say none either: each file in turn is damaged.
    let files = desk.files();
    let lines = key_lines(&files);
    assert!(lines.len() > 20);
    for (path, content) in &files {
        let text = String::from_utf8(content.clone()).unwrap();
        for damaged in [
            text[..text.len() * 2 / 3].to_owned(),
            text.replace("client-key-data: ", "client-key-data: ["),
            text + "\n: [",
        ] {
            std::fs::write(path, damaged).unwrap();
            for ran in [desk.create(&[]), desk.run("inspect", &[]), desk.run("renew", &["--all"])] {
                said.push_str(&(ran.out + &ran.err));
            }
            for (path, content) in &files {
                std::fs::write(path, content).unwrap();
            }
        }
    }
    for line in lines {
        assert!(!said.contains(&line), "{line}");
    }
}

fn shell_lines(document: &str) -> Vec<String> {
    let mut inside = false;
    let mut found = Vec::new();
    for line in document.lines() {
        if let Some(language) = line.strip_prefix("```") {
            inside = language == "sh";
        } else if inside {
            found.push(line.to_owned());
        }
    }
    found
}

#[test]
fn the_reference_knows_every_option_file_and_field_and_its_examples_work() {
    let described = text(support::repository().join("docs/reference/pki.md"));
    let desk = Desk::new();
    let bin = desk.folder.path().join("bin");
    std::fs::create_dir(&bin).unwrap();
    std::os::unix::fs::symlink(BINARY, bin.join("nodestrap")).unwrap();
    std::fs::copy(example("minimal.yaml"), desk.folder.path().join("cluster.yaml")).unwrap();
    let mut examples = Vec::new();
    for command in ["create", "inspect", "renew"] {
        let help = nodestrap(["pki", command, "--help"]).expect(0).out;
        let (options, shown) = help.split_once("Examples:").unwrap();
        for option in options.split([' ', '\n', ',', '`']).filter(|word| word.starts_with("--")) {
            let everywhere = ["--output", "--color", "--help", "--version"].contains(&option);
            assert!(everywhere || described.contains(&format!("`{option}")), "docs/reference/pki.md lacks {option}");
        }
        examples.extend(shown.lines().map(|line| line.trim().to_owned()).filter(|line| line.starts_with("nodestrap ")));
    }
    let in_reference = shell_lines(&described);
    // Both sets go through a whole life; the second key of a renewal needs a place.
    for lines in [examples, in_reference] {
        assert_eq!(lines.len(), 6);
        for line in lines {
            let mut shell = program("sh");
            shell.args(["-ec", &line]).current_dir(desk.folder.path());
            shell.env("PATH", format!("{}:/usr/bin:/bin", bin.display()));
            let ran = finish(shell);
            assert_eq!(ran.code, Some(0), "{line}\n{}", ran.err);
        }
        for folder in ["control-plane", "other-cluster"] {
            std::fs::remove_dir_all(desk.folder.path().join(folder)).unwrap();
        }
    }
    let desk = Desk::created();
    for (file, view) in desk.inspected(0) {
        let stem = file.replace("cp-1", "NAME").replace(".crt", ".{crt,key}");
        assert!(described.contains(&format!("`{stem}`")), "docs/reference/pki.md lacks {stem}");
        for field in view.as_object().unwrap().keys() {
            assert!(described.contains(&format!("`{field}`")), "docs/reference/pki.md lacks {field}");
        }
    }
}
