//! What `check` accepts, a node takes: over every combination of the words that decide what a node is made of.

#![allow(clippy::disallowed_methods, clippy::expect_used, reason = "a test reads the examples and may panic")]

#[path = "../../render/tests/support/mod.rs"]
mod rendered;

use std::collections::BTreeMap;

use bundle::{Bundle, Layout, Os, Provider, RuntimeName, SourceKind};
use node::{Fact, Facts, plan_first_boot};

const GROUP: &str = "workers";
/// The newest and the oldest minor of the layouts of today.
const RELEASES: [&str; 2] = ["1.36.3", "1.30.14"];
/// That of the layout's own time goes on with the oldest.
const RELEASES_OF_TECTONIC: [&str; 2] = ["1.36.3", "1.9.6"];

/// One choice of each word; `None`: the spec does not say.
#[derive(Clone, Copy, Debug)]
struct Choice {
    os: Os,
    layout: Layout,
    provider: Provider,
    runtime: Option<RuntimeName>,
    source: Option<SourceKind>,
    release: &'static str,
}

fn or_silence<T: Copy>(words: &[T]) -> impl Iterator<Item = Option<T>> {
    std::iter::once(None).chain(words.iter().copied().map(Some))
}

fn choices() -> Vec<Choice> {
    let mut choices = Vec::new();
    for (&os, &layout) in Os::ALL.iter().flat_map(|os| Layout::ALL.iter().map(move |layout| (os, layout))) {
        for (&provider, release) in Provider::ALL.iter().flat_map(|one| RELEASES.map(move |release| (one, release))) {
            for runtime in or_silence(RuntimeName::ALL) {
                for source in or_silence(SourceKind::ALL) {
                    choices.push(Choice { os, layout, provider, runtime, source, release });
                }
            }
        }
    }
    choices
}

fn text(choice: Choice) -> String {
    let Choice { os, layout, provider, runtime, source, release } = choice;
    // What each layout cannot do without.
    let (release, join, of_layout) = match layout {
        Layout::Nodestrap => (release, "bootstrapToken: abcdef.0123456789abcdef, ", ""),
        Layout::Eksctl => (release, "", "  eksctl: {ecrAccount: \"602401143452\"}\n  networking: {podNetwork: none}\n"),
        Layout::Tectonic => (
            if release == RELEASES[0] { RELEASES_OF_TECTONIC[0] } else { RELEASES_OF_TECTONIC[1] },
            "bootstrapToken: abcdef.0123456789abcdef, ",
            "  networking: {podNetwork: none}\n  tectonic:\n    kubeletImage: registry.example.com/kubelet\n    verifySignatures: false\n    \
             manifestURL: \"https://torcx.example.com/{{.Board}}/{{.OSVersion}}\"\n    \
             runtimeMappings: {\"1.9\": [\"17.03\"], \"1.36\": [\"18.06\"]}\n",
        ),
    };
    // The examples' manifest has one release, and verifying it takes a while: it is named only where it can be of use.
    let artefacts = match source {
        Some(SourceKind::Tree) if layout == Layout::Nodestrap && release == RELEASES[0] => {
            "  artefacts: {store: https://artefacts.example.com, manifest: {file: artefacts.json}, keyrings: [{file: artefacts-keys.asc}]}\n"
        }
        Some(SourceKind::Sysext) if os == Os::Flatcar && layout == Layout::Nodestrap && release == RELEASES[0] => {
            "  artefacts: {store: https://artefacts.example.com, manifest: {file: flatcar-artefacts.json}, keyrings: [{file: flatcar-artefacts-keys.asc}]}\n"
        }
        _ => "",
    };
    let runtime = runtime.map(|name| format!("  containerRuntime: {{name: {name}}}\n")).unwrap_or_default();
    // Which containerd a repository has, nobody can know.
    let components = match source {
        Some(SourceKind::Package) => "  components: {containerd: {version: 2.4.2-1}}\n",
        _ => "",
    };
    let source = source.map(|source| format!("  source: {source}\n{components}")).unwrap_or_default();
    format!(
        "apiVersion: nodestrap.io/v1alpha1\nkind: Cluster\nmetadata: {{name: demo}}\nspec:\n  kubernetesVersion: {release}\n  \
         layout: {layout}\n  provider: {provider}\n  region: eu-central-1\n  apiServer: https://10.0.0.10:6443\n  \
         join: {{{join}certificateAuthority: {{file: ca.crt}}}}\n{of_layout}{artefacts}---\napiVersion: nodestrap.io/v1alpha1\n\
         kind: NodeGroup\nmetadata: {{name: {GROUP}}}\nspec:\n  os: {os}\n{runtime}{source}"
    )
}

/// What `check` says yes to, rendered.
fn accepted(choice: Choice) -> Option<Bundle> {
    let example = |path: &str| {
        let examples = concat!(env!("CARGO_MANIFEST_DIR"), "/../../examples");
        std::fs::read(format!("{examples}/{path}")).map_err(|error| error.to_string())
    };
    let parsed = spec::parse(&[spec::Source::new("cluster.yaml", text(choice))]);
    let complete = parsed.resolve(|reference| example(&reference.path)).and_then(|spec| spec::complete(&spec)).ok()?;
    if !render::refusals(&complete).is_empty() {
        return None;
    }
    Some(render::render_group(&complete, GROUP).expect("what check accepts can be rendered").bundle)
}

