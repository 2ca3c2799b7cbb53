//! Plays the cloud's route table: as soon as a node has its pod ranges, the hub sends their traffic to it.

use std::io::BufReader;
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::Value;

use crate::cache::prepare;
use crate::identities::Identities;
use crate::network::{Addresses, HUB_MEMBER, inside, route_pods};
use crate::process::{MARKER, ProcessId};
use crate::state::StateFile;

const PAUSE_BETWEEN_WATCHES: Duration = Duration::from_millis(500);
const PROCESS: &str = "routes-watch";

/// Watches nodes until the lab ends. The watch itself ends whenever the API server does and is then begun again.
pub fn keep_routes(lab: &str) -> Result<()> {
    let state = StateFile::of(lab);
    let kubectl = prepare()?.kubernetes.join("kubectl");
    while state.load().is_ok_and(|state| !state.closing) {
        let mut command = inside(lab, HUB_MEMBER, &kubectl);
        command.arg("--kubeconfig").arg(Identities::in_lab(state.folder()).admin_kubeconfig());
        command.args(["get", "nodes", "--watch", "--output", "json"]).env(MARKER, lab);
        // A watch that could not begin is tried again; the log of the API server says what was wrong.
        let _ = watch_once(lab, &state, &mut command);
        std::thread::sleep(PAUSE_BETWEEN_WATCHES);
    }
    Ok(())
}

fn watch_once(lab: &str, state: &StateFile, command: &mut Command) -> Result<()> {
    state.record_process(PROCESS, None)?;
    let mut child = command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::null()).spawn()?;
    state.record_process(PROCESS, ProcessId::observe(child.id()))?;
    let output = child.stdout.take().context("kubectl has no output")?;
    let documents = serde_json::Deserializer::from_reader(BufReader::new(output)).into_iter::<Value>();
    for node in documents.map_while(Result::ok) {
        let Some(name) = node["metadata"]["name"].as_str() else { continue };
        // Nodes that the lab did not make have no address that it could route to.
        let Some(index) = state.load()?.nodes.get(name).map(|node| node.index) else { continue };
        for range in node["spec"]["podCIDRs"].as_array().into_iter().flatten().filter_map(Value::as_str) {
            if let Err(error) = route_pods(lab, range, &Addresses::of_node(index)) {
                eprintln!("lab: routing {range} to {name}: {error:#}");
            }
        }
    }
    child.wait().context("waiting for kubectl").map(drop)
}
