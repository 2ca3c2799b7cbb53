use std::os::unix::fs::symlink;

use super::*;

#[test]
fn a_whole_gate_lets_the_kubelet_start() {
    let sandbox = Sandbox::applied();
    let before = sandbox.snapshot();
    let ran = sandbox.run("gate", &[]).expect(0);
    assert_eq!((ran.out.as_str(), ran.err.as_str()), ("", ""));
    assert_eq!(sandbox.snapshot(), before);
}

#[test]
fn an_absent_gate_keeps_it_back() {
    Sandbox::image().run("gate", &[]).expect(3).says(&[GATE, "is shut"]);
}

#[test]
fn a_damaged_gate_is_taken_away_and_the_bootstrap_mends_it() {
    let whole = text(Sandbox::applied().path(GATE));
    let damages = [
        String::new(),
        whole[..whole.len() / 2].to_owned(),
        whole[..whole.len() - 1].to_owned(),
        whole.replace("NODESTRAP_GROUP=\"workers\"", "NODESTRAP_GROUP=\"others\""),
        format!("{whole}EXTRA=\"1\"\n"),
        "\0".repeat(whole.len()),
    ];
    for damaged in damages {
        let sandbox = Sandbox::applied();
        sandbox.write(GATE, &damaged);
        sandbox.run("gate", &[]).expect(3).says(&["was damaged", "is taken away"]);
        assert!(!sandbox.exists(GATE));
        sandbox.run("gate", &[]).expect(3).says(&["is shut"]);
        sandbox.run("apply", &[]).expect(0);
        assert_eq!(text(sandbox.path(GATE)), whole);
    }
}

#[test]
fn apply_itself_mends_a_damaged_gate() {
    let sandbox = Sandbox::applied();
    let whole = sandbox.tree();
    sandbox.write(GATE, "");
    sandbox.run("apply", &[]).expect(0);
    assert_eq!(sandbox.tree(), whole);
}

const KUBELET_CONFIG: &str = "/etc/kubernetes/kubelet.yaml";
const AUTHORITY: &str = "/etc/kubernetes/pki/ca.crt";
const KUBELET_UNIT: &str = "/etc/systemd/system/kubelet.service";
const BOOTSTRAP_KUBECONFIG: &str = "/etc/kubernetes/bootstrap-kubelet.kubeconfig";
const CLIENT_CERTIFICATE: &str = "/var/lib/kubelet/pki/kubelet-client-current.pem";
const KUBECONFIG: &str = "/var/lib/kubelet/kubeconfig";
/// As much of a kubeconfig as leads to a server.
const LEADING: &str = "contexts: [{name: x, context: {cluster: c}}]\ncurrent-context: x\nclusters: [{name: c, cluster: {server: \
                       'https://10.0.0.10:6443'}}]\n";
const COMPLETE: &str = "/var/lib/nodestrap/complete.json";

#[test]
fn damage_to_a_file_that_the_kubelet_reads_shuts_the_gate_and_the_bootstrap_mends_it() {
    let whole = Sandbox::applied();
    let tree = whole.tree();
    for path in [KUBELET_CONFIG, AUTHORITY, KUBELET_UNIT, BOOTSTRAP_KUBECONFIG] {
        let wanted = std::fs::read(whole.path(path)).unwrap();
        let mut torn = wanted.clone();
        torn[wanted.len() / 2..].fill(0);
        let damages = [
            (None, "it is missing"),
            (Some(Vec::new()), "it is empty"),
            (Some(vec![0; wanted.len()]), "nothing but zero bytes"),
            (Some(torn), "zero bytes in it"),
            (Some(b"{[(".to_vec()), "cannot be read as"),
        ];
        for (damaged, words) in damages {
            let sandbox = whole.copied_to(&std::env::temp_dir());
            match damaged {
                None => sandbox.remove(path),
                Some(content) => sandbox.write(path, content),
            }
            sandbox.run("gate", &[]).expect(3).says(&[path, words, "is taken away"]);
            assert!(!sandbox.exists(GATE), "{path}: {words}");
            sandbox.run("apply", &[]).expect(0);
            sandbox.run("gate", &[]).expect(0);
            assert_eq!(sandbox.tree(), tree, "{path}: {words}");
        }
    }
}

