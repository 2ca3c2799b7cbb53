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

/// The same secret through every input that may carry one: token, header, secret file, kubeconfig, signed address.
fn everything_secret(webhook: &str) -> String {
    let kubeconfig = format!("apiVersion: v1\\nkind: Config\\nusers: [{{name: p, user: {{token: {SECRET}}}}}]\\n");
    let more = format!(
        "\n  report: {{webhook: \"{webhook}\", headers: {{Authorization: Bearer {SECRET}, X-Key: {SECRET}}}}}\n  \
         fileAssets: [{{path: /etc/example/password, content: {SECRET}, secret: true}}]\n  \
         kubeProxy: {{kubeconfig: \"{kubeconfig}\"}}\n  join:"
    );
    text(example("minimal.yaml")).replace("abcdef.0123456789abcdef", CANARY).replacen("\n  join:", &more, 1)
}

type Heard = std::sync::Arc<std::sync::Mutex<Vec<(String, String)>>>;

/// Takes every request, and gives what it heard: head and body of each.
fn listen() -> (String, Heard) {
    use std::io::{BufRead as _, Read as _, Write as _};
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let heard = Heard::default();
    let hears = std::sync::Arc::clone(&heard);
    std::thread::spawn(move || {
        for stream in listener.incoming() {
            let mut stream = std::io::BufReader::new(stream.unwrap());
            let (mut head, mut length) = (String::new(), 0);
            while !head.ends_with("\r\n\r\n") && stream.read_line(&mut head).unwrap() > 0 {}
            for line in head.to_lowercase().lines() {
                length = line.strip_prefix("content-length: ").map_or(length, |text| text.trim().parse().unwrap());
            }
            let mut body = vec![0; length];
            stream.read_exact(&mut body).unwrap();
            hears.lock().unwrap().push((head, String::from_utf8(body).unwrap()));
            let _ = write!(stream.get_mut(), "HTTP/1.1 200 OK\r\nContent-Length: 0\r\n\r\n");
        }
    });
    (format!("http://{address}/hook/{SECRET}?key={SECRET}"), heard)
}

#[test]
fn no_secret_of_any_input_is_said_or_left_where_others_read() {
    let (webhook, heard) = listen();
    let folder = tempfile::tempdir().unwrap();
    let spec = folder.path().join("cluster.yaml");
    std::fs::write(&spec, everything_secret(&webhook)).unwrap();
    let bundle = nodestrap(["render", &spec.display().to_string(), "--format=bundle"]).expect(0).out;
    // Once well, once with a failure in the middle, twice with a bundle that cannot be fetched.
    let [well, broken, unfetched, signed] = [(); 4].map(|()| Sandbox::image());
    well.deliver(&bundle);
    broken.deliver(&bundle);
    broken.remove("/usr/lib/systemd/system/containerd.service");
    let document: serde_json::Value = serde_json::from_str(&bundle).unwrap();
    let settings = &document["bundle"]["webhook"];
    assert!(settings.is_object(), "{document}");
    // An address with a signature is refused before anybody is asked.
    for (sandbox, query) in [(&unfetched, String::new()), (&signed, format!("?sig={SECRET}"))] {
        let stub = serde_json::json!({
            "apiVersion": "nodestrap.io/v1alpha2", "kind": "BundleReference", "reference": {
                "cluster": "demo", "group": "workers", "digest": document["digest"],
                "urls": [format!("http://127.0.0.1:1/b.json{query}")],
            },
        });
        sandbox.deliver(&stub.to_string());
        // Of an earlier bundle: whoever was told then is told now.
        sandbox.write("/etc/nodestrap/webhook.json", settings.to_string());
        sandbox.chmod("/etc/nodestrap/webhook.json", 0o600);
    }

    for (sandbox, code) in [(&well, 0), (&broken, 4), (&unfetched, 3), (&signed, 2)] {
        let manager = std::os::unix::net::UnixDatagram::bind(sandbox.path("/notify")).unwrap();
        manager.set_nonblocking(true).unwrap();
        let mut apply = program(BINARY);
        apply.args(sandbox.arguments("apply", &["--fetch-deadline=1", "-o", "json"]));
        apply.env("NOTIFY_SOCKET", sandbox.path("/notify"));
        silent(&finish(apply).expect(code));
        let mut buffer = [0; 4096];
        while let Ok(length) = manager.recv(&mut buffer) {
            assert!(!holds_secret(&buffer[..length]), "{}", String::from_utf8_lossy(&buffer[..length]));
        }
        for (command, more) in [
            ("status", &["--json"][..]),
            ("status", &[]),
            ("timeline", &[]),
            ("timeline", &["-o", "json"]),
            ("timeline", &["--svg", "-"]),
            ("plan", &["--fetch-deadline=1", "-o", "json"]),
            ("plan", &["--against", &spec.display().to_string()]),
        ] {
            silent(&sandbox.run(command, more));
        }
        // Asserts that each of them is for its owner only.
        let files = files_with_the_secret(sandbox.root());
        assert!(files.contains(Path::new("/etc/nodestrap/webhook.json")) || code == 4, "{files:?}");
        for told in ["/run/nodestrap", "/var/lib/nodestrap", "/run/cluster-api"] {
            assert!(!files.iter().any(|file| file.starts_with(told)), "{files:?}");
        }
    }
    let heard = heard.lock().unwrap();
    assert_eq!(heard.len(), 4);
    for (head, body) in heard.iter() {
        assert!(head.contains(SECRET), "the webhook is told who asks: {head}");
        assert!(!holds_secret(body.as_bytes()), "{body}");
    }
}

