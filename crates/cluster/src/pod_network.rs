//! The pod ranges that the cluster gave to this node.

use std::pin::pin;
use std::time::Duration;

use futures_util::TryStreamExt;
use k8s_openapi::api::core::v1::Node;
use kube::Api;
use kube::runtime::{WatchStreamExt, watcher};

use crate::access::Access;
use crate::client::{ClusterError, client_for, root_cause};

/// Longer than the API server's own bookmark interval, so that a quiet watch is not taken for a dead one.
const WATCH_READ_TIMEOUT: Duration = Duration::from_secs(295);

/// Watches the Node of that name until the controller-manager has given it pod ranges, and returns them: one for a
/// single-stack cluster, two for dual stack. An API server that is down, or a Node that is not there yet, is waited for.
pub async fn wait_for_pod_cidrs(
    access: &Access,
    node_name: &str,
    deadline: Duration,
    mut on_trouble: impl FnMut(&str),
) -> Result<Vec<String>, ClusterError> {
    let (client, server) = client_for(access, WATCH_READ_TIMEOUT);
    let nodes: Api<Node> = Api::all(client);
    // The node authorizer lets a kubelet watch its own Node, and only with exactly this selector.
    let only_mine = watcher::Config::default().fields(&format!("metadata.name={node_name}"));
    let mut last = "the Node is not registered yet".to_owned();
    let found = tokio::time::timeout(deadline, async {
        let mut changes = pin!(watcher(nodes, only_mine).default_backoff().applied_objects());
        loop {
            match changes.try_next().await {
                Ok(Some(node)) => match pod_cidrs_of(&node) {
                    Some(cidrs) => return Ok(cidrs),
                    None => "the Node is registered, but has no PodCIDR yet".clone_into(&mut last),
                },
                Ok(None) => return Err(ClusterError::WatchEnded { what: format!("Node {node_name:?}") }),
                Err(error) => {
                    last = root_cause(&error);
                    on_trouble(&last);
                }
            }
        }
    })
    .await;
    found.unwrap_or_else(|_| {
        Err(ClusterError::Deadline {
            what: format!("the PodCIDR of Node {node_name:?}"),
            server,
            waited: deadline,
            last,
        })
    })
}

fn pod_cidrs_of(node: &Node) -> Option<Vec<String>> {
    let spec = node.spec.as_ref()?;
    let mut cidrs = spec.pod_cidrs.clone().unwrap_or_default();
    if cidrs.is_empty() {
        cidrs.extend(spec.pod_cidr.clone());
    }
    (!cidrs.is_empty()).then_some(cidrs)
}

#[cfg(test)]
mod tests {
    use k8s_openapi::api::core::v1::NodeSpec;

    use super::*;

    fn node(pod_cidr: Option<&str>, pod_cidrs: &[&str]) -> Node {
        let spec = NodeSpec {
            pod_cidr: pod_cidr.map(str::to_owned),
            pod_cidrs: (!pod_cidrs.is_empty()).then(|| pod_cidrs.iter().map(|c| (*c).to_owned()).collect()),
            ..NodeSpec::default()
        };
        Node { spec: Some(spec), ..Node::default() }
    }

    #[test]
    fn a_node_without_ranges_is_still_waited_for() {
        assert_eq!(pod_cidrs_of(&Node::default()), None);
        assert_eq!(pod_cidrs_of(&node(None, &[])), None);
    }

    #[test]
    fn both_families_of_a_dual_stack_node_are_taken_in_order() {
        let dual = node(Some("10.97.1.0/24"), &["10.97.1.0/24", "fd00:97:0:1::/64"]);
        assert_eq!(pod_cidrs_of(&dual), Some(vec!["10.97.1.0/24".to_owned(), "fd00:97:0:1::/64".to_owned()]));
        assert_eq!(pod_cidrs_of(&node(Some("10.97.1.0/24"), &[])), Some(vec!["10.97.1.0/24".to_owned()]));
    }
}
