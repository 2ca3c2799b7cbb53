//! The kinds of work that are measured, and the proof that each was done.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, HashSet};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, bail, ensure};
use bundle::Payload;
use libdeflater::{CompressionLvl, Compressor};
use render::delivery::Format;
use render::{GroupDelivery, RenderError, render_all};
use rustix::time::{ClockId, clock_gettime};
use serde_json::{Value, json};
use spec::{CompleteSpec, Source, Spec};

use crate::fleet;

/// A fleet in each stage, made once: what comes before a kind of work is no part of its time.
struct Fleet {
    sources: Vec<Source>,
    spec: Spec,
    complete: CompleteSpec,
    bundles: Vec<Vec<u8>>,
}

/// As user data is compressed; see render's gzip.
const LEVEL: i32 = 9;

#[derive(Default)]
pub(crate) struct Fleets {
    by_size: BTreeMap<usize, Fleet>,
}

impl Fleets {
    /// One run of one kind of work over `count` groups.
    pub(crate) fn measure(&mut self, work: &str, count: usize) -> Result<Value> {
        let fleet = match self.by_size.entry(count) {
            Entry::Occupied(known) => known.into_mut(),
            Entry::Vacant(place) => place.insert(Fleet::new(count)?),
        };
        let clock = Clock::start();
        let outputs = fleet.run(work)?;
        let (wall, cpu) = clock.stop();
        Ok(json!({
            "work": work,
            "count": count,
            "wallNanoseconds": wall.as_nanos() as u64,
            "cpuNanoseconds": cpu.as_nanos() as u64,
            "bytes": outputs.iter().map(Vec::len).sum::<usize>(),
            "checked": check(&outputs, count)?,
        }))
    }
}

impl Fleet {
    fn new(count: usize) -> Result<Self> {
        let sources = fleet::sources(count);
        let spec = fleet::decode(&sources)?;
        let complete = complete(&spec)?;
        let bundles = render_all(&complete, bundle)?;
        Ok(Self { sources, spec, complete, bundles })
    }

    fn run(&self, work: &str) -> Result<Vec<Vec<u8>>> {
        match work {
            "bundle" => Ok(render_all(&self.complete, bundle)?),
            "complete+bundle" => Ok(render_all(&complete(&self.spec)?, bundle)?),
            "text+bundle" => Ok(render_all(&complete(&fleet::decode(&self.sources)?)?, bundle)?),
            "cloud-config" => Ok(render_all(&self.complete, user_data)?),
            "text+cloud-config" => Ok(render_all(&complete(&fleet::decode(&self.sources)?)?, user_data)?),
            "deflate" => Ok(deflate(&self.bundles, LEVEL)),
            // Other levels, for who asks whether ours is the right one.
            other if other.starts_with("deflate-") => Ok(deflate(&self.bundles, other["deflate-".len()..].parse()?)),
            other => bail!("there is no work '{other}'"),
        }
    }
}

fn complete(spec: &Spec) -> Result<CompleteSpec> {
    spec::complete(spec).map_err(|mistakes| anyhow!("{}", spec::render_mistakes(&mistakes, spec::Colour::Plain)))
}

fn bundle(group: &GroupDelivery<'_>) -> Result<Vec<u8>, RenderError> {
    Ok(group.bundle.to_json().into_bytes())
}

fn user_data(group: &GroupDelivery<'_>) -> Result<Vec<u8>, RenderError> {
    Ok(group.user_data(Format::CloudConfig)?.bytes)
}

/// A floor: the compression of the same bundles on two threads, and nothing else.
fn deflate(bundles: &[Vec<u8>], level: i32) -> Vec<Vec<u8>> {
    let some = |bundles: &[Vec<u8>]| -> Vec<Vec<u8>> {
        let mut compressor = Compressor::new(CompressionLvl::new(level).unwrap_or_default());
        let pack = |bundle: &Vec<u8>| {
            let mut packed = vec![0; compressor.gzip_compress_bound(bundle.len())];
            let length = compressor.gzip_compress(bundle, &mut packed).unwrap_or_default();
            packed.truncate(length);
            packed
        };
        bundles.iter().map(pack).collect()
    };
    let (first, second) = bundles.split_at(bundles.len() / 2);
    if first.is_empty() {
        return some(second);
    }
    std::thread::scope(|scope| {
        let half = scope.spawn(|| some(first));
        let rest = some(second);
        let mut packed = half.join().unwrap_or_default();
        packed.extend(rest);
        packed
    })
}

/// The user data of the last of so many groups, for who else reads it.
pub(crate) fn cloud_config(count: usize) -> Result<String> {
    let outputs = Fleet::new(count)?.run("cloud-config")?;
    String::from_utf8(outputs.into_iter().last().context("there are no groups")?).context("reading user data as text")
}

/// All outputs differ, and a sample reads back as the bundle of its group. Returns how many were read back.
fn check(outputs: &[Vec<u8>], count: usize) -> Result<usize> {
    ensure!(outputs.len() == count, "{} outputs of {count} groups", outputs.len());
    let different: HashSet<&[u8]> = outputs.iter().map(Vec::as_slice).collect();
    ensure!(different.len() == count, "only {} of {count} outputs differ", different.len());
    let sample: Vec<usize> = (0..count).step_by(count.div_ceil(10)).chain([count - 1]).collect();
    for number in &sample {
        let Payload::Bundle(bundle) = bundle::read_user_data(&outputs[*number]).context("reading back")? else {
            bail!("output {number} is no bundle");
        };
        let name = format!("pool-{number:04}");
        ensure!(bundle.group == name, "output {number} is for the group '{}'", bundle.group);
        let pods = format!("maxPods: {}\n", 30 + number % 220);
        let kubelet = bundle.files.iter().find(|file| file.path.ends_with("/kubelet.yaml"));
        let kubelet = kubelet.context("there is no kubelet.yaml")?;
        ensure!(String::from_utf8_lossy(&kubelet.content).contains(&pods), "the kubelet of {name} has other pods");
        let arguments = bundle.gate.environment.get("KUBELET_ARGS").context("there are no arguments")?;
        ensure!(arguments.contains(&format!("example.com/pool={name}")), "{name} has other labels: {arguments}");
    }
    Ok(sample.len())
}

/// Wall time, and the processor time of all threads, which neighbours on a busy machine disturb less.
struct Clock {
    wall: Instant,
    cpu: Duration,
}

impl Clock {
    fn start() -> Self {
        Self { wall: Instant::now(), cpu: processor_time() }
    }

    fn stop(&self) -> (Duration, Duration) {
        (self.wall.elapsed(), processor_time() - self.cpu)
    }
}

fn processor_time() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec as u64, time.tv_nsec as u32)
}
