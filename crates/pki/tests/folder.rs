//! What is wrong with a folder is found and named: by `create`, `inspect`, `renew`, and by whoever reads it for a spec.
#![allow(clippy::unwrap_used, reason = "tests may panic")]

use std::collections::BTreeMap;
use std::time::{Duration, SystemTime};

use pki::{
    ControlPlane, ControlPlaneNode, Document, Error, KeyAlgorithm, KeyChoice, Secret, Selection, Validity, What,
    check_folder, complete_control_plane, control_plane_files, inspect, renew,
};

const DAY: Duration = Duration::from_secs(24 * 60 * 60);
const MINUTE: Duration = Duration::from_secs(60);
const API_SERVER: &str = "https://api.example.com:6443";

type Files = BTreeMap<String, Secret>;

fn now() -> SystemTime {
    SystemTime::UNIX_EPOCH + DAY * 20_000
}

/// From a little before, as other machines' clocks may be behind.
fn validity(at: SystemTime, lifetime: Duration) -> Validity {
    Validity { start: at - MINUTE * 5, lifetime: lifetime + MINUTE * 5 }
}

fn wanted(at: SystemTime) -> ControlPlane {
    ControlPlane {
        cluster_name: "demo".into(),
        api_server: API_SERVER.into(),
        nodes: vec![ControlPlaneNode { name: "cp-1".into(), addresses: vec!["10.0.0.10".parse().unwrap()] }],
        service_addresses: vec![],
        cluster_domain: "cluster.local".into(),
        aliases: vec![],
        extra_names: vec![],
        algorithm: KeyAlgorithm::EcdsaP256,
        authority_validity: validity(at, DAY * 10),
        validity: validity(at, DAY * 5),
        now: at,
    }
}

fn files() -> Files {
    control_plane_files(&wanted(now())).unwrap().into_iter().map(|file| (file.path, file.content)).collect()
}

fn documents(files: &Files) -> Vec<Document> {
    files.iter().map(|(path, content)| Document { path: path.clone(), content: Ok(content.clone()) }).collect()
}

fn renewed(documents: &[Document], selection: &Selection, at: SystemTime) -> Result<pki::Renewals, Error> {
    renew(documents, selection, KeyChoice::Keep, validity(at, DAY), at)
}

fn replaced(files: &Files, path: &str, old: &str, new: &str) -> Files {
    let text = files[path].expose();
    assert!(text.contains(old), "{path}");
    let mut files = files.clone();
    files.insert(path.to_owned(), Secret::new(text.replace(old, new)));
    files
}

/// Two minutes: the new certificates would begin before the end of the authority and end with it.
#[test]
fn an_authority_that_has_just_expired_renews_nothing() {
    let late = now() + DAY * 10 + MINUTE * 2;
    for selection in [Selection::All, Selection::Within(DAY), Selection::Named(vec!["apiserver".into()])] {
        let error = renewed(&documents(&files()), &selection, late).err().unwrap();
        assert!(matches!(&error, Error::AuthorityExpired { .. }), "{error}");
        assert!(error.to_string().contains("make new authorities"), "{error}");
    }
    renewed(&documents(&files()), &Selection::All, late - MINUTE * 3).unwrap();
}

#[test]
fn completing_names_what_has_expired_and_signs_nothing_with_it() {
    let mut files = files();
    let leaves = complete_control_plane(&wanted(now() + DAY * 6), &files).unwrap();
    assert!(leaves.new.is_empty() && leaves.ended.iter().all(|ended| !ended.is_authority));
    assert_eq!(leaves.ended.len(), 13, "seven pairs and six kubeconfigs");
    let late = wanted(now() + DAY * 10 + MINUTE * 2);
    let all = complete_control_plane(&late, &files).unwrap();
    assert_eq!((all.ended.len(), all.ended.iter().filter(|ended| ended.is_authority).count()), (16, 3));
    files.remove("admin.conf");
    let error = complete_control_plane(&late, &files).err().unwrap().to_string();
    assert!(error.contains("pki/ca.crt has expired") && error.contains("admin.conf"), "{error}");
}

