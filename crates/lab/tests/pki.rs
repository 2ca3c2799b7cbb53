//! A real etcd and a real API server run on what `nodestrap pki create` makes, with TLS proved both ways everywhere.

// Tests are all effects.
#![allow(clippy::disallowed_methods, reason = "tests drive real processes")]

use std::io::{Read as _, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use lab::{stdout_of, wait_until};

/// kube-apiserver takes four seconds alone and much longer on a busy machine.
const START_DEADLINE: Duration = Duration::from_secs(180);

fn binary() -> PathBuf {
    let path = std::env::var_os("NODESTRAP_BINARY").map(PathBuf::from);
    path.expect("NODESTRAP_BINARY names the program to test; `make booted` sets it")
}

/// A network namespace with nothing but its loopback, and the programs that run in it.
struct Island {
    name: String,
    folder: tempfile::TempDir,
    programs: Vec<Child>,
}

impl Island {
    fn new(suffix: &str) -> Self {
        let name = format!("nspki-{}-{suffix}", std::process::id());
        stdout_of(Command::new("ip").args(["netns", "add", &name])).expect("namespace");
        let island = Self { name, folder: tempfile::tempdir().expect("folder"), programs: vec![] };
        stdout_of(&mut island.command("ip", &["link", "set", "lo", "up"])).expect("loopback");
        island
    }

    fn command(&self, program: impl AsRef<Path>, words: &[&str]) -> Command {
        let mut command = Command::new("nsenter");
        command.arg(format!("--net=/run/netns/{}", self.name)).arg(program.as_ref()).args(words);
        command
    }

    fn path(&self, name: &str) -> String {
        self.folder.path().join(name).display().to_string()
    }

    fn start(&mut self, program: &Path, words: &[&str]) {
        let name = program.file_name().expect("a program").to_string_lossy().into_owned();
        let log = std::fs::File::create(self.path(&format!("{name}.log"))).expect("log");
        let mut command = self.command(program, words);
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("log")).stderr(log);
        self.programs.push(command.spawn().expect("it starts"));
    }

    fn logs(&self) -> String {
        let tail = |name: &str| {
            let text = std::fs::read_to_string(self.path(name)).unwrap_or_default();
            let lines: Vec<&str> = text.lines().collect();
            format!("--- {name}\n{}\n", lines[lines.len().saturating_sub(25)..].join("\n"))
        };
        tail("etcd.log") + &tail("kube-apiserver.log")
    }
}

impl Drop for Island {
    fn drop(&mut self) {
        for program in &mut self.programs {
            let _ = program.kill();
            let _ = program.wait();
        }
        let _ = stdout_of(Command::new("ip").args(["netns", "delete", &self.name]));
    }
}

