//! What the two specs of a walk ask for, made from a number: one choice for each part, the same for the same number.

use std::path::Path;

/// Where a part stands in the spec.
#[derive(Clone, Copy, PartialEq)]
enum Place {
    Cluster,
    Group,
}
use Place::{Cluster, Group};

/// A field, and what may stand in it; nothing at all if it is empty. Parts of the same field are joined. No choice needs
/// anything from outside the lab, and none sets what is not of the node's own: kernel parameters of its network only.
struct Part {
    place: Place,
    field: &'static str,
    choices: &'static [&'static str],
}

const fn part(place: Place, field: &'static str, choices: &'static [&'static str]) -> Part {
    Part { place, field, choices }
}

/// Only ever more of them, or others under the same names. One that is taken away is trusted until the machine is replaced, as
/// `render --diff` says.
const AUTHORITIES: &str = "trust";

const PARTS: [Part; 16] = [
    part(Group, "maxPods", &["", "40", "60"]),
    part(Group, "taints", &["", "[{key: example.com/walk, effect: PreferNoSchedule}]"]),
    part(Group, "sysctls", &["", "net.core.somaxconn: '1024'", "net.core.somaxconn: '2048'"]),
    part(Group, "sysctls", &["", "net.ipv4.tcp_fin_timeout: '50'"]),
    part(
        Group,
        "fileAssets",
        &[
            "",
            "- {path: /etc/walk/deep/er/one, content: first}",
            "- {path: /etc/walk/deep/er/one, content: second}",
            "- {path: /etc/walk/deep/er/one, content: first, mode: '0640'}",
            "- {path: /etc/walk/deep/er/one, content: first, secret: true}",
        ],
    ),
    // The image has one, which must come back.
    part(Group, "fileAssets", &["", "- {path: /etc/motd, content: a node, mode: '0600'}"]),
    part(Group, "fileAssets", &["", "- {path: /usr/local/bin/walk, content: '#!/bin/sh', mode: '0755'}"]),
    part(Group, "fileAssets", &["", "- {path: /etc/containerd/conf.d/50-walk.toml, content: version = 3}"]),
    part(
        Group,
        "units",
        &[
            "",
            "- name: walk.service
  content: |
    [Service]
    ExecStart=/bin/sleep infinity
    [Install]
    WantedBy=multi-user.target",
            "- name: walk.service
  content: |
    [Service]
    ExecStart=/bin/sleep infinity
    [Install]
    WantedBy=kubelet.service
    Alias=wander.service",
            "- name: walk.service
  content: |
    [Service]
    ExecStart=/bin/sleep infinity",
            "- name: walk.service
  content: |
    [Service]
    Type=oneshot
    ExecStart=/bin/true
    [Install]
    WantedBy=multi-user.target",
            "- name: walk.service
  content: |
    [Service]
    Type=oneshot
    RemainAfterExit=yes
    ExecStart=/bin/true
    [Install]
    RequiredBy=multi-user.target",
            "- name: walk.service
  enabled: false
  content: |
    [Service]
    ExecStart=/bin/sleep infinity
    [Install]
    WantedBy=multi-user.target",
        ],
    ),
    part(
        Group,
        "units",
        &[
            "",
            "- {name: containerd.service, dropIns: {50-walk: \"[Service]\\nEnvironment=WALK=1\\n\"}}",
            "- {name: containerd.service, dropIns: {50-walk: \"[Service]\\nEnvironment=WALK=2\\n\"}}",
        ],
    ),
    part(Group, "units", &["", "- {name: kubelet.service, dropIns: {50-walk: \"[Service]\\nEnvironment=WALK=1\\n\"}}"]),
    part(
        Group,
        "hooks",
        &[
            "",
            "- {name: early, slot: after-files, unit: ExecStart=/bin/true}",
            "- {name: early, slot: after-files, unit: ExecStart=/bin/echo again}",
        ],
    ),
    part(Group, "hooks", &["", "- {name: late, slot: before-kubelet, unit: ExecStart=/bin/touch /run/walked}"]),
    part(
        Cluster,
        "registryMirrors",
        &["", "docker.io: [https://mirror.invalid]", "quay.io: [https://mirror.invalid/quay]"],
    ),
    part(Cluster, "ntpServers", &["", "[time.invalid]", "[time.invalid, other.invalid]"]),
    part(
        Cluster,
        AUTHORITIES,
        &[
            "",
            "certificateAuthorities: [{name: one, certificate: {file: FOLDER/one.crt}}]",
            "certificateAuthorities: [{name: one, certificate: {file: FOLDER/one.crt}}, {name: two, certificate: {file: FOLDER/two.crt}}]",
            "certificateAuthorities: [{name: one, certificate: {file: FOLDER/two.crt}}, {name: two, certificate: {file: FOLDER/one.crt}}]",
        ],
    ),
];

/// Of the group. They have a line of their own in the lab's spec.
const LABELS: [&str; 3] =
    ["{example.com/pool: workers}", "{example.com/pool: walkers}", "{example.com/pool: workers, example.com/walk: a}"];

/// What one spec asks for: which choice of each part.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct Wishes {
    chosen: [usize; PARTS.len()],
    labels: usize,
}

