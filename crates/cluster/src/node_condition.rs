//! What the cluster thinks of a node.

use std::time::Duration;

use k8s_openapi::api::core::v1::Node;
use kube::Api;

use crate::access::Access;
use crate::client::{ClusterError, client_for};

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NodeCondition {
    Ready {
        /// When the kubelet said so last, in seconds since 1970 by its own clock.
        heard_at: Option<i64>,
    },
    NotReady {
        reason: String,
    },
    /// No Node of that name is registered.
    Absent,
}

/// Asks once, with the kubelet's own credentials.
pub async fn node_condition(access: &Access, name: &str, deadline: Duration) -> Result<NodeCondition, ClusterError> {
    let (client, server) = client_for(access, deadline);
    let nodes: Api<Node> = Api::all(client);
    let what = format!("Node {name:?}");
    match tokio::time::timeout(deadline, nodes.get_opt(name)).await {
        Ok(Ok(Some(node))) => Ok(condition_of(&node)),
        Ok(Ok(None)) => Ok(NodeCondition::Absent),
        Ok(Err(source)) => Err(ClusterError::Ask { what, server, source: Box::new(source) }),
        Err(_) => Err(ClusterError::Deadline { what, server, waited: deadline, last: "none".to_owned() }),
    }
}

fn condition_of(node: &Node) -> NodeCondition {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    let ready = conditions.and_then(|all| all.iter().find(|condition| condition.type_ == "Ready"));
    match ready {
        Some(ready) if ready.status == "True" => {
            NodeCondition::Ready { heard_at: ready.last_heartbeat_time.as_ref().map(|time| time.0.as_second()) }
        }
        Some(ready) => {
            let message = ready.message.clone().unwrap_or_else(|| "no reason given".to_owned());
            NodeCondition::NotReady { reason: message }
        }
        None => NodeCondition::NotReady { reason: "the kubelet has not reported yet".to_owned() },
    }
}