#[test]
fn an_edit_that_the_kubelet_can_read_is_named_and_stays() {
    let sandbox = Sandbox::applied();
    let edited = format!("# until the incident is over\n{}", text(sandbox.path(KUBELET_CONFIG)));
    sandbox.write(KUBELET_CONFIG, &edited);
    let before = sandbox.snapshot();
    sandbox.run("gate", &[]).expect(0).says(&["warning:", KUBELET_CONFIG, "is not as nodestrap wrote it"]);
    assert_eq!(sandbox.snapshot(), before);
}

/// Only a person makes a link, and `apply` leaves it to them.
#[test]
fn a_link_in_the_place_of_a_file_stays_and_is_not_said_to_be_put_back() {
    let sandbox = Sandbox::applied();
    let edited = format!("# mine\n{}", text(sandbox.path(KUBELET_CONFIG)));
    sandbox.remove(KUBELET_CONFIG);
    symlink("/srv/mine.yaml", sandbox.path(KUBELET_CONFIG)).unwrap();
    sandbox.write("/srv/mine.yaml", edited);
    let said = sandbox.run("gate", &[]).expect(0).err;
    assert!(said.contains("a link to /srv/mine.yaml") && said.contains("moved the link away"), "{said}");
    assert!(!said.contains("puts it back"), "{said}");
    sandbox.run("apply", &[]).expect(4).says(&[KUBELET_CONFIG, "is in the way"]);
}

#[test]
fn what_the_kubelet_does_not_read_is_left_to_verify() {
    let sandbox = Sandbox::applied();
    sandbox.write("/etc/sysctl.d/90-nodestrap.conf", "");
    // With credentials of its own, it does not read what it joined with any more.
    sandbox.write(CLIENT_CERTIFICATE, PEM);
    sandbox.write(KUBECONFIG, LEADING);
    sandbox.remove(BOOTSTRAP_KUBECONFIG);
    let ran = sandbox.run("gate", &[]).expect(0);
    assert_eq!(ran.err, "");
}

/// It joins anew then, and what it joins with shall be whole.
#[test]
fn a_kubelet_without_its_kubeconfig_reads_what_it_joins_with_whatever_certificate_it_has() {
    let whole = Sandbox::applied();
    let wanted = text(whole.path(BOOTSTRAP_KUBECONFIG));
    for kubeconfig in [None, Some(""), Some("\0\0\0\0"), Some("kind: Config\n")] {
        let sandbox = whole.copied_to(&std::env::temp_dir());
        sandbox.write(CLIENT_CERTIFICATE, PEM);
        if let Some(kubeconfig) = kubeconfig {
            sandbox.write(KUBECONFIG, kubeconfig);
        }
        sandbox.write(BOOTSTRAP_KUBECONFIG, vec![0; wanted.len()]);
        sandbox.run("gate", &[]).expect(3).says(&[BOOTSTRAP_KUBECONFIG, "nothing but zero bytes", "is taken away"]);
        sandbox.run("apply", &[]).expect(0);
        sandbox.run("gate", &[]).expect(0);
        assert_eq!(text(sandbox.path(BOOTSTRAP_KUBECONFIG)), wanted, "{kubeconfig:?}");
    }
}

#[test]
fn without_a_record_of_what_was_written_the_kubelet_starts_with_a_warning() {
    let sandbox = Sandbox::applied();
    let record = std::fs::read(sandbox.path(COMPLETE)).unwrap();
    for damaged in [None, Some(Vec::new()), Some(vec![0; record.len()])] {
        match damaged {
            None => sandbox.remove(COMPLETE),
            Some(content) => sandbox.write(COMPLETE, content),
        }
        sandbox.run("gate", &[]).expect(0).says(&["warning:", "are not compared"]);
        assert!(sandbox.exists(GATE));
    }
}

#[test]
fn nothing_but_a_gate_is_ever_taken_away() {
    let sandbox = Sandbox::applied();
    let before = sandbox.snapshot();
    for path in
        ["/etc/kubernetes/kubelet.yaml", "/etc/hostname", "/etc/kubernetes/../kubernetes/kubelet.env", "kubelet.env"]
    {
        sandbox.run("gate", &["--path", path]).expect(2).says(&[path, "is not the gate of any layout", GATE]);
    }
    assert_eq!(sandbox.snapshot(), before);
}