#[test]
fn kubeconfigs_of_another_server_or_cluster_are_not_kept() {
    let files = files();
    let mut other = wanted(now());
    other.api_server = "https://cp-1:6443".into();
    let error = complete_control_plane(&other, &files).err().unwrap().to_string();
    assert!(error.contains("admin.conf is for the API server https://api.example.com:6443, not for https://cp-1:6443"));
    let mut other = wanted(now());
    other.cluster_name = "elsewhere".into();
    let error = complete_control_plane(&other, &files).err().unwrap().to_string();
    assert!(error.contains("admin.conf is for the cluster \"demo\", not for \"elsewhere\""), "{error}");
    // As kubeadm writes them: its own name for a cluster, and the API server beside which they run.
    let kubeadm = replaced(&files, "admin.conf", "\"demo\"", "kubernetes");
    let kubeadm = replaced(&kubeadm, "scheduler.conf", API_SERVER, "https://10.0.0.10:6443");
    assert!(complete_control_plane(&wanted(now()), &kubeadm).unwrap().new.is_empty());
    let elsewhere = replaced(&files, "scheduler.conf", API_SERVER, "https://10.0.0.11:6443");
    assert!(complete_control_plane(&wanted(now()), &elsewhere).is_err());
}

/// An authority called as ours, in the kind of string that kubeadm writes.
fn kubeadms_authority() -> (String, String) {
    use rcgen::{BasicConstraints, CertificateParams, DistinguishedName, DnType, DnValue, IsCa, KeyPair};
    let key = KeyPair::generate().unwrap();
    let mut params = CertificateParams::default();
    params.distinguished_name = DistinguishedName::new();
    params.distinguished_name.push(DnType::CommonName, DnValue::PrintableString("kubernetes".try_into().unwrap()));
    params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

#[test]
fn an_authority_of_the_same_name_that_did_not_sign_is_found_however_the_name_is_encoded() {
    let mut files = files();
    let (certificate, key) = kubeadms_authority();
    files.insert("pki/ca.crt".into(), Secret::new(certificate));
    files.insert("pki/ca.key".into(), Secret::new(key));
    let findings = inspect(&documents(&files), now());
    for path in ["pki/apiserver.crt", "admin.conf"] {
        let finding = findings.iter().find(|finding| finding.path == path).unwrap();
        assert_eq!(finding.fault().as_deref(), Some("was not signed by pki/ca.crt"), "{path}");
    }
    let error = renewed(&documents(&files), &Selection::All, now()).err().unwrap().to_string();
    assert!(error.contains("admin.conf was not issued by pki/ca.crt"), "{error}");
    // Nor is an authority that only a kubeconfig knows a file.
    files.retain(|path, _| path == "admin.conf");
    let error = renewed(&documents(&files), &Selection::All, now()).err().unwrap().to_string();
    assert!(error.contains("the authority that issued admin.conf is not here"), "{error}");
}

#[test]
fn a_file_that_cannot_be_read_is_one_finding_and_is_left_alone() {
    let mut documents = documents(&files());
    documents.push(Document { path: "pki/odd.pem".into(), content: Err("it is not text".into()) });
    let findings = inspect(&documents, now());
    let faults: Vec<_> =
        findings.iter().filter_map(|finding| finding.fault().map(|why| (&finding.path, why))).collect();
    assert_eq!(faults, [(&"pki/odd.pem".to_owned(), "cannot be read: it is not text".to_owned())]);
    let renewals = renewed(&documents, &Selection::All, now()).unwrap();
    assert_eq!((renewals.renewed.len(), renewals.unreadable.len()), (13, 1));
    assert!(matches!(&renewals.unreadable[0].what, What::Unreadable { .. }));
    let named = renewed(&documents, &Selection::Named(vec!["odd".into()]), now()).err().unwrap();
    assert!(matches!(&named, Error::Within { path, .. } if path == "pki/odd.pem"), "{named}");
    // Without its key nothing is renewed, and nothing else either: all or nothing is decided.
    for document in documents.iter_mut().filter(|document| document.path == "pki/apiserver.key") {
        document.content = Err("it is not text".into());
    }
    let error = renewed(&documents, &Selection::All, now()).err().unwrap();
    assert!(matches!(&error, Error::Within { path, .. } if path == "pki/apiserver.key"), "{error}");
}

#[track_caller]
fn faults(files: &Files, expected: &[(&str, &str)]) {
    let found = check_folder(&documents(files), API_SERVER);
    let found: Vec<(&str, &str)> = found.iter().map(|fault| (fault.path.as_str(), fault.what.as_str())).collect();
    assert_eq!(found, expected);
}

#[test]
fn a_whole_folder_has_no_fault_and_every_damaged_file_has_one() {
    let files = files();
    faults(&files, &[]);
    for path in files.keys() {
        for garbage in ["", "garbage\n", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            let mut damaged = files.clone();
            damaged.insert(path.clone(), Secret::new(garbage));
            let found = check_folder(&documents(&damaged), API_SERVER);
            // A damaged key is told with its certificate.
            let stem = path.strip_suffix(".key").unwrap_or(path);
            assert!(found.iter().any(|fault| fault.path.starts_with(stem)), "{path} {garbage}: {found:?}");
        }
    }
}

#[test]
fn files_of_another_control_plane_are_found() {
    let (files, others) = (files(), self::files());
    let mixed = |paths: &[&str]| {
        let mut mixed = files.clone();
        mixed.extend(paths.iter().map(|path| ((*path).to_owned(), others[*path].clone())));
        mixed
    };
    faults(
        &mixed(&["pki/apiserver.crt", "pki/apiserver.key"]),
        &[("pki/apiserver.crt", "was not signed by pki/ca.crt")],
    );
    faults(&mixed(&["pki/etcd/peer.key"]), &[("pki/etcd/peer.crt", "is not the certificate of pki/etcd/peer.key")]);
    faults(&mixed(&["scheduler.conf"]), &[("scheduler.conf", "was not signed by pki/ca.crt")]);
    faults(&mixed(&["pki/sa.pub"]), &[("pki/sa.pub", "is not the public half of pki/sa.key")]);
    let swapped = {
        let mut swapped = files.clone();
        for ending in ["crt", "key"] {
            let front = files[&format!("pki/front-proxy-client.{ending}")].clone();
            swapped.insert(format!("pki/apiserver-kubelet-client.{ending}"), front);
        }
        swapped
    };
    faults(&swapped, &[("pki/apiserver-kubelet-client.crt", "was not signed by pki/ca.crt")]);
}

#[test]
fn a_folder_for_another_api_server_is_found() {
    let files = files();
    let found = check_folder(&documents(&files), "https://10.9.9.9:6443");
    let found: Vec<&str> = found.iter().map(|fault| fault.path.as_str()).collect();
    // The other kubeconfigs lead to a name of the certificate: an API server beside them may well be reached by it.
    assert_eq!(found, ["admin.conf", "kube-proxy.conf", "pki/apiserver.crt", "super-admin.conf"]);
    let local = replaced(&files, "scheduler.conf", API_SERVER, "https://127.0.0.1:6443");
    faults(&local, &[]);
    let spelt = replaced(&files, "admin.conf", API_SERVER, "https://API.example.com:6443/");
    faults(&spelt, &[]);
    let elsewhere = "is for the API server \"https://127.0.0.1:6443\", not for https://api.example.com:6443";
    faults(&replaced(&files, "admin.conf", API_SERVER, "https://127.0.0.1:6443"), &[("admin.conf", elsewhere)]);
}
