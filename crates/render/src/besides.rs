//! What machines of a group get besides the bundle: more user data, and what the provider starts them with.
//!
//! Contents are here as digests only: they may hold anything.

use bundle::{Besides, Setting, UserDataPart, read_additional_parts, sha256_hex};
use spec::{AdditionalUserData, CompleteDelivery, CompleteMachines, CompleteNodeGroup, CompleteNodestrap};

/// Of a MIME message, by its parts that are not nodestrap's. Of other formats nothing is known.
pub fn besides_of_user_data(bytes: &[u8]) -> Besides {
    let part = |UserDataPart { name, content_type, content }: &UserDataPart| digested(name, content_type, content);
    Besides::new(read_additional_parts(bytes).map(|parts| parts.iter().map(part).collect()), None)
}

pub(crate) fn besides_of_group(group: &CompleteNodeGroup) -> Besides {
    let group = &group.spec;
    let part = |AdditionalUserData { name, r#type, content, place: _ }: &AdditionalUserData| {
        digested(name.as_str(), &r#type.to_string(), content.0.as_bytes())
    };
    let user_data = group.additional_user_data.value.iter().map(part).collect();
    Besides::new(Some(user_data), Some(machines(&group.machines, &group.delivery)))
}

fn digested(name: &str, content_type: &str, content: &[u8]) -> (String, String) {
    let text = format!("{} sha256:{}", content_type.to_ascii_lowercase(), sha256_hex(content));
    (format!("additionalUserData.{name}"), text)
}

/// Taken apart by name, so that nothing of it is forgotten.
fn machines(machines: &CompleteMachines, delivery: &CompleteDelivery) -> Vec<(String, Setting)> {
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
    let texts = texts.into_iter().filter_map(|(path, text)| Some((path.to_owned(), Setting::Text(text?))));
    let lists = [
        ("machines.subnets", subnets.value.iter().map(ToString::to_string).collect::<Vec<_>>()),
        ("machines.securityGroups", security_groups.value.iter().map(ToString::to_string).collect()),
        ("delivery.nodestrap.urls", urls.value.iter().map(ToString::to_string).collect()),
    ];
    let lists = lists.into_iter().map(|(path, items)| (path.to_owned(), Setting::List(items)));
    let tags = tags.value.iter();
    let tags = tags.map(|(key, value)| (format!("machines.tags.{key}"), Setting::Text(value.to_string())));
    texts.chain(lists).chain(tags).collect()
}
