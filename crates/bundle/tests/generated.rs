//! What the generator promises to those who include it: all that a bundle can say, and nothing that breaks a rule.

mod generator;

use std::collections::{BTreeMap, BTreeSet};

use bundle::{
    Artefact, ArtefactForm, Bundle, Component, Downloads, File, Gate, GateFact, Hook, Idleness, Join, Layout,
    Necessity, NodeKind, Os, PodNetwork, Provenance, Provider, Readers, Role, Runtime, RuntimeName, RuntimeSource, S3,
    S3Credentials, Secrecy, Slot, Snap, Start, Tree, Unit, UnitNature, Webhook,
};
use generator::Sources;

const SEEDS: u64 = 2000;

/// What was seen of each field, and what has to be seen.
#[derive(Default)]
struct Seen(BTreeMap<&'static str, (BTreeSet<String>, BTreeSet<String>)>);

impl Seen {
    fn word(&mut self, field: &'static str, found: impl ToString, all: impl IntoIterator<Item = impl ToString>) {
        let (seen, wanted) = self.0.entry(field).or_default();
        seen.insert(found.to_string());
        if wanted.is_empty() {
            wanted.extend(all.into_iter().map(|one| one.to_string()));
        }
    }

    fn either(&mut self, field: &'static str, found: bool) {
        self.word(field, found, [true, false]);
    }

    /// More than one value of it.
    fn value(&mut self, field: &'static str, found: impl ToString) {
        self.0.entry(field).or_default().0.insert(found.to_string());
    }

    fn missing(&self) -> Vec<String> {
        let lacks = |(seen, wanted): &(BTreeSet<String>, BTreeSet<String>)| match wanted.is_empty() {
            true if seen.len() < 2 => vec!["another value".to_owned()],
            _ => wanted.difference(seen).cloned().collect(),
        };
        self.0
            .iter()
            .flat_map(|(field, sets)| lacks(sets).into_iter().map(move |one| format!("{field}: {one}")))
            .collect()
    }

    /// Each `let` names every field, so that a new one has to be added here, and with it to the generator.
    fn bundle(&mut self, bundle: &Bundle) {
        let Bundle {
            cluster,
            group,
            kubernetes_version,
            node,
            required_programs,
            units,
            idle_units,
            hooks,
            runtime,
            trees,
            // Tests of their own make these (node: extensions.rs, packages.rs).
            extensions: _,
            packages: _,
            follow: _,
            downloads,
            gate,
            join,
            pod_network,
            snap,
            webhook,
            files,
        } = bundle;
        self.value("cluster", cluster);
        self.value("group", group);
        self.value("kubernetesVersion", kubernetes_version);
        self.node(node);
        self.either("requiredPrograms", required_programs.is_empty());
        units.iter().for_each(|unit| self.unit(unit));
        self.either("idleUnits", idle_units.is_empty());
        idle_units.iter().for_each(|unit| self.word("idleUnits.idleness", unit.idleness, Idleness::ALL));
        self.either("hooks", hooks.is_empty());
        hooks.iter().for_each(|hook| self.hook(hook));
        self.runtime(runtime);
        self.either("trees", trees.is_empty());
        trees.iter().for_each(|tree| self.tree(tree));
        self.either("downloads", downloads.is_some());
        downloads.iter().for_each(|downloads| self.downloads(downloads));
        self.gate(gate);
        self.join(join);
        self.either("podNetwork", pod_network.is_some());
        pod_network.iter().for_each(|network| self.pod_network(network));
        self.either("snap", snap.is_some());
        snap.iter().for_each(|snap| self.snap(snap));
        self.either("webhook", webhook.is_some());
        webhook.iter().for_each(|webhook| self.webhook(webhook));
        files.iter().for_each(|file| self.file(file));
    }

    fn node(&mut self, NodeKind { role, os, provider, layout }: &NodeKind) {
        self.word("node.role", role, Role::ALL);
        self.word("node.os", os, Os::ALL);
        self.word("node.provider", provider, Provider::ALL);
        self.word("node.layout", layout, Layout::ALL);
    }

    fn unit(&mut self, Unit { name, start, brought }: &Unit) {
        self.value("units.name", name);
        let word = match start {
            Start::BeforeGate => "before",
            Start::AfterGate => "after",
            Start::ByOthers => "others",
        };
        self.word("units.start", word, ["before", "after", "others"]);
        self.either("units.brought", brought.is_some());
        if let Some(UnitNature { oneshot, installable }) = brought {
            self.word(
                "units.brought natures",
                format!("{oneshot} {installable}"),
                ["true true", "true false", "false true", "false false"],
            );
        }
    }

    fn hook(&mut self, Hook { name, slot, unit, timeout_seconds, necessity }: &Hook) {
        self.value("hooks.name", name);
        self.word("hooks.slot", slot, Slot::ALL);
        self.value("hooks.unit", unit);
        self.value("hooks.timeoutSeconds", timeout_seconds);
        self.word("hooks.necessity", necessity, Necessity::ALL);
    }

    fn runtime(&mut self, Runtime { name, unit, source }: &Runtime) {
        self.word("runtime.name", name, RuntimeName::ALL);
        self.value("runtime.unit", unit);
        self.word("runtime.source", source.kind(), ["preinstalled", "torcx", "tree"]);
    }

    fn tree(&mut self, Tree { component, version, artefact, links, read_by }: &Tree) {
        self.word("trees.component", component, Component::ALL);
        self.value("trees.version", version);
        let Artefact { digest, size, form, places } = artefact;
        self.value("trees.artefact.digest", digest);
        self.value("trees.artefact.size", size);
        self.word("trees.artefact.form", form, [ArtefactForm::Program, ArtefactForm::TarGz]);
        self.value("trees.artefact.places", places.len());
        self.value("trees.links", links.len());
        self.either("trees.readBy", read_by.is_empty());
    }

    fn downloads(&mut self, downloads: &Downloads) {
        let Downloads { provenance, certificate_authorities, proxy, no_proxy, s3 } = downloads;
        self.either("downloads.provenance", matches!(provenance, Provenance::Unsigned {}));
        self.either("downloads.certificateAuthorities", certificate_authorities.is_some());
        self.either("downloads.proxy", proxy.is_some());
        self.value("downloads.noProxy", no_proxy.len());
        self.either("downloads.s3", s3.is_some());
        if let Some(S3 { region, endpoint, path_style, credentials }) = s3 {
            self.value("downloads.s3.region", region);
            self.either("downloads.s3.endpoint", endpoint.is_some());
            self.either("downloads.s3.pathStyle", *path_style);
            match credentials {
                S3Credentials::InstanceRole {} => self.value("downloads.s3.credentials", "role"),
                S3Credentials::Key { access_key, secret_key: _, session_token } => {
                    self.value("downloads.s3.credentials", access_key);
                    self.either("downloads.s3.credentials.sessionToken", session_token.is_some());
                }
            }
        }
    }

    fn gate(&mut self, Gate { path, environment, facts, max_pods }: &Gate) {
        self.word("gate.path", path, [bundle::GATE_PATH, bundle::EKSCTL_GATE_PATH]);
        self.either("gate.environment", environment.is_empty());
        // The tag goes with a release that is followed, which tests of their own have.
        let known = || GateFact::ALL.iter().filter(|fact| **fact != GateFact::KubeletImageTag);
        known().for_each(|fact| {
            self.word("gate.facts with", format!("{fact} {}", facts.contains(fact)), {
                known().flat_map(|fact| [true, false].map(|there| format!("{fact} {there}")))
            })
        });
        self.either("gate.facts", facts.is_empty());
        self.either("gate.maxPods", max_pods.is_some());
        max_pods.iter().for_each(|number| self.value("gate.maxPods number", number));
    }

    fn join(&mut self, join: &Join) {
        let Join { api_server, bootstrap_kubeconfig, kubeconfig, client_certificate, kubelet_unit, node_name } = join;
        self.value("join.apiServer", api_server);
        self.value("join.bootstrapKubeconfig", bootstrap_kubeconfig);
        self.value("join.kubeconfig", kubeconfig);
        self.value("join.clientCertificate", client_certificate);
        self.value("join.kubeletUnit", kubelet_unit);
        self.either("join.nodeName", node_name.is_some());
    }

    fn pod_network(&mut self, PodNetwork { bridge, cni_config, unit: _ }: &PodNetwork) {
        self.value("podNetwork.bridge", bridge);
        self.value("podNetwork.cniConfig", cni_config);
    }

    fn snap(&mut self, Snap { name: _, aliases, settings }: &Snap) {
        self.either("snap.aliases", aliases.is_empty());
        self.either("snap.settings", settings.is_empty());
        self.either("snap.settings with variables", settings.values().any(|value| value.contains("${")));
    }

    fn webhook(&mut self, Webhook { url, certificate_authority, headers }: &Webhook) {
        self.value("webhook.url", url.expose());
        self.either("webhook.certificateAuthority", certificate_authority.is_some());
        self.either("webhook.headers", headers.is_empty());
    }

    fn file(&mut self, File { path, mode, secrecy, read_by, content }: &File) {
        self.value("files.path", path);
        self.value("files.mode", mode);
        self.either("files.secrecy", *secrecy == Secrecy::Secret);
        let Readers { units, pods } = read_by;
        self.either("files.readBy.units", units.is_empty());
        self.either("files.readBy.pods", pods.is_empty());
        self.either("files.content", content.is_empty());
        self.either("files.content is text", content.text().is_some());
    }
}

#[test]
fn every_field_and_every_word_is_seen_both_ways() {
    let mut seen = Seen::default();
    (0..SEEDS).for_each(|seed| seen.bundle(&generator::bundle_with(seed, Sources::Any)));
    assert_eq!(seen.missing(), Vec::<String>::new());
}

#[test]
fn a_bundle_for_a_node_names_only_what_nodes_can_do_and_its_machine_has() {
    for seed in 0..SEEDS {
        let bundle = generator::bundle(seed);
        assert_ne!(bundle.runtime.source, RuntimeSource::Torcx, "{seed}");
        let programs = bundle.required_programs.iter();
        programs.for_each(|program| assert!(generator::PROGRAMS.iter().any(|known| program == known), "{seed}"));
        for unit in bundle.units.iter().filter(|unit| unit.brought.is_none()) {
            let is_of_image = generator::IMAGE_UNITS.iter().any(|known| unit.name == *known);
            assert!(is_of_image || unit.name == generator::SNAP_UNIT, "{seed}: {}", unit.name);
        }
    }
}

#[test]
fn the_same_number_gives_the_same_bundles() {
    for seed in 0..100 {
        assert_eq!(generator::bundle(seed), generator::bundle(seed));
        assert_eq!(generator::pair(seed), generator::pair(seed));
    }
}

#[test]
fn pairs_are_for_one_machine_and_each_field_differs_in_some_and_stays_in_others() {
    let mut differing: BTreeMap<String, BTreeSet<bool>> = BTreeMap::new();
    let (mut near, mut same) = (0, 0);
    for seed in 0..SEEDS {
        let (one, other) = generator::pair(seed);
        assert_eq!((&one.cluster, &one.group), (&other.cluster, &other.group), "{seed}");
        let machine = |bundle: &Bundle| (bundle.node.role, bundle.node.os, bundle.node.provider);
        assert_eq!(machine(&one), machine(&other), "{seed}");
        let fields = |bundle: &Bundle| match serde_json::to_value(bundle) {
            Ok(serde_json::Value::Object(fields)) => fields,
            _ => panic!("a bundle is an object"),
        };
        let (one, other) = (fields(&one), fields(&other));
        let names: BTreeSet<&String> = one.keys().chain(other.keys()).collect();
        let mut count = 0;
        for name in names {
            let differs = one.get(name) != other.get(name);
            count += usize::from(differs);
            differing.entry(name.clone()).or_default().insert(differs);
        }
        near += usize::from((1..5).contains(&count));
        same += usize::from(count == 0);
    }
    let (fixed, free): (BTreeMap<_, _>, BTreeMap<_, _>) =
        differing.into_iter().partition(|(name, _)| ["cluster", "group"].contains(&name.as_str()));
    assert_eq!(fixed.len(), 2);
    for (name, ways) in free {
        assert_eq!(ways.len(), 2, "{name}");
    }
    assert!(near > 600 && same > 10, "{near} pairs are near, {same} are the same");
}
