//! A word about a Node where people look for it: `kubectl describe node`.

use k8s_openapi::api::core::v1::{Event, EventSource, ObjectReference};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use k8s_openapi::jiff::Timestamp;
use kube::Api;
use kube::api::{Patch, PatchParams, PostParams};
use serde::Serialize;

use crate::access::Access;
use crate::answer::{Answer, Patience, ask};

/// Where events about Nodes are, which lie in no namespace themselves.
const NAMESPACE: &str = "default";
const COMPONENT: &str = "nodestrap";
/// The API server takes no more of those of the newer kind, and people read no more of one.
const LONGEST_MESSAGE: usize = 1000;

/// How much it matters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Weight {
    Normal,
    Warning,
}

/// Something to say about a Node.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NodeEvent {
    pub node: String,
    /// Of the Node; people find the event by it.
    pub uid: String,
    pub weight: Weight,
    /// One word, for programs: `NextBootRefused`.
    pub reason: String,
    pub message: String,
    /// What tells it from others of the same reason, in lower-case letters and digits. The same again is the same event, seen later.
    pub mark: String,
}

impl NodeEvent {
    fn name(&self) -> String {
        format!("{}.{COMPONENT}.{}", self.node, self.mark)
    }

    fn object(&self, now: Timestamp) -> Event {
        let text = |text: &str| Some(text.to_owned());
        let weight = match self.weight {
            Weight::Normal => "Normal",
            Weight::Warning => "Warning",
        };
        Event {
            metadata: ObjectMeta { name: Some(self.name()), namespace: text(NAMESPACE), ..ObjectMeta::default() },
            involved_object: ObjectReference {
                api_version: text("v1"),
                kind: text("Node"),
                name: text(&self.node),
                uid: text(&self.uid),
                ..ObjectReference::default()
            },
            type_: text(weight),
            reason: text(&self.reason),
            message: Some(self.message.chars().take(LONGEST_MESSAGE).collect()),
            source: Some(EventSource { component: text(COMPONENT), host: text(&self.node) }),
            reporting_component: text(COMPONENT),
            reporting_instance: text(&self.node),
            count: Some(1),
            first_timestamp: Some(Time(now)),
            last_timestamp: Some(Time(now)),
            ..Event::default()
        }
    }
}

/// Says it; if it was said before, says that it is still so. `now`: in seconds since 1970.
pub async fn say_about_node(access: &Access, event: &NodeEvent, now: i64, patience: Patience) -> Answer<()> {
    let Ok(now) = Timestamp::from_second(now) else {
        return Answer::Malformed { reason: format!("{now} is no time in seconds since 1970") };
    };
    let (object, name) = (event.object(now), event.name());
    let (object, name) = (&object, name.as_str());
    ask(access, patience, |client| async move {
        let events: Api<Event> = Api::namespaced(client, NAMESPACE);
        match events.create(&PostParams::default(), object).await {
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let again = SeenAgain { last_timestamp: Time(now) };
                events.patch(name, &PatchParams::default(), &Patch::Merge(again)).await.map(drop)
            }
            other => other.map(drop),
        }
    })
    .await
}

#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
struct SeenAgain {
    last_timestamp: Time,
}
