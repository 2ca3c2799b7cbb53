//! Each component config, decoded strictly with the types of the case's own minor.

use std::path::PathBuf;

use lab::Consumers;
use lab::consumers::Document;

use crate::support::{Report, cases, consumers};

#[test]
fn every_component_config_decodes_strictly_with_the_types_of_its_minor() {
    let Some(consumers) = consumers() else { return };
    let mut report = Report::default();
    for case in cases() {
        let Some(minor) = case.kubernetes_minor().expect("manifest") else { continue };
        for document in case.documents(&Consumers::COMPONENT_CONFIGS).expect("documents") {
            let file = document.file.display().to_string();
            report.add(&case.name, &file, consumers.check_component_config(&minor, &document));
        }
    }
    report.finish("component configs", 5);
}

fn document(kind: &str, version: &str, rest: &str) -> Document {
    let text = format!("apiVersion: {version}\nkind: {kind}\n{rest}");
    Document { file: PathBuf::new(), kind: kind.into(), text, value: serde_json::Value::Null }
}

#[test]
fn a_field_that_a_minor_does_not_have_is_refused_there_and_taken_elsewhere() {
    let Some(consumers) = consumers() else { return };
    let kubelet = |rest: &str| document("KubeletConfiguration", "kubelet.config.k8s.io/v1beta1", rest);
    let scheduler = |rest: &str| document("KubeSchedulerConfiguration", "kubescheduler.config.k8s.io/v1", rest);
    let proxy = |rest: &str| document("KubeProxyConfiguration", "kubeproxy.config.k8s.io/v1alpha1", rest);
    for minor in consumers.decoded_minors().expect("decoders") {
        let check = |document: &Document| consumers.check_component_config(&minor, document);
        for (document, right) in [
            (kubelet("maxPods: 110\n"), true),
            (kubelet("maxPod: 110\n"), false),
            (kubelet("maxPods: many\n"), false),
            (kubelet("maxPods: 1\nmaxPods: 2\n"), false),
            (kubelet("containerLogMaxSize: 5\n"), false),
            (scheduler("parallelism: 16\n"), true),
            (scheduler("paralelism: 16\n"), false),
            (proxy("mode: nftables\n"), true),
            (proxy("modus: nftables\n"), false),
        ] {
            assert_eq!(check(&document).is_ok(), right, "{minor}: {} {:?}", document.text, check(&document));
        }
    }
    // New in 1.31.
    let fail_cgroup_v1 = kubelet("failCgroupV1: false\n");
    consumers.check_component_config("1.30", &fail_cgroup_v1).expect_err("1.30 has no failCgroupV1");
    consumers.check_component_config("1.36", &fail_cgroup_v1).expect("1.36 has failCgroupV1");
    consumers.check_component_config("1.29", &fail_cgroup_v1).expect_err("there is no decoder for 1.29");
}
