//! Bundles made from a number: any field in any form that a node can be asked to apply, the same for the same number.
//!
//! For walks of a node from bundle to bundle, so all of them keep the rules and fit on one machine, which has [`PROGRAMS`], the
//! units [`IMAGE_UNITS`], the snap [`SNAP`] and says of itself that it is an [`INSTANCE_TYPE`]. Include it with
//! `#[path = ".../bundle/tests/generator/mod.rs"]`.
#![allow(dead_code, reason = "each test file uses its part")]

pub(crate) mod artefact;
mod mutation;
mod part;
mod settle;
pub(crate) mod tree;

use bundle::{
    AbsolutePath, Bundle, EKSCTL_GATE_PATH, GATE_PATH, Gate, Join, Layout, NodeKind, Os, Provider, Role, Runtime,
    RuntimeName, RuntimeSource, Snap, Start, Unit, UnitName,
};

/// What the image brings; no bundle requires more.
pub(crate) const PROGRAMS: [&str; 3] = ["/usr/bin/kubelet", "/usr/bin/containerd", "/opt/cni/bin/bridge"];
/// Units of the image. The kubelet's is in some bundles, too.
pub(crate) const IMAGE_UNITS: [&str; 2] = ["containerd.service", "kubelet.service"];
/// The snap of the image, its service, and the unit of that.
pub(crate) const SNAP: &str = "kubelet-eks";
pub(crate) const SNAP_SERVICE: &str = "daemon";
pub(crate) const SNAP_UNIT: &str = "snap.kubelet-eks.daemon.service";
/// Every map of pods has it.
pub(crate) const INSTANCE_TYPE: &str = "m5.large";

/// SplitMix64: good enough to mix, and four lines.
pub(crate) struct Random(u64);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A stream of its own, so that what is drawn from it changes nothing else.
    pub(crate) fn apart(&self) -> Self {
        Self(self.0 ^ 0x6964_6c65)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        (self.next() % end as u64) as usize
    }

    pub(crate) fn coin(&mut self) -> bool {
        self.next() & 1 == 1
    }

    pub(crate) fn pick<T: Copy>(&mut self, from: &[T]) -> T {
        from[self.below(from.len())]
    }

    /// Each of them or not, in their order.
    pub(crate) fn some_of<T: Copy>(&mut self, from: &[T]) -> Vec<T> {
        from.iter().copied().filter(|_| self.coin()).collect()
    }

    pub(crate) fn maybe<T>(&mut self, make: impl FnOnce(&mut Self) -> T) -> Option<T> {
        self.coin().then(|| make(self))
    }
}

/// Which sources of a container runtime may be named.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Sources {
    /// Those that nodes do not refuse.
    Possible,
    Any,
}

/// What a machine is: no bundle for it can change that.
struct Frame {
    cluster: &'static str,
    group: &'static str,
    role: Role,
    os: Os,
    provider: Provider,
}

impl Frame {
    fn new(random: &mut Random) -> Self {
        Self {
            cluster: random.pick(&["lab", "prod-eu", "sch\u{f6}n \"quoted\" $1"]),
            group: random.pick(&["workers", "masters"]),
            role: random.pick(Role::ALL),
            os: random.pick(Os::ALL),
            provider: random.pick(Provider::ALL),
        }
    }
}

/// A bundle that a node applies.
pub(crate) fn bundle(seed: u64) -> Bundle {
    bundle_with(seed, Sources::Possible)
}

pub(crate) fn bundle_with(seed: u64, sources: Sources) -> Bundle {
    let mut random = Random::new(seed);
    let frame = Frame::new(&mut random);
    make(&mut random, &frame, sources)
}

/// Two bundles for one machine, of the same cluster, group, role, system and provider: half of the time the second is the
/// first with a few changes, otherwise they have nothing else in common. Layouts may differ, and with them the place of
/// the gate and the unit of the kubelet.
pub(crate) fn pair(seed: u64) -> (Bundle, Bundle) {
    // Another stream than that of `bundle`, so that the same seed says something new.
    let mut random = Random::new(seed ^ 0x7061_6972);
    let frame = Frame::new(&mut random);
    let one = make(&mut random, &frame, Sources::Possible);
    let other = match random.coin() {
        true => mutation::mutated(&one, &mut random),
        false => make(&mut random, &frame, Sources::Possible),
    };
    (one, other)
}

