//! What follows from the rest of a bundle, so that parts can be chosen and changed one by one.

use std::collections::BTreeSet;

use bundle::{
    Bundle, File, GateFact, MAX_PODS_MAP_PATH, Start, TRUST_UNIT, UNIT_FOLDER, Unit, UnitName, UnitNature, host_paths,
};

use super::part::{BOOTSTRAP_KUBECONFIG, KUBECONFIG, KUBELET_CONFIG, MANIFESTS, NETWORK_UNIT};
use super::{IMAGE_UNITS, INSTANCE_TYPE, path, unit_name};

/// Makes a bundle whole that may lack files of its units, or have some of units that are gone.
pub(crate) fn settle(bundle: &mut Bundle) {
    settle_network(bundle);
    bundle.hooks.sort_by(|one, other| one.name.cmp(&other.name));
    let started = units_of(bundle);
    let is_started = |unit: &UnitName| started.contains(unit) || *unit == bundle.join.kubelet_unit;
    bundle.idle_units.retain(|unit| !is_started(&unit.name));
    bring_unit_files(bundle);
    bring_files_that_are_named(bundle);
    drop_files_of_nobody(bundle);
    settle_snap(bundle);
    settle_readers(bundle);
    for index in 0..bundle.units.len() {
        let file = bundle.unit_file(&bundle.units[index].name);
        let nature = file.map(|file| UnitNature::of(file.content.text().expect("units are text")));
        bundle.units[index].brought = nature;
    }
    bundle.validate().expect("a generated bundle keeps the rules");
}

/// Instead of one with the same path, if there is one.
pub(crate) fn put(bundle: &mut Bundle, file: File) {
    match bundle.files.binary_search_by(|other| other.path.cmp(&file.path)) {
        Ok(index) => bundle.files[index] = file,
        Err(index) => bundle.files.insert(index, file),
    }
}

fn settle_network(bundle: &mut Bundle) {
    bundle.units.retain(|unit| unit.name != NETWORK_UNIT);
    if bundle.pod_network.is_some() {
        bundle.units.push(Unit { name: unit_name(NETWORK_UNIT), start: Start::ByOthers, brought: None });
    }
}

/// Those of the image need none; the rest has to do something.
fn bring_unit_files(bundle: &mut Bundle) {
    let is_of_image = |unit: &UnitName| IMAGE_UNITS.iter().any(|name| unit == name) || unit.starts_with("snap.");
    let units = bundle.units.iter().map(|unit| unit.name.clone()).filter(|unit| !is_of_image(unit));
    let stays = "[Service]\nType=exec\nExecStart=/bin/sleep infinity\n\n[Install]\nWantedBy=multi-user.target\n";
    let ends = "[Service]\nType=oneshot\nExecStart=/bin/true\n";
    let wanted: Vec<(UnitName, &str)> =
        units.map(|unit| (unit, stays)).chain(bundle.hooks.iter().map(|hook| (hook.unit.clone(), ends))).collect();
    for (unit, text) in wanted {
        if bundle.unit_file(&unit).is_none() {
            put(bundle, File::of_unit(&unit, text).expect("a unit of the generator"));
        }
    }
}

fn bring_files_that_are_named(bundle: &mut Bundle) {
    bundle.files.retain(|file| file.path != BOOTSTRAP_KUBECONFIG && file.path != KUBECONFIG);
    let server = &bundle.join.api_server;
    let text = format!(
        "clusters: [{{name: a, cluster: {{server: \"{server}\", certificate-authority-data: Y2FuYXJ5}}}}]\nusers: [{{name: a, user: {{token: canary}}}}]\n"
    );
    put(bundle, File::secret(bundle.join.bootstrap_kubeconfig.clone(), text));
    // Where nobody chose a number the node looks it up.
    let is_looked_up = bundle.gate.facts.contains(&GateFact::MaxPods) && bundle.gate.max_pods.is_none();
    bundle.files.retain(|file| file.path != MAX_PODS_MAP_PATH);
    if is_looked_up {
        put(bundle, File::public(path(MAX_PODS_MAP_PATH), format!("m5.xlarge 58\n{INSTANCE_TYPE} 29\n")));
    }
}

fn drop_files_of_nobody(bundle: &mut Bundle) {
    let units = units_of(bundle);
    let is_of_somebody = |file: &File| unit_of(file).is_none_or(|unit| units.contains(&unit));
    bundle.files.retain(is_of_somebody);
}

/// A variable that nothing says would be refused.
fn settle_snap(bundle: &mut Bundle) {
    let facts = &bundle.gate.facts;
    let is_known = |value: &String| {
        let variable = value.strip_prefix("${").and_then(|rest| rest.strip_suffix('}'));
        variable.is_none_or(|variable| facts.iter().any(|fact| fact.as_str() == variable))
    };
    if let Some(snap) = &mut bundle.snap {
        snap.settings.retain(|_, value| is_known(value));
    }
}

/// Only who is there can read; who has a file as its own does, a runtime what the system trusts, and a pod what it mounts.
fn settle_readers(bundle: &mut Bundle) {
    let units = units_of(bundle);
    let pod = |file: &File| Some((name_of_pod(file)?.to_owned(), host_paths(&file.content)));
    let pods: Vec<(String, Vec<String>)> = bundle.files.iter().filter_map(pod).collect();
    let (kubelet, runtime) = (&bundle.join.kubelet_unit, &bundle.runtime.unit);
    for file in &mut bundle.files {
        file.read_by.units.retain(|unit| units.contains(unit));
        file.read_by.units.extend(unit_of(file));
        if file.read_by.units.contains(TRUST_UNIT) {
            file.read_by.units.insert(runtime.clone());
        }
        if file.path == KUBELET_CONFIG || file.path == KUBECONFIG {
            file.read_by.units.insert(kubelet.clone());
        }
        let mounting = pods.iter().filter(|(_, mounts)| mounts.iter().any(|mount| file.path.is_within(mount)));
        file.read_by.pods = mounting.map(|(pod, _)| pod.clone()).collect();
    }
}

fn units_of(bundle: &Bundle) -> BTreeSet<UnitName> {
    let hooks = bundle.hooks.iter().map(|hook| &hook.unit);
    bundle.units.iter().map(|unit| &unit.name).chain(hooks).cloned().collect()
}

/// The unit whose file or drop-in it is.
fn unit_of(file: &File) -> Option<UnitName> {
    let rest = file.path.strip_prefix(UNIT_FOLDER)?.strip_prefix('/')?;
    let first = rest.split('/').next()?;
    Some(unit_name(first.strip_suffix(".d").unwrap_or(first)))
}

fn name_of_pod(file: &File) -> Option<&str> {
    MANIFESTS.iter().any(|place| file.path == *place).then(|| {
        let name = file.path.rsplit_once('/').map_or("", |(_, name)| name);
        name.strip_suffix(".yaml").unwrap_or(name)
    })
}
