//! The bootstrap token goes to the two files that need it and nowhere else.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

mod support;

use std::collections::BTreeSet;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};

use support::{BINARY, Ran, Sandbox, can_run, example, finish, nodestrap, program, text};

const CANARY: &str = "canary.c4n4ryc4n4ryc4n4";
/// The half that is secret; the other names the token in the cluster.
const SECRET: &str = "c4n4ryc4n4ryc4n4";

const FORMATS: [&str; 3] = ["text", "json", "yaml"];

struct Setting {
    folder: tempfile::TempDir,
}

impl Setting {
    fn new() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let spec = text(example("minimal.yaml")).replace("abcdef.0123456789abcdef", CANARY);
        assert!(spec.contains(CANARY));
        std::fs::write(folder.path().join("cluster.yaml"), spec).unwrap();
        Self { folder }
    }

    fn spec(&self) -> String {
        self.folder.path().join("cluster.yaml").display().to_string()
    }

    fn bundle(&self) -> String {
        nodestrap(["render", &self.spec(), "--format=bundle"]).expect(0).out
    }

    fn sandbox(&self) -> Sandbox {
        let sandbox = Sandbox::image();
        sandbox.deliver(&self.bundle());
        sandbox
    }
}

#[track_caller]
fn silent(ran: &Ran) {
    for said in [&ran.out, &ran.err] {
        assert!(!holds_secret(said.as_bytes()), "{said}");
    }
}

/// In clear, or inside base64 at any of its three alignments.
fn holds_secret(bytes: &[u8]) -> bool {
    let contains = |needle: &[u8]| bytes.windows(needle.len()).any(|window| window == needle);
    let aligned = |shift: usize| {
        let padded = [&b"\0\0\0"[..shift], SECRET.as_bytes()].concat();
        let encoded = data_encoding::BASE64_NOPAD.encode(&padded);
        // The first and the last characters also carry bits of the neighbours.
        encoded[4..encoded.len() - 4].to_owned()
    };
    contains(SECRET.as_bytes()) || (0..3).any(|shift| contains(aligned(shift).as_bytes()))
}

fn files_with_the_secret(root: &Path) -> BTreeSet<PathBuf> {
    let mut found = BTreeSet::new();
    let mut todo = vec![root.to_owned()];
    while let Some(path) = todo.pop() {
        let metadata = path.symlink_metadata().unwrap();
        if metadata.is_dir() {
            todo.extend(std::fs::read_dir(&path).unwrap().map(|entry| entry.unwrap().path()));
        } else if metadata.is_file() && holds_secret(&std::fs::read(&path).unwrap()) {
            assert_eq!(metadata.permissions().mode() & 0o7777, 0o600, "{}", path.display());
            found.insert(Path::new("/").join(path.strip_prefix(root).unwrap()));
        }
    }
    found
}

#[test]
fn no_command_says_the_token_in_any_format() {
    let setting = Setting::new();
    for format in FORMATS {
        for command in ["check", "complete", "explain"] {
            silent(&nodestrap([command, &setting.spec(), "-o", format]).expect(0));
        }
        silent(&nodestrap(["explain", &setting.spec(), "bootstrapToken", "-o", format]).expect(0));
        let sandbox = setting.sandbox();
        for progress in ["plain", "json"] {
            silent(&sandbox.run("plan", &["-o", format]).expect(0));
            silent(&sandbox.run("apply", &["-o", format, "--progress", progress]).expect(0));
            silent(&sandbox.run("status", &["-o", format]).expect(0));
            silent(&sandbox.run("timeline", &["-o", format]).expect(0));
            silent(&sandbox.run("timeline", &["--svg", "-"]).expect(0));
        }
    }
}

#[test]
fn no_failure_says_the_token() {
    let setting = Setting::new();
    let spec = text(setting.spec());
    let file = setting.folder.path().join("wrong.yaml");
    for (right, wrong) in [
        ("bootstrapToken", "bootstrapTokn"),
        (CANARY, "canary.c4n4ryc4n4ryc4n4x"),
        (CANARY, "{fiel: canary.c4n4ryc4n4ryc4n4}"),
        (CANARY, "[canary.c4n4ryc4n4ryc4n4]"),
        ("join: {", "join: {typo: 1, "),
        ("join: {bootstrapToken: ", "join: {bootstrapToken: \"unclosed "),
    ] {
        std::fs::write(&file, spec.replace(right, wrong)).unwrap();
        for command in ["check", "complete", "explain", "render"] {
            silent(&nodestrap([command, &file.display().to_string()]).expect(2));
        }
    }
    // A bundle that fails at every stage of reading.
    let whole = setting.bundle();
    let sandbox = Sandbox::image();
    for length in (0..whole.len() - 2).step_by(211) {
        sandbox.deliver(&whole[..length]);
        silent(&sandbox.run("plan", &[]).expect(2));
        silent(&sandbox.run("status", &["-o", "json"]).expect(2));
    }
    for position in (0..whole.len() - 1).step_by(211) {
        let mut bytes = whole.clone().into_bytes();
        bytes[position] ^= 2;
        sandbox.write(support::BUNDLE, bytes);
        silent(&sandbox.run("apply", &[]).expect(2));
    }
    // The file with the token cannot be written.
    let sandbox = setting.sandbox();
    std::fs::create_dir_all(sandbox.path("/etc/kubernetes/bootstrap-kubelet.kubeconfig")).unwrap();
    silent(&sandbox.run("apply", &["--progress=json", "-o", "json"]).expect(4));
    silent(&sandbox.run("status", &["-o", "json"]).expect(4));
}

