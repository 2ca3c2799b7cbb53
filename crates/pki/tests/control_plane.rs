//! The files of a control plane: made, completed after an interruption at any place, and refused where they do not fit.
#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::time::{Duration, SystemTime};

use pki::{
    Authority, Certificate, Completed, ControlPlane, ControlPlaneNode, Document, Error, KeyAlgorithm, KeyChoice,
    KeyFit, LeafRequest, PkiFile, Secret, Selection, State, SubjectName, Usage, Validity, complete_control_plane,
    control_plane_files, inspect, renew,
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + Duration::from_secs(1_800_000_000)
}

fn validity(days: u32) -> Validity {
    Validity { start: now() - DAY, lifetime: DAY * (days + 1) }
}

fn wanted() -> ControlPlane {
    let address = |text: &str| text.parse::<IpAddr>().unwrap();
    ControlPlane {
        cluster_name: "demo".into(),
        api_server: "https://api.example.com:6443".into(),
        nodes: vec![
            ControlPlaneNode { name: "cp-1".into(), addresses: vec![address("10.0.0.10"), address("fd00::10")] },
            ControlPlaneNode { name: "cp-2".into(), addresses: vec![] },
        ],
        service_addresses: vec![address("10.96.0.1")],
        cluster_domain: "cluster.local".into(),
        aliases: vec![SubjectName::Dns("api.internal".into())],
        extra_names: vec![SubjectName::Dns("extra.example.com".into())],
        algorithm: KeyAlgorithm::EcdsaP256,
        authority_validity: validity(3650),
        validity: validity(365),
        now: now(),
    }
}

type Files = BTreeMap<String, Secret>;

fn as_map(files: &[PkiFile]) -> Files {
    files.iter().map(|file| (file.path.clone(), file.content.clone())).collect()
}

fn all_files() -> Files {
    as_map(&control_plane_files(&wanted()).unwrap())
}

fn documents(files: &Files) -> Vec<Document> {
    files.iter().map(|(path, content)| Document { path: path.clone(), content: Ok(content.clone()) }).collect()
}

fn complete(files: &Files) -> Completed {
    complete_control_plane(&wanted(), files).unwrap_or_else(|error| panic!("{error}: {error:?}"))
}

#[track_caller]
fn refused(files: &Files) -> String {
    let error = complete_control_plane(&wanted(), files).err().expect("it does not fit");
    error.to_string()
}

fn certificate(files: &Files, path: &str) -> Certificate {
    Certificate::parse(files[path].expose()).unwrap()
}

#[track_caller]
fn assert_whole(files: &Files) {
    for finding in inspect(&documents(files), now()) {
        assert_eq!(finding.fault(), None, "{}", finding.path);
        if let Some(found) = finding.certificate() {
            assert_eq!((found.state, &found.key), (State::Good, &KeyFit::Matches), "{}", finding.path);
        }
    }
}

#[test]
fn there_is_every_file_that_kubeadm_would_make_and_keys_are_for_their_owner_only() {
    let files = control_plane_files(&wanted()).unwrap();
    let pairs = [
        "ca",
        "front-proxy-ca",
        "etcd/ca",
        "apiserver",
        "apiserver-kubelet-client",
        "apiserver-etcd-client",
        "front-proxy-client",
        "etcd/server",
        "etcd/peer",
        "etcd/healthcheck-client",
    ];
    let mut expected: Vec<String> =
        pairs.iter().flat_map(|stem| ["key", "crt"].map(|ending| format!("pki/{stem}.{ending}"))).collect();
    expected.extend(["pki/sa.key", "pki/sa.pub"].map(str::to_owned));
    expected.extend(
        ["admin", "super-admin", "controller-manager", "scheduler", "kube-proxy"].map(|name| format!("{name}.conf")),
    );
    expected.extend(["cp-1", "cp-2"].map(|node| format!("nodes/{node}/kubelet.conf")));
    assert_eq!(files.iter().map(|file| file.path.clone()).collect::<Vec<_>>(), expected);
    assert_eq!(wanted().paths().unwrap(), expected);
    for file in &files {
        let holds_key = file.content.expose().contains("PRIVATE KEY") || file.path.ends_with(".conf");
        assert_eq!(file.mode, if holds_key { 0o600 } else { 0o644 }, "{}", file.path);
    }
    assert_whole(&as_map(&files));
}