#[test]
fn a_secret_file_is_shown_by_no_command() {
    let folder = tempfile::tempdir().unwrap();
    let spec = folder.path().join("cluster.yaml");
    std::fs::write(folder.path().join("password"), "correct-horse").unwrap();
    // Nothing like a token, which would be hidden anyway.
    for content in ["correct-horse", "\"correct-horse\"", "{file: password}"] {
        for (path, secret, code) in [("/etc/x", "true", 0), ("etc/x", "true", 2), ("/etc/x", "yes", 2)] {
            let more = format!(
                "\n  fileAssets: [{{path: {path}, content: {content}, secret: {secret}}}]\n  \
                 sysctls: {{vm.swappiness: \"10\"}}\n  join:"
            );
            std::fs::write(&spec, text(example("minimal.yaml")).replacen("\n  join:", &more, 1)).unwrap();
            for (command, format) in ["check", "complete", "explain"].into_iter().flat_map(|c| FORMATS.map(|f| (c, f)))
            {
                let ran = nodestrap([command, &spec.display().to_string(), "-o", format]).expect(code);
                assert!(!ran.err.contains("horse") && !ran.out.contains("horse"), "{}{}", ran.out, ran.err);
            }
        }
    }
    std::fs::write(
        &spec,
        text(&spec).replace("secret: yes", "secret: true").replace("{file: password}", "correct-horse"),
    )
    .unwrap();
    let shown = nodestrap(["complete", &spec.display().to_string(), "--show-secrets"]).expect(0);
    assert!(
        shown.out.contains("{content: correct-horse, mode: \"0600\", path: /etc/x, secret: true}"),
        "{}",
        shown.out
    );
}

#[test]
fn a_password_in_an_address_is_refused_without_being_said() {
    let folder = tempfile::tempdir().unwrap();
    let spec = folder.path().join("cluster.yaml");
    for field in ["proxy: {http: ADDRESS}", "report: {webhook: ADDRESS}", "registryMirrors: {docker.io: [ADDRESS]}"] {
        // Nothing like a token, which would be hidden anyway.
        let address = "\"http://user:correct-horse@proxy.example.com:3128\"";
        let more = format!("\n  {}\n  join:", field.replace("ADDRESS", address));
        std::fs::write(&spec, text(example("minimal.yaml")).replacen("\n  join:", &more, 1)).unwrap();
        for command in ["check", "complete", "render"] {
            let ran = nodestrap([command, &spec.display().to_string()]).expect(2);
            ran.says(&["user name or password"]);
            assert!(!ran.err.contains("horse") && !ran.out.contains("horse"), "{}", ran.err);
        }
    }
}

#[test]
fn check_refuses_to_send_secrets_in_the_clear_and_warns_of_a_store_without_credentials() {
    let folder = tempfile::tempdir().unwrap();
    let spec = folder.path().join("cluster.yaml").display().to_string();
    let write = |more: &str| {
        let text = text(example("minimal.yaml")).replacen("\n  join:", &format!("\n  {more}\n  join:"), 1);
        std::fs::write(&spec, text).unwrap();
    };
    for (more, place) in [
        ("delivery: {store: {urls: [\"http://store.example.com\"]}}", "6:22"),
        ("report: {webhook: \"http://hooks.example.com\", headers: {Authorization: Bearer s3cret}}", "6:21"),
    ] {
        write(more);
        for command in ["check", "complete", "render"] {
            let ran = nodestrap([command, &spec]).expect(2);
            ran.says(&["in the clear", &format!("cluster.yaml:{place}"), "https://"]);
            assert!(!ran.err.contains("s3cret"), "{}", ran.err);
        }
    }
    write("delivery: {store: {urls: [\"https://store.example.com\"]}}");
    let ran = nodestrap(["check", &spec]).expect(0);
    ran.says(&["warning: ", "the bootstrap token", "cluster.yaml:6:22", "1 warning"]);
    assert!(ran.out.contains("cluster demo"), "{}", ran.out);
    let view = nodestrap(["check", &spec, "-o", "json"]).expect(0).json();
    let warning = &view["warnings"][0];
    assert_eq!((&warning["line"], &warning["column"]), (&6.into(), &22.into()), "{view}");
    assert!(warning["message"].as_str().unwrap().contains("https://store.example.com"), "{view}");
    // What never leaves the machine is read by nobody else.
    write("delivery: {store: {urls: [\"http://127.0.0.1:8080\"]}}");
    let view = nodestrap(["check", &spec, "-o", "json"]).expect(0).json();
    assert!(view["warnings"].is_null(), "{view}");
}

