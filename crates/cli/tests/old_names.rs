//! `tectonic-torcx-bootstrap` on a folder that stands for a machine: flags, seeds and a kubeconfig are all there is.
#![allow(clippy::disallowed_methods, clippy::unwrap_used, reason = "tests own their effects and may panic")]

#[allow(dead_code, reason = "shared with other tests, which use the rest")]
#[path = "../../fetch/tests/server/mod.rs"]
mod server;
mod support;

use std::os::unix::fs::symlink;
use std::path::PathBuf;

use data_encoding::BASE64;
use server::{Authority, Server, answer, good};
use sha2::{Digest as _, Sha512};
use support::{BINARY, Ran, Sandbox, finish, program, text};

const GATE: &str = "/etc/kubernetes/kubelet.env";
const ARCHIVE: &str = "an addon, as far as anybody looks";
const IMAGE: &str = "/var/lib/torcx/store/2512.1.0/docker:17.03.torcx.tgz";

/// A Container Linux as an installer leaves it, in front of its first boot, with all that it asks.
struct Machine {
    sandbox: Sandbox,
    program: PathBuf,
    store: Server,
    api_server: Server,
    _names: tempfile::TempDir,
}

fn api_server(authority: &Authority) -> Server {
    authority.serve(|number, stream| match number % 2 {
        1 => good(
            stream,
            r#"{"major":"1","minor":"9","gitVersion":"v1.9.7+coreos.1","gitCommit":"","gitTreeState":"","buildDate":"","goVersion":"","compiler":"","platform":""}"#,
        ),
        // The ConfigMap is nobody's business yet.
        _ => answer(
            stream,
            "403 Forbidden",
            r#"{"kind":"Status","apiVersion":"v1","status":"Failure","message":"no","reason":"Forbidden","code":403}"#,
        ),
    })
}