#[test]
fn the_api_server_is_known_by_all_its_names() {
    let names = certificate(&all_files(), "pki/apiserver.crt").names;
    let mut texts: Vec<String> = names.iter().map(ToString::to_string).collect();
    texts.sort();
    let expected = [
        "10.0.0.10",
        "10.96.0.1",
        "127.0.0.1",
        "::1",
        "api.example.com",
        "api.internal",
        "cp-1",
        "cp-2",
        "extra.example.com",
        "fd00::10",
        "kubernetes",
        "kubernetes.default",
        "kubernetes.default.svc",
        "kubernetes.default.svc.cluster.local",
        "localhost",
    ];
    assert_eq!(texts, expected);
}

#[test]
fn identities_are_those_that_kubernetes_grants_rights_to() {
    let files = all_files();
    let findings = inspect(&documents(&files), now());
    let subject = |path: &str| {
        let finding = findings.iter().find(|finding| finding.path == path).unwrap();
        finding.certificate().unwrap().certificate.to_string()
    };
    assert_eq!(subject("admin.conf"), "CN=kubernetes-admin, O=kubeadm:cluster-admins");
    assert_eq!(subject("super-admin.conf"), "CN=kubernetes-super-admin, O=system:masters");
    assert_eq!(subject("controller-manager.conf"), "CN=system:kube-controller-manager");
    assert_eq!(subject("scheduler.conf"), "CN=system:kube-scheduler");
    assert_eq!(subject("nodes/cp-1/kubelet.conf"), "CN=system:node:cp-1, O=system:nodes");
    assert_eq!(certificate(&files, "pki/etcd/peer.crt").usages, [Usage::Client, Usage::Server]);
}

#[test]
fn nothing_is_made_where_nothing_is_missing() {
    let files = all_files();
    let completed = complete(&files);
    assert!(completed.new.is_empty());
    assert_eq!(completed.kept.len(), files.len());
}

#[test]
fn a_run_that_was_cut_short_anywhere_is_completed_and_keeps_what_it_had() {
    let files = control_plane_files(&wanted()).unwrap();
    for written in 0..files.len() {
        let mut there = as_map(&files[..written]);
        let completed = complete(&there);
        assert_eq!(completed.new.len(), files.len() - written, "after {written} files");
        for file in completed.new {
            assert!(there.insert(file.path.clone(), file.content).is_none(), "{} was there", file.path);
        }
        assert_whole(&there);
    }
}

#[test]
fn a_certificate_that_was_taken_away_is_issued_again_for_its_key() {
    let files = all_files();
    for path in files.keys().filter(|path| path.ends_with(".crt") || path.ends_with(".pub")) {
        let mut without = files.clone();
        without.remove(path);
        let completed = complete(&without);
        assert_eq!(completed.new.iter().map(|file| &file.path).collect::<Vec<_>>(), [path]);
        without.extend(as_map(&completed.new));
        assert_whole(&without);
    }
}

#[test]
fn a_certificate_without_its_key_is_an_error_that_names_both() {
    for stem in ["pki/apiserver", "pki/etcd/peer"] {
        let mut files = all_files();
        files.remove(&format!("{stem}.key"));
        let error = refused(&files);
        assert!(error.contains(&format!("{stem}.crt")) && error.contains(&format!("{stem}.key")), "{error}");
    }
    let mut files = all_files();
    files.remove("pki/sa.key");
    assert!(refused(&files).contains("pki/sa.pub"));
}

#[test]
fn an_authority_may_keep_its_key_elsewhere_until_something_must_be_signed() {
    let mut files = all_files();
    files.remove("pki/ca.key");
    assert!(complete(&files).new.is_empty());
    files.remove("pki/apiserver.crt");
    let error = refused(&files);
    assert!(error.contains("pki/apiserver.crt") && error.contains("pki/ca.key"), "{error}");
}

