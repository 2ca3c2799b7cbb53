//! Environment files have two readers, systemd and the shells of old bootstraps, which must agree.

use super::*;
use proptest::prelude::*;

/// What a shell that reads the file knows afterwards, in the order of the names.
fn sourced(content: &[u8], names: &[&str]) -> Vec<String> {
    let file = TemporaryFile::new(content);
    let script =
        r#"set -o errexit -o nounset; source "$1"; shift; for name in "$@"; do printf '%s\0' "${!name}"; done"#;
    let output = Command::new("bash").args(["-c", script, "reader"]).arg(&file.0).args(names).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let values = String::from_utf8(output.stdout).unwrap();
    values.split_terminator('\0').map(str::to_owned).collect()
}

/// The rules of systemd's `EnvironmentFile=` for values in double quotes, both old (any escaped character stands
/// for itself) and new (only four do): a file is good if both agree.
fn read_by_systemd(content: &[u8]) -> BTreeMap<String, String> {
    let unescape = |inner: &str, any: bool| {
        let (mut value, mut characters) = (String::new(), inner.chars());
        while let Some(character) = characters.next() {
            match (character, characters.clone().next()) {
                ('\\', Some(next)) if any || "\"\\`$".contains(next) => {
                    value.push(next);
                    characters.next();
                }
                (other, _) => value.push(other),
            }
        }
        value
    };
    let lines = std::str::from_utf8(content).unwrap().lines().filter(|line| !line.starts_with('#'));
    lines
        .map(|line| {
            let (name, value) = line.split_once('=').unwrap();
            let inner = value.strip_prefix('"').unwrap().strip_suffix('"').unwrap();
            assert_eq!(unescape(inner, true), unescape(inner, false), "{line}");
            (name.to_owned(), unescape(inner, false))
        })
        .collect()
}

pub(super) struct TemporaryFile(pub(super) PathBuf);

impl TemporaryFile {
    pub(super) fn new(content: &[u8]) -> Self {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let name = format!("nodestrap-{}-{}", std::process::id(), NEXT.fetch_add(1, Ordering::Relaxed));
        let path = std::env::temp_dir().join(name);
        fs::write(&path, content).unwrap();
        Self(path)
    }
}

impl Drop for TemporaryFile {
    fn drop(&mut self) {
        let _ = fs::remove_file(&self.0);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]
    #[test]
    fn a_shell_and_systemd_read_the_same(value in "[ -~éß]{0,24}", other in "[\"$`\\\\'!#;a ]{0,8}") {
        let content = environment_file([("A", value.as_str()), ("B", other.as_str())]);
        prop_assert_eq!(sourced(&content, &["A", "B"]), [value.clone(), other.clone()]);
        let expected = BTreeMap::from([("A".to_owned(), value), ("B".to_owned(), other)]);
        prop_assert_eq!(read_by_systemd(&content), expected);
    }
}

#[test]
fn those_of_a_node_are_read_alike() {
    let bundle = rendered("eksctl-al2");
    let metadata = text(&bundle, "/etc/eksctl/metadata.env").as_bytes();
    let names = ["AWS_DEFAULT_REGION", "AWS_EKS_CLUSTER_NAME", "AWS_EKS_ENDPOINT", "AWS_EKS_ECR_ACCOUNT"];
    let values = ["eu-west-1", "golden", "https://0123456789abcdef.gr7.eu-west-1.eks.amazonaws.com", "602401143452"];
    assert_eq!(sourced(metadata, &names), values);
    assert_eq!(read_by_systemd(metadata).into_values().collect::<BTreeSet<_>>(), values.map(str::to_owned).into());
    let kubelet = text(&bundle, "/etc/eksctl/kubelet.env").as_bytes();
    let values = [
        "alpha.eksctl.io/nodegroup-name=workers,example.com/pool=general",
        "example.com/dedicated=batch:NoSchedule,example.com/slow=:PreferNoSchedule",
    ];
    assert_eq!(sourced(kubelet, &["NODE_LABELS", "NODE_TAINTS"]), values);
}
