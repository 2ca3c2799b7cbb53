//! `network`: waits until the cluster has given this node its pod ranges, and writes its CNI configuration.

use std::time::Duration;

use node::Change;

use crate::args::RootArguments;
use crate::machine;
use crate::outcome::{Code, Failure, OrFail, Outcome};
use crate::show::Screen;
use crate::status::ask;

/// After this the unit starts again, with whatever credentials the kubelet has by then.
const WAIT_DEADLINE: Duration = Duration::from_secs(600);

pub(crate) fn run(arguments: &RootArguments, screen: &Screen) -> Outcome {
    let host = machine::open(&arguments.root)?;
    let disk = host.disk.as_ref();
    let settings = node::load_network_settings(disk).or_fail(Code::WrongInput)?;
    // The kubeconfig comes first, and names a certificate that is not there until the cluster has signed it.
    let certificate = arguments.root.join(settings.client_certificate.trim_start_matches('/'));
    let appeared = host::machine::wait_for_file(&certificate, WAIT_DEADLINE).or_fail(Code::MayRetry)?;
    if !appeared {
        return Err(Failure {
            code: Code::MayRetry,
            error: anyhow::anyhow!(
                "waited {WAIT_DEADLINE:?} for {}: the kubelet has not joined; nodestrap status says why",
                settings.client_certificate
            ),
        });
    }
    let access = node::read_access(disk, &settings.kubeconfig).or_fail(Code::MayRetry)?;
    let node_name = host.node_name(settings.node_name.as_deref()).or_fail(Code::NeedsPerson)?;
    let pod_cidrs = ask(cluster::wait_for_pod_cidrs(&access, &node_name, WAIT_DEADLINE, |trouble| {
        screen.remark(&format!("still waiting for the PodCIDR of {node_name}: {trouble}"));
    }))
    .or_fail(Code::MayRetry)?;
    let change = node::ensure_cni_config(disk, &settings, &pod_cidrs).or_fail(Code::NeedsPerson)?;
    let what = match change {
        Change::Written => "written",
        Change::AlreadySo => "as it should be",
    };
    screen.print(&format!("pod ranges {}: {} is {what}\n", pod_cidrs.join(", "), settings.cni_config))?;
    Ok(Code::Done)
}
