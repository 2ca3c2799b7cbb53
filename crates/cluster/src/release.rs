//! Which release the cluster runs, and a text that it keeps for its nodes in a ConfigMap.

use k8s_openapi::api::core::v1::ConfigMap;
use kube::Api;

use crate::access::Access;
use crate::answer::{Answer, Patience, ask};

/// The longest that Kubernetes lets a name of an object be.
const LONGEST_NAME: usize = 253;
/// Those of vendors have a tail, such as `v1.31.4-eks-2d5f260`; none is near this.
const LONGEST_VERSION: usize = 128;

/// The release of an API server in its own words, as `v1.9.6+coreos.0`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitVersion(String);

impl GitVersion {
    /// `v`, three numbers, and what a vendor puts after them.
    pub fn parse(text: &str) -> Option<Self> {
        let numbers_end = text.find(['-', '+']).unwrap_or(text.len());
        let (numbers, tail) = (text.get(..numbers_end)?.strip_prefix('v')?, text.get(numbers_end..)?);
        let is_number = |part: &str| !part.is_empty() && part.len() <= 9 && part.bytes().all(|b| b.is_ascii_digit());
        let is_tail = |byte: u8| byte.is_ascii_alphanumeric() || b".-+_".contains(&byte);
        let is_version = text.len() <= LONGEST_VERSION
            && numbers.split('.').count() == 3
            && numbers.split('.').all(is_number)
            && tail.len() != 1
            && tail.bytes().all(is_tail);
        is_version.then(|| Self(text.to_owned()))
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl std::fmt::Display for GitVersion {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

/// One text in one ConfigMap. Shown as `NAMESPACE/NAME, key KEY`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigMapKey {
    namespace: String,
    name: String,
    key: String,
}

impl ConfigMapKey {
    /// `Err`: the part that no cluster would take for a name.
    pub fn new(namespace: &str, name: &str, key: &str) -> Result<Self, String> {
        let is_name = |text: &str, more: &[u8]| {
            let is_inside = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || more.contains(&byte);
            let is_end = |byte: Option<&u8>| byte.is_some_and(u8::is_ascii_alphanumeric);
            let bytes = text.as_bytes();
            bytes.len() <= LONGEST_NAME
                && bytes.iter().copied().all(is_inside)
                && is_end(bytes.first())
                && is_end(bytes.last())
        };
        let is_key = |text: &str| {
            let is_inside = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
            (1..=LONGEST_NAME).contains(&text.len()) && text.bytes().all(is_inside)
        };
        if !is_name(namespace, b"-") {
            return Err(format!("{namespace:?} is no name of a namespace"));
        }
        if !is_name(name, b"-.") {
            return Err(format!("{name:?} is no name of a ConfigMap"));
        }
        if !is_key(key) {
            return Err(format!("{key:?} is no key of a ConfigMap"));
        }
        Ok(Self { namespace: namespace.to_owned(), name: name.to_owned(), key: key.to_owned() })
    }
}

impl std::fmt::Display for ConfigMapKey {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}/{}, key {}", self.namespace, self.name, self.key)
    }
}

/// What `GET /version` says.
pub async fn cluster_version(access: &Access, patience: Patience) -> Answer<GitVersion> {
    let asked = ask(access, patience, |client| async move { client.apiserver_version().await });
    asked.await.read(|info| {
        let version = info.git_version;
        GitVersion::parse(&version).ok_or_else(|| format!("{version:?} is no version of Kubernetes"))
    })
}

/// The text under that key; a ConfigMap without it is malformed, not absent.
pub async fn config_map_text(access: &Access, place: &ConfigMapKey, patience: Patience) -> Answer<String> {
    let asked = ask(access, patience, |client| async move {
        let maps: Api<ConfigMap> = Api::namespaced(client, &place.namespace);
        maps.get(&place.name).await
    });
    asked.await.read(|map| {
        let text = map.data.and_then(|mut data| data.remove(&place.key));
        text.ok_or_else(|| format!("the ConfigMap has no text under the key {:?}", place.key))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn versions_are_those_of_kubernetes_and_its_vendors() {
        for good in ["v1.9.6", "v1.9.6+coreos.0", "v1.31.4-eks-2d5f260", "v1.30.2-gke.100", "v1.37.0-alpha.1+dirty"] {
            assert_eq!(GitVersion::parse(good).unwrap().as_str(), good);
        }
        let long = format!("v1.2.3+{}", "x".repeat(200));
        let bad =
            ["", "v", "1.9.6", "v1.9", "v1.9.6.1", "v1.x.6", "v1..6", "v1.9.6/..", "v1.9.6+", "v1.9.6 ", "latest", "é"];
        for bad in bad.into_iter().chain([long.as_str()]) {
            assert_eq!(GitVersion::parse(bad), None, "{bad:?}");
        }
    }

    #[test]
    fn names_that_no_cluster_has_are_refused_before_anybody_is_asked() {
        let key = "runtime-mappings.yaml";
        assert!(ConfigMapKey::new("tectonic-system", "tectonic-torcx-runtime-mappings", key).is_ok());
        assert!(ConfigMapKey::new("kube-system", "a.b", "a_B.1").is_ok());
        for bad in ["", "a/b", "A", "-a", "a-", "..", "a b", "é"] {
            assert!(ConfigMapKey::new(bad, "a", key).is_err(), "{bad:?}");
            assert!(ConfigMapKey::new("a", bad, key).is_err(), "{bad:?}");
        }
        assert!(ConfigMapKey::new("a.b", "a", key).is_err());
        for bad in ["", "a/b", "a b"] {
            assert!(ConfigMapKey::new("a", "a", bad).is_err(), "{bad:?}");
        }
    }
}
