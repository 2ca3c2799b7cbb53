//! A GnuPG of the test's own: keys, signatures, and its opinion.

use std::io::Write as _;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};

use tempfile::TempDir;

/// When keys are made, unless a test says otherwise. All times are before that of the machine, which gpgv goes by.
pub(crate) const MADE: &str = "20250101T000000";
/// When things are signed.
pub(crate) const SIGNED: &str = "20250201T000000";

/// Whether GnuPG is here. Where CI=true it must be.
pub(crate) fn gnupg_is_here() -> bool {
    let mut missing = lab::missing_packages();
    missing.retain(|package| ["gnupg", "gpgv"].contains(package));
    if missing.is_empty() {
        return true;
    }
    assert!(std::env::var("CI").as_deref() != Ok("true"), "CI must run every test, but there is no {missing:?}");
    eprintln!("SKIPPED: no GnuPG on this machine; `cargo run -p lab -- prepare --install` installs it");
    false
}

/// A folder with keys. Its agent ends with it.
pub(crate) struct Gnupg {
    home: TempDir,
}

impl Drop for Gnupg {
    fn drop(&mut self) {
        let mut kill = Command::new("gpgconf");
        let _ = kill.arg("--homedir").arg(self.home.path()).args(["--kill", "gpg-agent"]).output();
    }
}

impl Gnupg {
    pub(crate) fn new() -> Self {
        // gpg wants that nobody else can look into it.
        let private = std::fs::Permissions::from_mode(0o700);
        Self { home: tempfile::Builder::new().permissions(private).tempdir().expect("folder") }
    }

    pub(crate) fn path(&self, name: &str) -> PathBuf {
        self.home.path().join(name)
    }

    fn command(&self, at: &str, words: &[&str]) -> Command {
        let mut command = Command::new("gpg");
        command.env("LC_ALL", "C").arg("--homedir").arg(self.home.path());
        command.args(["--quiet", "--no-tty", "--yes", "--pinentry-mode", "loopback", "--passphrase", ""]);
        command.args(["--faked-system-time", &format!("{at}!")]).args(words);
        command
    }

    /// What it prints.
    pub(crate) fn run(&self, at: &str, words: &[&str]) -> Vec<u8> {
        let output = self.command(at, &[&["--batch"], words].concat()).output().expect("gpg runs");
        succeeded(output, words)
    }

    /// With answers to what it asks.
    pub(crate) fn talk(&self, at: &str, words: &[&str], answers: &str) -> Vec<u8> {
        let mut command = self.command(at, &[&["--expert", "--command-fd", "0", "--status-fd", "2"], words].concat());
        let mut child =
            command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().expect("gpg runs");
        child.stdin.take().expect("stdin").write_all(answers.as_bytes()).expect("answers");
        succeeded(child.wait_with_output().expect("gpg ends"), words)
    }

    /// Makes a key, and says its fingerprint.
    pub(crate) fn make_key(&self, at: &str, algorithm: &str, usage: &str, expires: &str) -> String {
        self.make_key_with(at, &[], algorithm, usage, expires)
    }

    pub(crate) fn make_key_with(
        &self,
        at: &str,
        options: &[&str],
        algorithm: &str,
        usage: &str,
        expires: &str,
    ) -> String {
        let user = format!("{algorithm} {usage} <store@example.org>");
        self.run(at, &[options, &["--quick-generate-key", &user, algorithm, usage, expires]].concat());
        self.fingerprints().pop().expect("a key was made").0
    }

    /// Adds a subkey to a key, and says its fingerprint.
    pub(crate) fn add_subkey(&self, at: &str, key: &str, algorithm: &str, usage: &str) -> String {
        self.run(at, &["--quick-add-key", key, algorithm, usage, "never"]);
        let subkeys = self.fingerprints().into_iter().find(|(primary, _)| primary == key).expect("the key is there").1;
        subkeys.last().expect("a subkey was made").clone()
    }

