//! A cluster with as many node groups as asked for, no two alike: each has a label, a taint and a number of pods of its own.

use std::fmt::Write as _;

use anyhow::{Result, anyhow};
use spec::{Colour, Source, Spec, parse, render_mistakes};

/// Of the one cluster, as a user would write it.
const CLUSTER: &str = include_str!("../../../examples/minimal.yaml");

/// A file of a spec may have 100,000 values: groups are spread over several.
const GROUPS_PER_FILE: usize = 1000;

/// The files of the spec. `bench/peers/render_jinja2.py` makes the same groups from the same numbers.
pub(crate) fn texts(count: usize) -> Vec<String> {
    let cluster = CLUSTER.split("---").next().unwrap_or_default().to_owned();
    let numbers: Vec<usize> = (0..count).collect();
    std::iter::once(cluster).chain(numbers.chunks(GROUPS_PER_FILE).map(groups)).collect()
}

fn groups(numbers: &[usize]) -> String {
    let mut text = String::new();
    for number in numbers {
        let (pool, rack, team, pods) = (number, number % 40, number % 7, 30 + number % 220);
        let _ = write!(
            text,
            "---\napiVersion: nodestrap.io/v1alpha1\nkind: NodeGroup\nmetadata: {{name: pool-{pool:04}}}\nspec:\n  \
             labels: {{example.com/pool: pool-{pool:04}, example.com/rack: rack-{rack:02}}}\n  \
             taints: [{{key: example.com/team, value: team-{team}, effect: NoSchedule}}]\n  \
             kubelet: {{config: {{maxPods: {pods}}}}}\n"
        );
    }
    text
}

pub(crate) fn sources(count: usize) -> Vec<Source> {
    texts(count).into_iter().enumerate().map(|(index, text)| Source::new(format!("{index}.yaml"), text)).collect()
}

pub(crate) fn decode(sources: &[Source]) -> Result<Spec> {
    let mistaken = |mistakes: Vec<spec::Mistake>| anyhow!("{}", render_mistakes(&mistakes, Colour::Plain));
    parse(sources).resolve(|file| Err(format!("{} is not needed", file.path))).map_err(mistaken)
}