fn start_control_plane(island: &mut Island, cache: &lab::cache::Cache) {
    let pki = |file: &str| island.path(&format!("out/pki/{file}"));
    let (data, certs) = (island.path("etcd-data"), island.path("certs"));
    let etcd = [
        format!("--data-dir={data}"),
        "--unsafe-no-fsync".into(),
        "--name=cp-1".into(),
        "--listen-client-urls=https://127.0.0.1:2379".into(),
        "--advertise-client-urls=https://127.0.0.1:2379".into(),
        "--listen-peer-urls=https://127.0.0.1:2380".into(),
        "--initial-advertise-peer-urls=https://127.0.0.1:2380".into(),
        "--initial-cluster=cp-1=https://127.0.0.1:2380".into(),
        "--client-cert-auth".into(),
        format!("--trusted-ca-file={}", pki("etcd/ca.crt")),
        format!("--cert-file={}", pki("etcd/server.crt")),
        format!("--key-file={}", pki("etcd/server.key")),
        "--peer-client-cert-auth".into(),
        format!("--peer-trusted-ca-file={}", pki("etcd/ca.crt")),
        format!("--peer-cert-file={}", pki("etcd/peer.crt")),
        format!("--peer-key-file={}", pki("etcd/peer.key")),
    ];
    let api_server = [
        "--etcd-servers=https://127.0.0.1:2379".into(),
        format!("--etcd-cafile={}", pki("etcd/ca.crt")),
        format!("--etcd-certfile={}", pki("apiserver-etcd-client.crt")),
        format!("--etcd-keyfile={}", pki("apiserver-etcd-client.key")),
        "--service-cluster-ip-range=10.96.0.0/12".into(),
        "--bind-address=127.0.0.1".into(),
        // It must be an address that is not the loopback's; nobody goes there.
        "--advertise-address=10.0.0.10".into(),
        "--secure-port=6443".into(),
        format!("--cert-dir={certs}"),
        format!("--client-ca-file={}", pki("ca.crt")),
        format!("--tls-cert-file={}", pki("apiserver.crt")),
        format!("--tls-private-key-file={}", pki("apiserver.key")),
        format!("--kubelet-client-certificate={}", pki("apiserver-kubelet-client.crt")),
        format!("--kubelet-client-key={}", pki("apiserver-kubelet-client.key")),
        format!("--requestheader-client-ca-file={}", pki("front-proxy-ca.crt")),
        "--requestheader-allowed-names=front-proxy-client".into(),
        "--requestheader-username-headers=X-Remote-User".into(),
        "--requestheader-group-headers=X-Remote-Group".into(),
        "--requestheader-extra-headers-prefix=X-Remote-Extra-".into(),
        format!("--proxy-client-cert-file={}", pki("front-proxy-client.crt")),
        format!("--proxy-client-key-file={}", pki("front-proxy-client.key")),
        "--service-account-issuer=https://kubernetes.default.svc".into(),
        format!("--service-account-key-file={}", pki("sa.pub")),
        format!("--service-account-signing-key-file={}", pki("sa.key")),
        "--authorization-mode=Node,RBAC".into(),
    ];
    island.start(&cache.etcd.join("etcd"), &etcd.each_ref().map(String::as_str));
    island.start(&cache.kubernetes.join("kube-apiserver"), &api_server.each_ref().map(String::as_str));
}

fn is_served(algorithm: &str) {
    let cache = lab::prepare().expect("the lab's cache");
    let mut island = Island::new(algorithm);
    let out = island.path("out");
    stdout_of(
        Command::new(binary()).args(["pki", "create", "--cluster=demo", "--api-server=https://127.0.0.1:6443"]).args([
            "--node=cp-1=10.0.0.10",
            "--algorithm",
            algorithm,
            "--out",
            &out,
        ]),
    )
    .expect("pki create");
    start_control_plane(&mut island, &cache);
    let kubectl = |conf: &str, words: &[&str]| {
        let conf = format!("--kubeconfig={out}/{conf}");
        stdout_of(&mut island.command(cache.kubernetes.join("kubectl"), &[&[conf.as_str()], words].concat()))
    };

    let ready = wait_until("the API server to be ready", START_DEADLINE, || {
        kubectl("admin.conf", &["get", "--raw", "/readyz"]).map(Some)
    });
    assert_eq!(ready.unwrap_or_else(|error| panic!("{error:#}\n{}", island.logs())), "ok");
    for (conf, user, group) in [
        ("admin.conf", "kubernetes-admin", "kubeadm:cluster-admins"),
        ("super-admin.conf", "kubernetes-super-admin", "system:masters"),
        ("controller-manager.conf", "system:kube-controller-manager", "system:authenticated"),
        ("scheduler.conf", "system:kube-scheduler", "system:authenticated"),
        ("nodes/cp-1/kubelet.conf", "system:node:cp-1", "system:nodes"),
    ] {
        let whoami = kubectl(conf, &["auth", "whoami", "-o", "json"]).expect(conf);
        assert!(
            whoami.contains(&format!("\"{user}\"")) && whoami.contains(&format!("\"{group}\"")),
            "{conf}: {whoami}"
        );
    }
    // The administrators' group has the rights that the super-administrator gives it, and no others.
    assert!(kubectl("admin.conf", &["get", "nodes"]).is_err());
    let asks_kubelets = ["auth", "can-i", "get", "nodes/proxy", "--as=kube-apiserver-kubelet-client"];
    assert!(kubectl("super-admin.conf", &asks_kubelets).is_err());
    let manifests = island.path("join.yaml");
    let folder = std::path::Path::new(&manifests).parent().expect("a folder").to_owned();
    let (content, fill_in) = manifests_of_the_guide();
    std::fs::write(&manifests, content).expect("join.yaml");
    std::fs::write(folder.join("token"), "abcdef.0123456789abcdef\n").expect("a token");
    stdout_of(Command::new("sh").args(["-ec", &fill_in]).current_dir(&folder)).expect("the guide's command");
    kubectl("super-admin.conf", &["apply", "-f", &manifests]).expect("the manifests of the guide");
    wait_until("the API server to be let ask kubelets", START_DEADLINE, || {
        kubectl("super-admin.conf", &asks_kubelets).map(Some)
    })
    .expect("kubelet client");
    wait_until("the binding to count", START_DEADLINE, || kubectl("admin.conf", &["get", "nodes"]).map(Some))
        .expect("admin");
    // The service account key signs, and the API server believes what it signed.
    kubectl("admin.conf", &["create", "serviceaccount", "probe"]).expect("service account");
    let token = kubectl("admin.conf", &["create", "token", "probe"]).expect("token");
    let authority = format!("--certificate-authority={out}/pki/ca.crt");
    let words = [
        "--kubeconfig=/dev/null",
        "--server=https://localhost:6443",
        &authority,
        "auth",
        "whoami",
        "-o",
        "json",
        "--token",
    ];
    let mut whoami = island.command(cache.kubernetes.join("kubectl"), &[&words[..], &[token.trim()]].concat());
    assert!(stdout_of(&mut whoami).expect("token").contains("system:serviceaccount:default:probe"));
    // The proxy's client may speak for others, and nobody may do so without its certificate.
    assert!(speaks_for_another(&island, &out, Some("front-proxy-client")));
    assert!(!speaks_for_another(&island, &out, None));
    check_etcd(&island, &cache, &out);
}