fn store() -> Server {
    let digest: String = Sha512::digest(ARCHIVE).iter().map(|byte| format!("{byte:02x}")).collect();
    Server::start_reading(move |_, question, stream| {
        let path = question.split(' ').nth(1).unwrap_or_default();
        let host = question.lines().find_map(|line| line.strip_prefix("host: ").or(line.strip_prefix("Host: ")));
        match path {
            "/manifests/amd64-usr/2512.1.0/torcx_manifest.json" => {
                let url = format!("http://{}/docker.tgz", host.unwrap_or_default());
                let version =
                    format!(r#"{{"version":"17.03","hash":"sha512-{digest}","locations":[{{"url":"{url}"}}]}}"#);
                let package = format!(r#"{{"name":"docker","defaultVersion":"17.03","versions":[{version}]}}"#);
                good(stream, &format!(r#"{{"kind":"torcx-package-list-v0","value":{{"packages":[{package}]}}}}"#));
            }
            "/docker.tgz" => good(stream, ARCHIVE),
            _ => answer(stream, "404 Not Found", ""),
        }
    })
}

impl Machine {
    fn new() -> Self {
        let authority = Authority::new();
        let (api_server, store, sandbox) = (api_server(&authority), store(), Sandbox::image());
        let (url, pem) = (api_server.url(""), BASE64.encode(authority.pem().as_bytes()));
        // As Tectonic's installer writes it: its one context has no name.
        let kubeconfig = format!(
            "apiVersion: v1\nkind: Config\nclusters:\n- name: tectonic\n  cluster: {{server: \"{url}\", certificate-authority-data: {pem}}}\n\
             users:\n- name: kubelet\n  user: {{token: abc}}\ncontexts:\n- context: {{cluster: tectonic, user: kubelet}}\n"
        );
        sandbox.write("/etc/kubernetes/kubeconfig", kubeconfig);
        sandbox.write(
            "/etc/os-release",
            "ID=coreos\nVERSION_ID=2512.1.0\nCOREOS_BOARD=\"amd64-usr\"\nPRETTY_NAME=\"Container Linux\"\n",
        );
        let seed = "# of the installer\nKUBELET_IMAGE_URL=\"registry.example/hyperkube\"\nKUBELET_IMAGE_TAG=\"v1.9.6_coreos.0\"\nMORE=\"a b\"\n";
        sandbox.write("/etc/kubernetes/installer/kubelet.env", seed);
        let mappings = "kind: VersionManifestV1\nversions:\n  k8s:\n    1.9: {docker: [17.03, 1.12]}\n";
        sandbox.write("/etc/kubernetes/installer/runtime-mappings.yaml", mappings);
        let names = tempfile::tempdir().unwrap();
        let program = names.path().join("tectonic-torcx-bootstrap");
        symlink(BINARY, &program).unwrap();
        let machine = Self { sandbox, program, store, api_server, _names: names };
        machine.boot(1);
        machine
    }

    fn boot(&self, number: u32) {
        self.sandbox.write("/run/nodestrap/boot_id", format!("00000000-0000-4000-8000-{number:012}\n"));
    }

    fn run_in(&self, environment: &[(&str, &str)], more: &[&str]) -> Ran {
        let mut command = program(&self.program);
        command.envs(environment.iter().copied());
        command.arg("--root").arg(self.sandbox.root()).args(more);
        finish(command)
    }

    /// As the unit of Tectonic calls it, but for signatures.
    fn run(&self, more: &[&str]) -> Ran {
        let url = self.store.url("/manifests/{{.Board}}/{{.OSVersion}}/torcx_manifest.json");
        let manifest = format!("--torcx-manifest-url={url}");
        self.run_in(&[], &[&["--no-verify-signatures=true", &manifest], more].concat())
    }
}

#[test]
fn an_old_unit_bootstraps_a_node_by_its_flags_alone() {
    let machine = Machine::new();
    machine.run(&["--upgrade-os=false", "--torcx-bin=/usr/bin/torcx", "--verbose=debug"]).expect(10);
    assert!(!machine.sandbox.exists(GATE), "the gate opens after the last boot");
    assert_eq!(text(machine.sandbox.path(IMAGE)), ARCHIVE);
    assert_eq!(text(machine.sandbox.path("/etc/torcx/next-profile")), "tectonic\n");
    assert!(text(machine.sandbox.path("/etc/torcx/profiles/tectonic.json")).contains("17.03"));
    machine.run(&["--upgrade-os=false"]).expect(10);

    machine.boot(2);
    machine.run(&["--upgrade-os=false"]).expect(0);
    let gate = text(machine.sandbox.path(GATE));
    for line in ["KUBELET_IMAGE_URL=", "KUBELET_IMAGE_TAG=", "MORE="] {
        assert!(gate.lines().any(|one| one.starts_with(line)), "{gate}");
    }
    assert!(gate.contains("v1.9.7_coreos.1") && gate.contains("registry.example/hyperkube"), "{gate}");
    assert!(!machine.sandbox.exists("/etc/systemd/system/k8s-node-bootstrap.service"), "that is its owner's");
    let asked = (machine.api_server.questions().len(), machine.store.questions().len());
    machine.run(&["--upgrade-os=false"]).expect(0);
    let again = (machine.api_server.questions().len(), machine.store.questions().len());
    assert_eq!(again, asked, "a complete node asks nobody");
    machine.sandbox.run("status", &["--brief"]).expect(0);
    assert!(machine.sandbox.run("status", &["-o", "json"]).out.contains("nobody has to have signed"), "said for ever");
    machine.sandbox.run("verify", &[]).expect(0);
    machine.sandbox.run("reset", &["--yes", "--progress=none"]).expect(0);
    for path in [GATE, IMAGE, "/etc/torcx/next-profile", "/etc/torcx/profiles/tectonic.json"] {
        assert!(!machine.sandbox.exists(path), "{path}");
    }
}

#[test]
fn without_torcx_the_release_is_all_and_a_forced_one_asks_nobody() {
    let machine = Machine::new();
    machine.run_in(&[], &["--torcx-skip-setup", "--keyring=", "--no-verify-signatures"]).expect(0);
    assert!(text(machine.sandbox.path(GATE)).contains("v1.9.7_coreos.1"));
    assert_eq!(machine.store.questions().len(), 0);

    let machine = Machine::new();
    let forced =
        ["--torcx-skip-setup=true", "--force-kube-version=v1.9.9", "--kubelet-env-path=/etc/kubernetes/kubelet.env"];
    machine.run_in(&[], &forced).expect(0);
    assert!(text(machine.sandbox.path(GATE)).contains("v1.9.9"));
    assert_eq!(machine.api_server.questions().len(), 0);
}

#[test]
fn what_cannot_work_says_so_and_changes_nothing() {
    let machine = Machine::new();
    for wrong in [
        &["--nonsense"][..],
        &["--force-kube-version=latest"],
        &["--torcx-manifest-url=https://a/{{.Channel}}"],
        &["--kubelet-env-path=relative"],
        &["--keyring="],
    ] {
        machine.run_in(&[], wrong).expect(2);
    }
    // The keyring of that time is not there.
    machine.run_in(&[], &["--torcx-manifest-url", &machine.store.url("/x")]).expect(4).says(&["/pubring.gpg"]);
    // Nobody may be asked for the bucket of that time but a proxy, and that says no.
    let proxy = Server::start(|_, stream| answer(stream, "403 Forbidden", ""));
    let dead = machine.run_in(&[("HTTPS_PROXY", &proxy.url(""))], &["--no-verify-signatures", "--upgrade-os=false"]);
    dead.expect(4).says(&["tectonic-torcx.release.core-os.net", "gone since 2020"]);
    assert!(proxy.questions()[0].starts_with("CONNECT tectonic-torcx.release.core-os.net:443 "));
    machine.sandbox.write("/etc/os-release", "ID=debian\nVERSION_ID=12\n");
    machine.run(&[]).expect(2).says(&["debian"]);
    assert!(!machine.sandbox.exists(GATE) && !machine.sandbox.exists("/etc/torcx"));
}

#[test]
fn data_is_cleaned_by_a_command_that_has_nothing_to_do_on_other_nodes() {
    Sandbox::image().run("clean-runtime-data", &[]).expect(0);
}