#[test]
fn a_key_or_a_certificate_of_another_cluster_is_an_error_that_names_both() {
    let (files, others) = (all_files(), all_files());
    for stem in ["pki/ca", "pki/etcd/ca", "pki/apiserver", "pki/front-proxy-client", "pki/etcd/server"] {
        let (key, crt) = (format!("{stem}.key"), format!("{stem}.crt"));
        let mut mixed = files.clone();
        mixed.insert(key.clone(), others[&key].clone());
        let error = refused(&mixed);
        assert!(error.contains(&key) && error.contains(&crt), "{error}");
    }
    let mut mixed = files.clone();
    mixed.insert("pki/sa.pub".into(), others["pki/sa.pub"].clone());
    assert!(refused(&mixed).contains("pki/sa.pub does not belong to pki/sa.key"));
    for stem in ["pki/apiserver", "pki/front-proxy-client", "pki/etcd/server"] {
        let mut mixed = files.clone();
        for path in [format!("{stem}.key"), format!("{stem}.crt")] {
            mixed.insert(path.clone(), others[&path].clone());
        }
        let error = refused(&mixed);
        assert!(error.contains(&format!("{stem}.crt was not issued by pki/")), "{error}");
    }
    let mut mixed = files;
    mixed.insert("admin.conf".into(), others["admin.conf"].clone());
    assert!(refused(&mixed).contains("admin.conf was not issued by pki/ca.crt"));
}

#[test]
fn a_kept_certificate_that_lacks_a_name_is_an_error_that_says_which() {
    let files = all_files();
    let mut more = wanted();
    more.extra_names.push(SubjectName::Dns("late.example.com".into()));
    let error = complete_control_plane(&more, &files).err().unwrap().to_string();
    assert!(error.contains("pki/apiserver.crt lacks late.example.com"), "{error}");
}

#[test]
fn no_certificate_outlives_its_authority_and_an_ended_authority_signs_nothing() {
    let mut short = wanted();
    short.authority_validity = validity(10);
    let files = as_map(&control_plane_files(&short).unwrap());
    assert_eq!(certificate(&files, "pki/apiserver.crt").not_after, certificate(&files, "pki/ca.crt").not_after);
    let mut without = files;
    without.remove("pki/apiserver.crt");
    let mut later = short;
    later.now = now() + DAY * 20;
    let error = complete_control_plane(&later, &without).err().unwrap();
    assert!(
        matches!(&error, Error::AuthorityExpired { wanted, authority }
            if wanted == "pki/apiserver.crt" && authority == "pki/ca.crt"),
        "{error:?}"
    );
}

#[test]
fn inspecting_finds_what_ended_and_what_does_not_fit() {
    let mut files = all_files();
    let authority = Authority::parse(files["pki/ca.crt"].expose(), &files["pki/ca.key"]).unwrap();
    let request = |days: u32| LeafRequest {
        common_name: "kube-apiserver".into(),
        organization: None,
        names: vec![],
        usages: vec![Usage::Server],
        validity: validity(days),
    };
    for (name, days) in [("ended", 0), ("soon", 29)] {
        let leaf = authority.issue(&request(days)).unwrap();
        files.insert(format!("pki/{name}.crt"), Secret::new(leaf.certificate_pem));
        files.insert(format!("pki/{name}.key"), leaf.key_pem);
    }
    let others = all_files();
    files.insert("pki/apiserver.key".into(), others["pki/apiserver.key"].clone());
    files.insert("scheduler.conf".into(), others["scheduler.conf"].clone());
    files
        .insert("pki/broken.crt".into(), Secret::new("-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"));
    files.insert("pki/alone.key".into(), others["pki/sa.key"].clone());
    files.insert("pki/apiserver.key.old".into(), others["pki/sa.key"].clone());
    let findings = inspect(&documents(&files), now());
    let faults: BTreeMap<&str, String> =
        findings.iter().filter_map(|finding| finding.fault().map(|fault| (finding.path.as_str(), fault))).collect();
    let expected = BTreeMap::from([
        ("pki/apiserver.crt", "is not the certificate of pki/apiserver.key".to_owned()),
        ("pki/broken.crt", "the certificate cannot be read".to_owned()),
        ("pki/ended.crt", "has expired".to_owned()),
        ("scheduler.conf", "was not signed by pki/ca.crt".to_owned()),
    ]);
    assert_eq!(faults, expected);
    let soon = findings.iter().find(|finding| finding.path == "pki/soon.crt").unwrap().certificate().unwrap();
    assert_eq!((soon.state, soon.days_left), (State::EndsSoon, 29));
}

fn renewed_files(files: &Files, selection: &Selection, choice: KeyChoice, at: SystemTime) -> Result<Files, Error> {
    let validity = Validity { start: at - DAY, lifetime: DAY * 366 };
    let renewals = renew(&documents(files), selection, choice, validity, at)?;
    let mut after = files.clone();
    after.extend(as_map(&renewals.backups));
    after.extend(as_map(&renewals.files));
    Ok(after)
}