fn make(random: &mut Random, frame: &Frame, sources: Sources) -> Bundle {
    let layout = random.pick(Layout::ALL);
    let snap = if layout == Layout::Eksctl { random.maybe(part::snap) } else { None };
    let name = random.pick(RuntimeName::ALL);
    let sources: &[RuntimeSource] = match sources {
        Sources::Any => &[RuntimeSource::Preinstalled, RuntimeSource::Torcx, RuntimeSource::Tree],
        Sources::Possible => &[RuntimeSource::Preinstalled, RuntimeSource::Tree],
    };
    let source = random.pick(sources);
    let mut bundle = Bundle {
        cluster: frame.cluster.to_owned(),
        group: frame.group.to_owned(),
        kubernetes_version: part::version(random),
        node: NodeKind { role: frame.role, os: frame.os, provider: frame.provider, layout },
        required_programs: random.some_of(&PROGRAMS).into_iter().map(path).collect(),
        units: Vec::new(),
        idle_units: Vec::new(),
        hooks: Vec::new(),
        runtime: Runtime { name, unit: part::runtime_unit(name), source },
        trees: tree::trees(random),
        extensions: Vec::new(),
        downloads: None,
        packages: None,
        follow: None,
        gate: gate(random, layout),
        join: join(random, snap.as_ref()),
        pod_network: random.maybe(part::pod_network),
        snap,
        webhook: random.maybe(part::webhook),
        files: Vec::new(),
    };
    add_units(&mut bundle, random);
    part::HOOKS.into_iter().for_each(|name| {
        let hook = random.maybe(|random| part::hook(random, name));
        bundle.hooks.extend(hook);
    });
    part::add_files(&mut bundle, random);
    tree::settle(&mut bundle, random);
    bundle.idle_units = part::idle_units(&mut random.apart());
    settle::settle(&mut bundle);
    bundle
}

fn gate(random: &mut Random, layout: Layout) -> Gate {
    let is_eksctl = layout == Layout::Eksctl;
    Gate {
        path: path(if is_eksctl { EKSCTL_GATE_PATH } else { GATE_PATH }),
        environment: part::environment(random),
        // Only a machine of a provider knows them.
        facts: if is_eksctl { part::facts(random) } else { Default::default() },
        max_pods: random.maybe(part::max_pods).filter(|_| is_eksctl),
    }
}

fn join(random: &mut Random, snap: Option<&Snap>) -> Join {
    let own = path("/var/lib/kubelet/kubeconfig");
    // A kubelet that never gets a certificate keeps the kubeconfig that it is given.
    let gets_certificate = random.coin();
    let (kubeconfig, bootstrap_kubeconfig, client_certificate) = match gets_certificate {
        true => (own, path(part::BOOTSTRAP_KUBECONFIG), path("/var/lib/kubelet/pki/kubelet-client-current.pem")),
        false => (path(part::KUBECONFIG), path(part::KUBECONFIG), path(part::KUBECONFIG)),
    };
    Join {
        api_server: part::api_server(random),
        bootstrap_kubeconfig,
        kubeconfig,
        client_certificate,
        kubelet_unit: unit_name(if snap.is_some() { SNAP_UNIT } else { IMAGE_UNITS[1] }),
        node_name: random.maybe(part::node_name),
    }
}

/// In the order of their starts: some of the user's before the container runtime, some behind it, the kubelet last.
fn add_units(bundle: &mut Bundle, random: &mut Random) {
    let runtime = Unit { name: bundle.runtime.unit.clone(), start: Start::BeforeGate, brought: None };
    let mut units = vec![runtime];
    for name in random.some_of(&part::OWN_UNITS) {
        let at = random.below(units.len() + 1);
        units.insert(at, part::own_unit(random, name));
    }
    units.push(Unit { name: bundle.join.kubelet_unit.clone(), start: Start::AfterGate, brought: None });
    bundle.units = units;
    for unit in bundle.units.clone() {
        let is_own = part::OWN_UNITS.iter().any(|own| unit.name == *own);
        let is_brought = unit.name == IMAGE_UNITS[1] && random.coin();
        if is_own || is_brought {
            settle::put(bundle, part::unit_file(random, &unit.name, is_own));
        }
    }
}

pub(crate) fn path(text: &str) -> AbsolutePath {
    AbsolutePath::new(text).expect("a path of the generator")
}

pub(crate) fn unit_name(text: &str) -> UnitName {
    UnitName::new(text).expect("a unit of the generator")
}