#[test]
fn the_token_lies_in_two_files_of_their_owner_only() {
    let setting = Setting::new();
    let sandbox = setting.sandbox();
    sandbox.run("apply", &[]).expect(0);
    let expected = ["/etc/kubernetes/bootstrap-kubelet.kubeconfig", support::BUNDLE].map(PathBuf::from);
    assert_eq!(files_with_the_secret(sandbox.root()), BTreeSet::from(expected));
    assert!(!holds_secret(&std::fs::read(sandbox.path(support::JOURNAL)).unwrap()));
}

#[test]
fn what_is_rendered_keeps_the_token_for_its_owner() {
    let setting = Setting::new();
    std::fs::set_permissions(setting.spec(), std::fs::Permissions::from_mode(0o600)).unwrap();
    let out = |name: &str| setting.folder.path().join(name).display().to_string();
    for format in ["cloud-config", "bundle", "folder"] {
        silent(&nodestrap(["render", &setting.spec(), "--format", format, "--out", &out(format)]).expect(0));
    }
    // User data is packed, which hides it from this search but not from a reader.
    assert_eq!(std::fs::metadata(out("cloud-config")).unwrap().permissions().mode() & 0o7777, 0o600);
    assert_eq!(files_with_the_secret(setting.folder.path()).len(), 3);
}

#[test]
fn modes_do_not_depend_on_the_umask() {
    for umask in ["000", "077", "027"] {
        let sandbox = Setting::new().sandbox();
        let mut shell = program("sh");
        shell.args(["-c", "umask \"$1\"; exec \"$0\" apply --root \"$2\"", BINARY, umask]).arg(sandbox.root());
        finish(shell).expect(0);
        let bundle: serde_json::Value = serde_json::from_str(&text(sandbox.path(support::BUNDLE))).unwrap();
        let files = bundle["files"].as_array().unwrap();
        assert!(files.len() > 4);
        for file in files {
            let mode = u32::from_str_radix(file["mode"].as_str().unwrap(), 8).unwrap();
            assert_eq!(sandbox.mode(file["path"].as_str().unwrap()), mode, "umask {umask}: {file}");
            assert_eq!(mode, if file["secret"] == true { 0o600 } else { 0o644 }, "{file}");
        }
        assert_eq!(sandbox.mode(support::GATE), 0o644, "umask {umask}");
        assert_eq!(sandbox.mode(support::JOURNAL), 0o600, "umask {umask}");
        assert_eq!(sandbox.mode("/var/lib/nodestrap"), 0o700, "umask {umask}");
        for folder in ["/etc/kubernetes", "/etc/kubernetes/pki", "/etc/containerd", "/etc/cni/net.d"] {
            assert_eq!(sandbox.mode(folder), 0o755, "umask {umask}: {folder}");
        }
    }
}

#[test]
fn no_option_takes_a_secret() {
    for command in
        ["try", "check", "complete", "explain", "render", "plan", "apply", "status", "timeline", "gate", "network"]
    {
        let help = nodestrap(["help", command]).expect(0).out.to_lowercase();
        let options = help.split_whitespace().filter(|word| word.starts_with("--"));
        for option in options.filter(|option| *option != "--show-secrets") {
            assert!(
                !["token", "secret", "password", "key"].iter().any(|word| option.contains(word)),
                "{command} {option}"
            );
        }
    }
}

#[test]
fn apply_runs_no_other_program() {
    if !can_run("strace") {
        return;
    }
    let sandbox = Setting::new().sandbox();
    let log = sandbox.path("/trace");
    let mut strace = program("strace");
    strace.args(["-f", "-qq", "-e", "trace=execve,execveat", "-o"]).arg(&log).arg(BINARY);
    strace.args(sandbox.arguments("apply", &[]));
    finish(strace).expect(0);
    let traced = text(&log);
    assert_eq!(traced.matches("exec").count(), 1, "{traced}");
}
