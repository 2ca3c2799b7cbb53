//! A bundle with a few changes, as a spec that somebody edited would give it.

use bundle::{Bundle, Component, Layout, UNIT_FOLDER, UnitName};

use super::settle::{put, settle};
use super::{PROGRAMS, Random, part, path, tree};

/// One to four of them; now and then one is undone by another, or changes nothing.
pub(crate) fn mutated(bundle: &Bundle, random: &mut Random) -> Bundle {
    let mut changed = bundle.clone();
    let mut apart = random.apart();
    if apart.coin() {
        changed.idle_units = part::idle_units(&mut apart);
    }
    for _ in 0..=random.below(4) {
        random.pick(&MUTATIONS)(&mut changed, random);
    }
    tree::settle(&mut changed, random);
    settle(&mut changed);
    changed
}

type Mutation = fn(&mut Bundle, &mut Random);

/// What lies in files and units changes more often than the rest.
const MUTATIONS: [Mutation; 20] = [
    |bundle, random| bundle.kubernetes_version = part::version(random),
    |bundle, random| bundle.required_programs = random.some_of(&PROGRAMS).into_iter().map(path).collect(),
    |bundle, random| bundle.gate.environment = part::environment(random),
    change_facts,
    |bundle, random| bundle.join.api_server = part::api_server(random),
    |bundle, random| bundle.join.node_name = random.maybe(part::node_name),
    |bundle, random| bundle.pod_network = random.maybe(part::pod_network),
    |bundle, random| bundle.webhook = random.maybe(part::webhook),
    |bundle, random| bundle.snap = bundle.snap.as_ref().map(|_| part::snap(random)),
    change_kubelet,
    change_hook,
    change_content,
    add_or_remove_file,
    change_readers,
    change_unit_file,
    add_or_remove_unit,
    move_unit,
    change_tree,
    change_tree,
    |bundle, random| bundle.downloads = bundle.downloads.as_ref().map(|_| tree::downloads(random)),
];

fn change_facts(bundle: &mut Bundle, random: &mut Random) {
    if bundle.node.layout == Layout::Eksctl {
        bundle.gate.facts = part::facts(random);
        bundle.gate.max_pods = random.maybe(part::max_pods);
    }
}

/// What the kubelet is told: by its configuration, or by its unit, which the image may bring.
fn change_kubelet(bundle: &mut Bundle, random: &mut Random) {
    let unit = bundle.join.kubelet_unit.clone();
    match random.below(3) {
        0 => put(bundle, part::kubelet_config(random)),
        1 => remove(bundle, &format!("{UNIT_FOLDER}/{unit}")),
        _ if bundle.snap.is_none() => put(bundle, part::unit_file(random, &unit, false)),
        _ => {}
    }
}

fn change_hook(bundle: &mut Bundle, random: &mut Random) {
    let name = random.pick(&part::HOOKS);
    bundle.hooks.retain(|hook| hook.name != name);
    bundle.hooks.extend(random.maybe(|random| part::hook(random, name)));
}

fn change_content(bundle: &mut Bundle, random: &mut Random) {
    let known: Vec<usize> = (0..bundle.files.len()).filter(|&index| is_plain(&bundle.files[index].path)).collect();
    if !known.is_empty() {
        let index = random.pick(&known);
        let content = part::content(random, &bundle.files[index].path, bundle.files[index].secrecy);
        bundle.files[index].content = content.into();
    }
}

fn add_or_remove_file(bundle: &mut Bundle, random: &mut Random) {
    let (file, manifest) = (random.pick(&part::FILES), random.pick(&part::MANIFESTS));
    match random.below(4) {
        0 => remove(bundle, file),
        1 => remove(bundle, manifest),
        2 => put(bundle, part::manifest(random, manifest)),
        _ => {
            let file = part::file(random, file, bundle);
            put(bundle, file);
        }
    }
}

/// Also who may read it at all.
fn change_readers(bundle: &mut Bundle, random: &mut Random) {
    let place = random.pick(&part::FILES);
    if let Some(before) = bundle.file(place).cloned() {
        let mut file = part::file(random, place, bundle);
        // What was a secret stays one.
        if before.is_secret() {
            (file.mode, file.secrecy) = (before.mode, before.secrecy);
        }
        file.content = before.content;
        put(bundle, file);
    }
}

fn change_unit_file(bundle: &mut Bundle, random: &mut Random) {
    if let Some(unit) = pick_own(bundle, random) {
        put(bundle, part::unit_file(random, &unit, true));
    }
}

fn add_or_remove_unit(bundle: &mut Bundle, random: &mut Random) {
    let name = random.pick(&part::OWN_UNITS);
    let before = bundle.units.len();
    bundle.units.retain(|unit| unit.name != name);
    if bundle.units.len() == before {
        let unit = part::own_unit(random, name);
        put(bundle, part::unit_file(random, &unit.name, true));
        let at = random.below(bundle.units.len());
        bundle.units.insert(at, unit);
    }
}

/// To another place in the order of starts, or to another moment.
fn move_unit(bundle: &mut Bundle, random: &mut Random) {
    let Some(name) = pick_own(bundle, random) else { return };
    let position = bundle.units.iter().position(|unit| unit.name == name).expect("it was picked from these");
    let mut unit = bundle.units.remove(position);
    if random.coin() {
        unit.start = part::own_unit(random, &name).start;
    }
    let at = random.below(bundle.units.len());
    bundle.units.insert(at, unit);
}

/// Another version or build, or from elsewhere; one more, or one less.
fn change_tree(bundle: &mut Bundle, random: &mut Random) {
    let component = random.pick(Component::ALL);
    let before = bundle.trees.len();
    bundle.trees.retain(|tree| tree.component != component);
    if bundle.trees.len() == before || random.below(4) > 0 {
        bundle.trees.push(tree::tree(random, component));
    }
}

fn pick_own(bundle: &Bundle, random: &mut Random) -> Option<UnitName> {
    let is_own = |name: &UnitName| part::OWN_UNITS.iter().any(|own| name == own);
    let own: Vec<&UnitName> = bundle.units.iter().map(|unit| &unit.name).filter(|name| is_own(name)).collect();
    if own.is_empty() { None } else { Some(random.pick(&own).clone()) }
}

fn remove(bundle: &mut Bundle, place: &str) {
    bundle.files.retain(|file| file.path != place);
}

fn is_plain(place: &str) -> bool {
    part::FILES.contains(&place)
}