/// `join.yaml` as docs/guide/first-cluster.md shows it, and the command that fills in the token.
fn manifests_of_the_guide() -> (String, String) {
    let guide = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/guide/first-cluster.md");
    let guide = std::fs::read_to_string(guide).expect("the guide");
    let (_, manifests) = guide.split_once("```yml\n").expect("a block of manifests");
    let command = guide.lines().find(|line| line.starts_with("sed -i ")).expect("how it is filled in");
    (manifests.split("```").next().expect("its end").to_owned(), command.to_owned())
}

/// Plain HTTP inside `openssl s_client`: no other client lets us write these headers.
fn speaks_for_another(island: &Island, out: &str, client: Option<&str>) -> bool {
    let authority = format!("{out}/pki/ca.crt");
    let mut words =
        vec!["s_client", "-quiet", "-connect", "127.0.0.1:6443", "-verify_return_error", "-CAfile", &authority];
    let files = client.map(|name| ["crt", "key"].map(|ending| format!("{out}/pki/{name}.{ending}")));
    if let Some([certificate, key]) = &files {
        words.extend(["-cert", certificate, "-key", key]);
    }
    let mut command = island.command("openssl", &words);
    command.stdin(Stdio::piped()).stdout(Stdio::piped()).stderr(Stdio::null());
    let mut openssl = command.spawn().expect("openssl");
    let request = "GET /api/v1/nodes HTTP/1.1\r\nHost: 127.0.0.1:6443\r\nX-Remote-User: proxied\r\n\
                   X-Remote-Group: system:masters\r\nAccept: application/json\r\nConnection: close\r\n\r\n";
    // It reads until the server closes, so its standard input stays open meanwhile.
    let mut input = openssl.stdin.take().expect("piped");
    input.write_all(request.as_bytes()).expect("openssl reads");
    let mut answer = String::new();
    openssl.stdout.take().expect("piped").read_to_string(&mut answer).expect("text");
    drop(input);
    openssl.wait().expect("openssl ends");
    assert!(answer.starts_with("HTTP/1.1 "), "{answer}");
    answer.contains("\"NodeList\"")
}