/// A machine of that system and platform which answers every question.
fn machine(os: Os, provider: Provider) -> Facts {
    let (id, version, variant) = match os {
        Os::Flatcar => ("flatcar", "4230.2.1", ""),
        Os::ContainerLinux => ("coreos", "2345.3.0", ""),
        Os::Debian => ("debian", "12", ""),
        Os::Ubuntu => ("ubuntu", "24.04", ""),
        Os::Al2 => ("amzn", "2", ""),
        Os::Al2023 => ("amzn", "2023", ""),
        Os::Rhel => ("rhel", "9.4", ""),
        Os::Rhcos => ("rhcos", "4.15", "coreos"),
    };
    fn said<T>(value: T) -> Fact<T> {
        Fact { value, source: "this test".to_owned() }
    }
    let word = |text: &str| said(text.to_owned());
    let [id, version, variant] = [id, version, variant].map(str::to_owned);
    Facts {
        os: said(node::Os {
            name: id.clone(),
            id,
            version,
            variant,
            board: "amd64-usr".to_owned(),
            sysext_level: "1.0".to_owned(),
        }),
        architecture: word("x86-64"),
        hostname: word("n1"),
        machine_id: word("0123456789abcdef0123456789abcdef"),
        product_uuid: word(""),
        known_as: String::new(),
        complete: None,
        gate_owner: node::GateOwner::default(),
        has_programs: false,
        has_packages: false,
        platform: word(provider.as_str()),
        instance_id: word("i-0123456789abcdef0"),
        instance_type: word("m5.large"),
        local_ipv4: word("10.0.0.20"),
        region: word("eu-central-1"),
        zone: word("eu-central-1a"),
        cpus: said(Some(2)),
        memory_bytes: said(Some(8 << 30)),
        followed: None,
        api_server_version: word(""),
        boot_id: word("11111111-2222-3333-4444-555555555555"),
    }
}

/// What a node has found out whose cluster answers.
fn followed(bundle: &Bundle) -> Option<node::Followed> {
    let told =
        |value: &str| node::Told { value: value.parse().expect("a version"), source: String::new(), by_cluster: true };
    bundle.follow.as_ref().map(|_| node::Followed {
        bundle: bundle.digest(),
        release: told("v1.36.3"),
        variables: BTreeMap::new(),
        preferred: None,
        addon: None,
    })
}

/// What the first step would refuse.
fn refusals(bundle: &Bundle, facts: Facts) -> Vec<String> {
    let facts = &Facts { followed: followed(bundle), ..facts };
    let plan = plan_first_boot(bundle, facts).expect("a plan");
    let plan = serde_json::to_value(&plan).expect("a plan is JSON");
    let steps = plan["steps"].as_array().expect("steps");
    let check = steps.iter().find(|step| step["id"] == "check-bundle").expect("the step that refuses");
    let refusals = check["action"]["refusals"].as_array().expect("refusals");
    refusals.iter().map(|refusal| refusal["reason"].as_str().unwrap_or_default().to_owned()).collect()
}

#[test]
fn a_node_refuses_nothing_that_check_accepts() {
    let mut taken: BTreeMap<String, usize> = BTreeMap::new();
    for choice in choices() {
        let Some(bundle) = accepted(choice) else { continue };
        let refused = refusals(&bundle, machine(choice.os, choice.provider));
        assert!(refused.is_empty(), "{}\n{refused:#?}", text(choice));
        for word in [
            choice.layout.to_string(),
            choice.os.to_string(),
            choice.provider.to_string(),
            bundle.runtime.name.to_string(),
            bundle.runtime.source.kind().to_string(),
            choice.source.map(|source| format!("source {source}")).unwrap_or_default(),
        ] {
            *taken.entry(word).or_default() += 1;
        }
    }
    // So that the sentence above is about something.
    for word in [
        "nodestrap",
        "eksctl",
        "debian",
        "ubuntu",
        "flatcar",
        "al2",
        "al2023",
        "rhel",
        "rhcos",
        "aws",
        "metal",
        "tree",
        "package",
        "source sysext",
        "preinstalled",
        "cri-o",
        "tectonic",
        "container-linux",
        "torcx",
        "docker",
    ] {
        assert!(taken.contains_key(word), "no spec with {word} was accepted: {taken:?}");
    }
}

/// The words above are few; the golden specs have every field in some form.
#[test]
fn nor_does_it_refuse_what_any_golden_spec_says() {
    let mut count = 0;
    for name in rendered::cases::names() {
        let complete = rendered::cases::complete(&name);
        assert!(render::refusals(&complete).is_empty(), "{name}");
        for group in &complete.groups {
            let bundle = render::render_group(&complete, group.name.value.as_str()).expect("it can be rendered").bundle;
            let refused = refusals(&bundle, machine(group.spec.os.value, complete.cluster.provider.value));
            assert!(refused.is_empty(), "{name}: {refused:#?}");
            count += 1;
        }
    }
    assert!(count > 50, "{count}");
}
