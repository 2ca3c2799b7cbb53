//! What machines of a group get besides the bundle: more user data, and what the provider starts them with.
//!
//! Contents are here as digests only: they may hold anything.

use std::collections::BTreeMap;

use spec::{AdditionalUserData, CompleteDelivery, CompleteMachines, CompleteNodeGroup, CompleteNodestrap};

use super::ValueChange;
use super::values::{Leaf, Values, leaf_changes};
use crate::content::sha256_hex;
use crate::delivery::{UserDataPart, read_additional_parts};

/// As far as it is known: a bundle says nothing of it, user data something, a spec all.
#[derive(Default)]
pub struct Besides {
    user_data: Option<Values>,
    machines: Option<Values>,
}

impl Besides {
    /// Of a MIME message, by its parts that are not nodestrap's. Of other formats nothing is known.
    pub fn of_user_data(bytes: &[u8]) -> Self {
        let part =
            |UserDataPart { name, content_type, content }: &UserDataPart| user_data_part(name, content_type, content);
        let parts = read_additional_parts(bytes);
        Self { user_data: parts.map(|parts| parts.iter().map(part).collect()), machines: None }
    }

    pub(crate) fn of_group(group: &CompleteNodeGroup) -> Self {
        let group = &group.spec;
        let part = |AdditionalUserData { name, r#type, content, place: _ }: &AdditionalUserData| {
            user_data_part(name.as_str(), &r#type.to_string(), content.0.as_bytes())
        };
        let user_data = group.additional_user_data.value.iter().map(part).collect();
        Self { user_data: Some(user_data), machines: Some(machines(&group.machines, &group.delivery)) }
    }
}

/// What is known of both and differs.
pub(super) fn changes(old: &Besides, new: &Besides) -> Vec<ValueChange> {
    let pairs = [(&old.user_data, &new.user_data), (&old.machines, &new.machines)];
    let known = pairs.into_iter().filter_map(|(old, new)| Some((old.as_ref()?, new.as_ref()?)));
    known.flat_map(|(old, new)| leaf_changes(old, new)).collect()
}

fn user_data_part(name: &str, content_type: &str, content: &[u8]) -> (String, Leaf) {
    let text = format!("{} sha256:{}", content_type.to_ascii_lowercase(), sha256_hex(content));
    (format!("additionalUserData.{name}"), Leaf::text(text))
}

/// Taken apart by name, so that nothing of it is forgotten.
fn machines(machines: &CompleteMachines, delivery: &CompleteDelivery) -> Values {
    let CompleteMachines {
        instance_type,
        // It decides on the number of pods, which the bundle has.
        prefix_delegation: _,
        image,
        min,
        max,
        desired,
        subnets,
        security_groups,
        identity,
        disk_size,
        tags,
    } = machines;
    let CompleteNodestrap { installation, path, urls, sha256, sha512 } = &delivery.nodestrap;
    let texts = [
        ("machines.instanceType", instance_type.as_ref().map(|set| set.value.to_string())),
        ("machines.image", image.as_ref().map(|set| set.value.to_string())),
        ("machines.min", Some(min.value.to_string())),
        ("machines.max", Some(max.value.to_string())),
        ("machines.desired", Some(desired.value.to_string())),
        ("machines.identity", identity.as_ref().map(|set| set.value.to_string())),
        ("machines.diskSize", disk_size.as_ref().map(|set| set.value.to_string())),
        ("delivery.nodestrap.installation", Some(installation.value.to_string())),
        ("delivery.nodestrap.path", Some(path.value.to_string())),
        ("delivery.nodestrap.sha256", sha256.as_ref().map(|set| set.value.to_string())),
        ("delivery.nodestrap.sha512", sha512.as_ref().map(|set| set.value.to_string())),
    ];
    let texts = texts.into_iter().filter_map(|(path, text)| Some((path.to_owned(), Leaf::text(text?))));
    let lists = [
        ("machines.subnets", subnets.value.iter().map(ToString::to_string).collect::<Vec<_>>()),
        ("machines.securityGroups", security_groups.value.iter().map(ToString::to_string).collect()),
        ("delivery.nodestrap.urls", urls.value.iter().map(ToString::to_string).collect()),
    ];
    let lists = lists.into_iter().map(|(path, items)| (path.to_owned(), Leaf::list(&items)));
    let tags: BTreeMap<String, Leaf> =
        tags.value.iter().map(|(key, value)| (format!("machines.tags.{key}"), Leaf::text(value.as_str()))).collect();
    texts.chain(lists).chain(tags).collect()
}