#[test]
fn renewing_keeps_key_subject_names_and_usages_and_changes_serial_and_dates() {
    let files = all_files();
    let later = now() + DAY * 350;
    let after = renewed_files(&files, &Selection::Within(DAY * 30), KeyChoice::Keep, later).unwrap();
    let (before, now_there) = (inspect(&documents(&files), now()), inspect(&documents(&after), later));
    for (old, new) in before.iter().zip(&now_there) {
        assert_eq!((&old.path, new.fault()), (&new.path, None));
        let (Some(old), Some(new)) = (old.certificate(), new.certificate()) else { continue };
        let (old, new) = (&old.certificate, &new.certificate);
        if old.is_authority {
            assert_eq!(old, new);
            continue;
        }
        assert_ne!(old.serial, new.serial);
        assert!(new.not_after > old.not_after && new.not_before > old.not_before);
        assert_eq!((old.to_string(), &old.names, &old.usages), (new.to_string(), &new.names, &new.usages));
        assert_eq!(old.pin, new.pin, "the key is the same");
    }
    for path in files.keys().filter(|path| path.ends_with(".key")) {
        assert!(files[path] == after[path], "{path}");
    }
    let nothing = renew(&documents(&after), &Selection::Within(DAY * 30), KeyChoice::Keep, validity(1), later).unwrap();
    assert!(nothing.files.is_empty() && nothing.renewed.is_empty());
}

#[test]
fn renewing_by_name_touches_nothing_else_and_authorities_never() {
    let files = all_files();
    let named = |name: &str| Selection::Named(vec![name.to_owned()]);
    for (name, path) in
        [("apiserver", "pki/apiserver.crt"), ("etcd/server.crt", "pki/etcd/server.crt"), ("admin.conf", "admin.conf")]
    {
        let after = renewed_files(&files, &named(name), KeyChoice::Keep, now()).unwrap();
        let changed: Vec<&String> = files.keys().filter(|path| files[*path] != after[*path]).collect();
        assert_eq!(changed, [path]);
    }
    for (name, words) in [("ca", "is an authority"), ("nobody", "no certificate is called")] {
        let error = renewed_files(&files, &named(name), KeyChoice::Keep, now()).err().unwrap();
        assert!(error.to_string().contains(words), "{error}");
    }
}

#[test]
fn a_new_key_keeps_the_old_one_beside_it_and_never_overwrites_it() {
    let files = all_files();
    let selection = Selection::Named(vec!["apiserver".into(), "admin.conf".into()]);
    let after = renewed_files(&files, &selection, KeyChoice::Replace, now()).unwrap();
    assert!(after["pki/apiserver.key.old"] == files["pki/apiserver.key"]);
    assert!(after["admin.conf.old"] == files["admin.conf"]);
    assert!(after["pki/apiserver.key"] != files["pki/apiserver.key"]);
    assert_whole(&after);
    let error = renewed_files(&after, &selection, KeyChoice::Replace, now()).err().unwrap();
    assert!(error.to_string().contains("admin.conf.old holds another key"), "{error}");
    // Cut short between key and certificate: the next run completes it, with that key.
    let mut cut = after.clone();
    cut.insert("pki/apiserver.crt".into(), files["pki/apiserver.crt"].clone());
    for choice in [KeyChoice::Keep, KeyChoice::Replace] {
        let mended = renewed_files(&cut, &Selection::Named(vec!["apiserver".into()]), choice, now()).unwrap();
        assert!(mended["pki/apiserver.key"] == after["pki/apiserver.key"]);
        assert!(mended["pki/apiserver.key.old"] == files["pki/apiserver.key"]);
        assert_whole(&mended);
    }
}

#[test]
fn what_a_new_certificate_could_not_carry_is_not_renewed() {
    let mut files = all_files();
    let chain = format!("{}{}", files["pki/apiserver.crt"].expose(), files["pki/ca.crt"].expose());
    files.insert("pki/apiserver.crt".into(), Secret::new(chain));
    let error = renewed_files(&files, &Selection::All, KeyChoice::Keep, now()).err().unwrap();
    let text = format!("{error}: {}", std::error::Error::source(&error).unwrap());
    assert!(text.contains("pki/apiserver.crt: ") && text.contains("more than one certificate"), "{text}");
    let mut files = all_files();
    files.remove("pki/etcd/ca.key");
    let error = renewed_files(&files, &Selection::All, KeyChoice::Keep, now()).err().unwrap();
    assert!(error.to_string().contains("pki/etcd/ca.key"), "{error}");
}