/// Also where the bundle has no other secret: with the keys of the authorities anybody can make credentials.
#[test]
fn check_refuses_to_send_the_keys_of_a_control_plane_in_the_clear() {
    let folder = tempfile::tempdir().unwrap();
    let path = |name: &str| folder.path().join(name).display().to_string();
    let spec = path("control-plane.yaml");
    let own = text(example("control-plane.yaml"));
    std::fs::write(&spec, &own).unwrap();
    nodestrap(["pki", "create", &spec, "--node", "cp-1=10.0.0.10", "--out", &path("control-plane")]).expect(0);
    let (control_plane, _workers) = own.rsplit_once("---\n").unwrap();
    let lines = control_plane.lines().filter(|line| !line.contains("kubeProxy:"));
    let lines = lines.map(|line| match line.contains("bootstrapToken:") {
        true => "    exec: {command: /usr/bin/who}",
        false => line,
    });
    let bare = lines.collect::<Vec<_>>().join("\n");
    std::fs::write(&spec, &bare).unwrap();
    nodestrap(["check", &spec]).expect(0);
    for (url, code, words) in [
        ("http://store.example.com", 2, ["the private keys of the control plane", "in the clear"]),
        ("https://store.example.com", 0, ["the private keys of the control plane", "warning: "]),
    ] {
        std::fs::write(&spec, format!("{bare}\n  delivery: {{store: {{urls: [\"{url}\"]}}}}\n")).unwrap();
        nodestrap(["check", &spec]).expect(code).says(&words);
    }
}

/// A program that waits for its input, and is then ended as a crash would end it.
#[test]
fn a_crash_leaves_no_image_of_the_memory() {
    use std::os::unix::process::ExitStatusExt as _;
    let folder = tempfile::tempdir().unwrap();
    let mut make = program("mkfifo");
    make.arg(folder.path().join("spec"));
    finish(make).expect(0);
    let mut shell = std::process::Command::new("sh");
    shell.args(["-c", "ulimit -c unlimited; exec \"$0\" check spec", BINARY]).current_dir(folder.path());
    let mut child = shell.spawn().unwrap();
    let limits = format!("/proc/{}/limits", child.id());
    let is_limited = |text: String| {
        let line = text.lines().find_map(|line| line.strip_prefix("Max core file size")).unwrap_or_default().to_owned();
        line.split_whitespace().take(2).eq(["0", "0"])
    };
    let patience = std::time::Instant::now() + std::time::Duration::from_secs(60);
    while !std::fs::read_to_string(&limits).is_ok_and(is_limited) && std::time::Instant::now() < patience {
        std::thread::sleep(std::time::Duration::from_millis(5));
    }
    let limits = text(&limits);
    let mut kill = program("kill");
    // Not QUIT, which whatever a shell starts in the background ignores: this test may run there.
    kill.args(["-ABRT", &child.id().to_string()]);
    finish(kill).expect(0);
    let ended = child.wait().unwrap();
    assert!(is_limited(limits.clone()), "{limits}");
    assert_eq!((ended.signal(), ended.core_dumped()), (Some(6), false), "{ended}");
    assert_eq!(std::fs::read_dir(folder.path()).unwrap().count(), 1, "nothing but the spec");
}

/// The kernel hands a dump to a program (systemd-coredump) whatever the limit says.
#[test]
fn no_program_of_the_same_user_reads_the_memory() {
    if !can_run("strace") {
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    let log = folder.path().join("trace");
    let mut strace = program("strace");
    strace.args(["-f", "-qq", "-e", "trace=prctl,openat", "-o"]).arg(&log).args([BINARY, "check"]);
    strace.arg(example("minimal.yaml"));
    finish(strace).expect(0);
    let traced = text(&log);
    let (before, _) = traced.split_once("minimal.yaml").expect("it reads the spec");
    assert!(before.contains("prctl(PR_SET_DUMPABLE, SUID_DUMP_DISABLE)"), "{traced}");
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
        let files = bundle["bundle"]["files"].as_array().unwrap();
        assert!(files.len() > 4);
        for file in files {
            let mode = u32::from_str_radix(file["mode"].as_str().unwrap(), 8).unwrap();
            assert_eq!(sandbox.mode(file["path"].as_str().unwrap()), mode, "umask {umask}: {file}");
            assert_eq!(mode, if file["secrecy"] == "secret" { 0o600 } else { 0o644 }, "{file}");
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