/// Health with the client certificate, nothing without one.
fn check_etcd(island: &Island, cache: &lab::cache::Cache, out: &str) {
    let authority = format!("--cacert={out}/pki/etcd/ca.crt");
    let words = ["--endpoints=https://127.0.0.1:2379", &authority, "--command-timeout=5s", "endpoint", "health"];
    let client = ["cert", "key"].map(|part| {
        let ending = if part == "cert" { "crt" } else { "key" };
        format!("--{part}={out}/pki/etcd/healthcheck-client.{ending}")
    });
    let etcdctl = cache.etcd.join("etcdctl");
    let with = [&words[..], &client.each_ref().map(String::as_str)].concat();
    stdout_of(&mut island.command(&etcdctl, &with)).expect("the health check's client is let in");
    assert!(stdout_of(&mut island.command(&etcdctl, &words)).is_err(), "etcd let in a client without certificate");
}

#[test]
fn a_real_etcd_and_a_real_api_server_run_on_ecdsa_certificates() {
    if lab::require() {
        is_served("ecdsa-p256");
    }
}

#[test]
fn a_real_etcd_and_a_real_api_server_run_on_rsa_certificates() {
    if lab::require() {
        is_served("rsa2048");
    }
}

/// kubeadm's keys are PKCS#1, its kubeconfigs are written by Go, its subjects are its own.
#[test]
fn a_folder_that_kubeadm_made_is_inspected_completed_and_renewed() {
    if !lab::require() {
        return;
    }
    let kubeadm = lab::prepare().expect("the lab's cache").kubernetes.join("kubeadm");
    for algorithm in ["RSA-2048", "ECDSA-P256"] {
        let folder = tempfile::tempdir().expect("folder");
        let (out, config) = (folder.path().join("out"), folder.path().join("kubeadm.yaml"));
        let documents = format!(
            "apiVersion: kubeadm.k8s.io/v1beta4\nkind: InitConfiguration\n\
             localAPIEndpoint: {{advertiseAddress: 10.0.0.10, bindPort: 6443}}\n\
             nodeRegistration: {{name: cp-1, criSocket: unix:///run/none.sock}}\n---\n\
             apiVersion: kubeadm.k8s.io/v1beta4\nkind: ClusterConfiguration\nkubernetesVersion: v1.36.3\n\
             controlPlaneEndpoint: api.example.com:6443\ncertificatesDir: {}/pki\nencryptionAlgorithm: {algorithm}\n",
            out.display()
        );
        std::fs::write(&config, documents).expect("configuration");
        stdout_of(Command::new(&kubeadm).args(["init", "phase", "certs", "all", "--config"]).arg(&config))
            .expect("certs");
        let mut confs = Command::new(&kubeadm);
        confs.args(["init", "phase", "kubeconfig", "all", "--config"]).arg(&config).arg("--kubeconfig-dir").arg(&out);
        stdout_of(&mut confs).expect("kubeconfigs");
        let nodestrap = |words: &[&str]| stdout_of(Command::new(binary()).arg("pki").args(words).args(["-o", "json"]));
        let shown = out.display().to_string();
        nodestrap(&["inspect", &shown]).expect("all is well");
        let cluster = ["--cluster=demo", "--api-server=https://api.example.com:6443", "--node=cp-1=10.0.0.10"];
        let created = nodestrap(&[&["create", "--out", &shown], &cluster[..]].concat()).expect("create");
        let created: serde_json::Value = serde_json::from_str(&created).expect("JSON");
        assert_eq!(created["written"], serde_json::json!(["kube-proxy.conf", "nodes/cp-1/kubelet.conf"]));
        for more in [&["--all"][..], &["--all", "--new-key"]] {
            let renewed = nodestrap(&[&["renew", &shown], more].concat()).expect("renew");
            let renewed: serde_json::Value = serde_json::from_str(&renewed).expect("JSON");
            assert_eq!(renewed["renewed"].as_array().map(Vec::len), Some(14));
        }
        nodestrap(&["inspect", &shown]).expect("all is well again");
        // And kubeadm finds nothing wrong with what it gets back.
        let mut check = Command::new(&kubeadm);
        check.args(["certs", "check-expiration", "--cert-dir"]).arg(out.join("pki")).arg("--config").arg(&config);
        stdout_of(&mut check).expect("kubeadm reads them");
        stdout_of(Command::new(&kubeadm).args(["init", "phase", "certs", "all", "--config"]).arg(&config))
            .expect("certs");
    }
}