/// Two specs for one node: half of the time the second is the first with a few changes, otherwise they have nothing in
/// common but the lab. They always differ.
pub(crate) fn pair(seed: u64) -> (Wishes, Wishes) {
    let mut random = Random(seed);
    let first = Wishes::any(&mut random);
    loop {
        let mut second = match random.below(2) {
            0 => first.clone(),
            _ => Wishes::any(&mut random),
        };
        for _ in 0..=random.below(3) {
            second.change(&mut random);
        }
        second.keep_authorities_of(&first);
        if second != first {
            return (first, second);
        }
    }
}

impl Wishes {
    /// The lab's own spec.
    pub(crate) fn none() -> Self {
        Self { chosen: [0; PARTS.len()], labels: 0 }
    }

    /// Nothing in half of the parts, so that most walks add and remove.
    fn any(random: &mut Random) -> Self {
        let mut wishes = Self::none();
        for (chosen, part) in wishes.chosen.iter_mut().zip(&PARTS) {
            *chosen = random.below(2) * random.below(part.choices.len());
        }
        Self { labels: random.below(LABELS.len()), ..wishes }
    }

    fn change(&mut self, random: &mut Random) {
        match random.below(PARTS.len() + 1) {
            index if index < PARTS.len() => self.chosen[index] = random.below(PARTS[index].choices.len()),
            _ => self.labels = random.below(LABELS.len()),
        }
    }

    fn keep_authorities_of(&mut self, first: &Self) {
        for (index, _) in PARTS.iter().enumerate().filter(|(_, part)| part.field == AUTHORITIES) {
            self.chosen[index] = self.chosen[index].max(first.chosen[index]);
        }
    }

    pub(crate) fn labels(&self) -> &'static str {
        LABELS[self.labels]
    }

    /// Fields of the Cluster's spec; the certificates of authorities lie in this folder.
    pub(crate) fn cluster(&self, certificates: &Path) -> String {
        self.fields(Cluster).replace("FOLDER", &certificates.display().to_string())
    }

    /// Fields of the NodeGroup's spec.
    pub(crate) fn group(&self) -> String {
        self.fields(Group)
    }

    fn fields(&self, place: Place) -> String {
        let mut text = String::new();
        let mut last = "";
        for (part, chosen) in PARTS.iter().zip(self.chosen).filter(|(part, _)| part.place == place) {
            let choice = part.choices[chosen];
            if choice.is_empty() {
                continue;
            }
            if last != part.field {
                text.push_str(&format!("{}:\n", part.field));
                last = part.field;
            }
            choice.lines().for_each(|line| text.push_str(&format!("  {line}\n")));
        }
        text
    }
}

impl std::fmt::Display for Wishes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "labels: {}\n{}{}", self.labels(), self.group(), self.fields(Cluster))
    }
}

/// SplitMix64: the same walks on every machine.
struct Random(u64);

impl Random {
    fn below(&mut self, end: usize) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % end as u64) as usize
    }
}