    /// Each primary key with its subkeys.
    fn fingerprints(&self) -> Vec<(String, Vec<String>)> {
        let listed = self.run(SIGNED, &["--with-colons", "--list-keys"]);
        let mut keys: Vec<(String, Vec<String>)> = Vec::new();
        let mut is_primary = false;
        for line in String::from_utf8_lossy(&listed).lines() {
            let fields: Vec<&str> = line.split(':').collect();
            match fields[0] {
                "pub" => is_primary = true,
                "sub" => is_primary = false,
                "fpr" if is_primary => keys.push((fields[9].to_owned(), Vec::new())),
                "fpr" => keys.last_mut().expect("a primary key").1.push(fields[9].to_owned()),
                _ => {}
            }
        }
        keys
    }

    /// An armoured detached signature by exactly this key.
    pub(crate) fn sign(&self, at: &str, key: &str, data: &[u8]) -> Vec<u8> {
        self.sign_with(at, &[], key, data)
    }

    pub(crate) fn sign_with(&self, at: &str, options: &[&str], key: &str, data: &[u8]) -> Vec<u8> {
        let file = self.path("data");
        std::fs::write(&file, data).expect("data");
        let exactly = format!("{key}!");
        let file = file.to_str().expect("path");
        let words = ["--local-user", &exactly, "--output", "-", "--detach-sign", file];
        self.run(at, &[&["--armor"], options, &words].concat())
    }

    /// Binary, as gpgv wants it.
    pub(crate) fn export(&self, keys: &[&str]) -> Vec<u8> {
        self.run(SIGNED, &[&["--export"], keys].concat())
    }

    pub(crate) fn export_secret(&self, options: &[&str], key: &str) -> Vec<u8> {
        self.run(SIGNED, &[options, &["--armor", "--export-secret-keys", key]].concat())
    }

    /// With the certificate that gpg makes for every new key; it gives no reason.
    pub(crate) fn revoke(&self, at: &str, key: &str) {
        let made = self.path("openpgp-revocs.d").join(format!("{key}.rev"));
        let text = std::fs::read_to_string(made).expect("a revocation certificate");
        let usable = self.path("revocation");
        // It has a colon so that nobody uses it by accident.
        std::fs::write(&usable, text.replace(":-----BEGIN", "-----BEGIN")).expect("a file");
        self.run(at, &["--import", usable.to_str().expect("path")]);
    }

    /// Of the given reason: 1 compromised, 2 superseded, 3 no longer used.
    pub(crate) fn revoke_for(&self, at: &str, key: &str, reason: u8) {
        let certificate = self.talk(at, &["--armor", "--gen-revoke", key], &format!("y\n{reason}\n\ny\n"));
        let file = self.path("revocation");
        std::fs::write(&file, certificate).expect("a file");
        self.run(at, &["--import", file.to_str().expect("path")]);
    }

    /// Answers to the prompts of `--edit-key`.
    pub(crate) fn edit(&self, at: &str, key: &str, answers: &str) {
        self.talk(at, &["--edit-key", key], &format!("{answers}save\n"));
    }
}

/// gpgv's opinion.
pub(crate) fn gpgv_accepts(keyring: &[u8], signature: &[u8], data: &[u8]) -> bool {
    let folder = tempfile::tempdir().expect("folder");
    let file = |name: &str, content: &[u8]| {
        let path = folder.path().join(name);
        std::fs::write(&path, content).expect("file");
        path
    };
    let (keyring, signature, data) = (file("keyring", keyring), file("signature", signature), file("data", data));
    judged(folder.path(), &keyring, &signature, &data).status.success()
}

fn judged(home: &Path, keyring: &Path, signature: &Path, data: &Path) -> Output {
    let mut gpgv = Command::new("gpgv");
    gpgv.arg("--homedir").arg(home).arg("--keyring").arg(keyring).arg(signature).arg(data);
    gpgv.output().expect("gpgv runs")
}

#[track_caller]
fn succeeded(output: Output, words: &[&str]) -> Vec<u8> {
    assert!(output.status.success(), "gpg {}: {}", words.join(" "), String::from_utf8_lossy(&output.stderr));
    output.stdout
}
