//! The fields of a bundle that are no resource of their own, by path. They follow from the type: a new one is compared, too.

use data_encoding::BASE64;
use serde_json::Value;

use super::{Change, ChangeKind, Family, Subject, ValueChange, judge};
use crate::bundle::Bundle;
use crate::names::Digest;
use crate::values::{Leaf, Values, flatten, leaf_changes, read_yaml};
use crate::vocabulary::Component;

pub struct Fields;

const REQUIRED_PROGRAMS: &str = "requiredPrograms";
const AUTHORITY: &str = "join.certificateAuthority";
const WEBHOOK: &str = "webhook";
/// What other families compare.
const RESOURCES: [&str; 9] =
    ["files", "units", "idleUnits", "hooks", "snap", "trees", "extensions", "downloads", "packages"];

impl Family for Fields {
    fn changes(&self, old: &Bundle, new: &Bundle) -> Vec<Change> {
        let (mut before, mut after) = (fields(old), fields(new));
        // What is not known on one side did not change.
        if [old, new].iter().any(|bundle| credentials_are_spent(bundle)) {
            before.remove(AUTHORITY);
            after.remove(AUTHORITY);
        }
        let mut changes = leaf_changes(&before, &after);
        if old.webhook != new.webhook {
            let shown = |bundle: &Bundle| bundle.webhook.as_ref().map(|_| "secret, not shown".to_owned());
            changes.push(ValueChange { path: WEBHOOK.to_owned(), old: shown(old), new: shown(new) });
        }
        changes.into_iter().map(|value| change(value, old, new)).collect()
    }
}

fn change(value: ValueChange, old: &Bundle, new: &Bundle) -> Change {
    // Without a certificate of its own the kubelet keeps nothing: what it reads is what the bundle brings.
    let keeps_nothing = [old, new].iter().all(|bundle| bundle.join.bootstrap_kubeconfig == bundle.join.kubeconfig);
    let subject = match value.path.as_str() {
        REQUIRED_PROGRAMS if value.new.is_none() => Subject::NotRequired,
        "join.apiServer" | AUTHORITY if keeps_nothing => Subject::OwnKubeconfig,
        "kubernetesVersion" if [old, new].iter().all(|bundle| brings_kubelet(bundle)) => Subject::TreeOfKubelet,
        path if path.starts_with("podNetwork.") => Subject::PodNetwork,
        _ => Subject::Bundle,
    };
    let place = value.path.clone();
    let about = place.strip_prefix("podNetwork.").unwrap_or(&place);
    Change {
        family: "field",
        change: ChangeKind::of(value.old.as_ref(), value.new.as_ref()).unwrap_or(ChangeKind::Changed),
        reasons: vec![judge(subject, about, &place)],
        subject: place,
        secret: value.path == WEBHOOK,
        note: String::new(),
        values: vec![value],
    }
}

fn fields(bundle: &Bundle) -> Values {
    let mut values = Values::new();
    let Ok(Value::Object(mut fields)) = serde_json::to_value(bundle) else { return values };
    for resource in RESOURCES.into_iter().chain([WEBHOOK]) {
        fields.remove(resource);
    }
    if let Some(Value::Object(gate)) = fields.get_mut("gate") {
        gate.remove("environment");
    }
    // Their order means nothing.
    if let Some(Value::Array(programs)) = fields.get_mut(REQUIRED_PROGRAMS) {
        programs.sort_by(|one, other| one.as_str().cmp(&other.as_str()));
    }
    flatten("", &Value::Object(fields), &mut values);
    if let Some(authority) = authority(bundle) {
        values.insert(AUTHORITY.to_owned(), Leaf::text(Digest::of(&authority).as_str()));
    }
    values
}

fn brings_kubelet(bundle: &Bundle) -> bool {
    bundle.brings(Component::Kubelet)
}

fn credentials_are_spent(bundle: &Bundle) -> bool {
    bundle.file(&bundle.join.bootstrap_kubeconfig).is_some_and(|file| file.content.is_spent())
}

/// The kubelet copies it from the kubeconfig that it joins with to the one that it keeps.
fn authority(bundle: &Bundle) -> Option<Vec<u8>> {
    let file = bundle.file(&bundle.join.bootstrap_kubeconfig)?;
    let kubeconfig: Value = read_yaml(file.content.text()?)?;
    let encoded = kubeconfig.pointer("/clusters/0/cluster/certificate-authority-data").and_then(Value::as_str)?;
    // What is not base64 is compared as it stands.
    Some(BASE64.decode(encoded.as_bytes()).unwrap_or_else(|_| encoded.as_bytes().to_vec()))
}
