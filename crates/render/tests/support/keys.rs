//! The keys, certificates and kubeconfigs of a control plane, made when a test asks for them: no key is kept as a file.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, SystemTime};

use pki::{ControlPlane, ControlPlaneNode, KeyAlgorithm, Validity, control_plane_files};

/// Contents by the paths that `nodestrap pki create` gives them, such as `pki/ca.key`.
pub(crate) type Files = BTreeMap<String, String>;

/// For one API server. Whoever asks again in the same process gets the same keys; the next process has others.
pub(crate) fn control_plane(api_server: &str) -> Arc<Files> {
    static MADE: Mutex<BTreeMap<String, Arc<Files>>> = Mutex::new(BTreeMap::new());
    let mut made = MADE.lock().unwrap_or_else(PoisonError::into_inner);
    Arc::clone(made.entry(api_server.to_owned()).or_insert_with(|| Arc::new(create(api_server))))
}

fn create(api_server: &str) -> Files {
    const DAY: Duration = Duration::from_secs(24 * 60 * 60);
    // 2026; nobody looks at the dates of a folder before a machine has it.
    let now = SystemTime::UNIX_EPOCH + DAY * 20_600;
    let validity = Validity { start: now, lifetime: DAY * 3650 };
    let wanted = ControlPlane {
        cluster_name: "golden".to_owned(),
        api_server: api_server.to_owned(),
        nodes: vec![ControlPlaneNode { name: "cp-1".to_owned(), addresses: Vec::new() }],
        service_addresses: vec![[10, 96, 0, 1].into()],
        cluster_domain: "cluster.local".to_owned(),
        aliases: Vec::new(),
        extra_names: Vec::new(),
        algorithm: KeyAlgorithm::EcdsaP256,
        authority_validity: validity,
        validity,
        now,
    };
    let files = control_plane_files(&wanted).unwrap_or_else(|error| panic!("keys for {api_server}: {error}"));
    files.into_iter().map(|file| (file.path, file.content.expose().to_owned())).collect()
}
