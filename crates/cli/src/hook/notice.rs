//! What is said on the Node: an annotation that an operator waits for, what it is about, and Events that name what is in the way.

use std::collections::BTreeMap;

use anyhow::anyhow;
use cluster::{Access, Answer, ClusterError, MarkKey, NodeEvent, NodeMarks, Patience, Weight, block_on};
use node::os_update::NextBoot;
use node::{NodeHost, Problem};
use sha2::{Digest as _, Sha256};

use crate::outcome::{Code, Failure, OrFail};

/// What operators take for yes.
const YES: &str = "true";
/// Beside the annotation: which next boot it is about.
const ABOUT: &str = "-for";
/// The next boot brings the operating system that runs.
const SAME: &str = "the-running-system";
const REASON: &str = "NextBootRefused";
/// Enough to tell the problems of one node apart.
const MARK_DIGITS: usize = 12;

/// Where the answer goes.
pub(crate) struct Target {
    pub(crate) annotation: MarkKey,
    pub(crate) name: Option<String>,
    /// The operator waits while this label is there.
    pub(crate) while_label: Option<MarkKey>,
}

/// The Node as it is, and the way to write on it.
pub(super) struct Notice<'a> {
    target: &'a Target,
    about: MarkKey,
    access: Access,
    name: String,
    marks: NodeMarks,
}

impl<'a> Notice<'a> {
    pub(super) fn read(
        host: &NodeHost,
        target: &'a Target,
        kubeconfig: &str,
        name: Option<&str>,
    ) -> Result<Self, Failure> {
        let about = target.annotation.with_suffix(ABOUT);
        let about = about.ok_or_else(|| {
            anyhow!("the annotation {:?} is too long: \"{ABOUT}\" must fit behind it", target.annotation.as_str())
        });
        let about = about.or_fail(Code::WrongInput)?;
        let access = node::read_access(host.disk.as_ref(), kubeconfig).or_fail(Code::MayRetry)?;
        let name = host.node_name(target.name.as_deref().or(name)).or_fail(Code::NeedsPerson)?;
        let marks = insist(cluster_says(cluster::node_marks(&access, &name, Patience::default()))?, &name, "read")?;
        Ok(Self { target, about, access, name, marks })
    }

    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The label by which an operator says that it waits, and that is not there.
    pub(super) fn missing_label(&self) -> Option<&MarkKey> {
        self.target.while_label.as_ref().filter(|label| self.marks.label(label) != Some(YES))
    }

    /// Somebody has said yes, to something else than what is known to boot next.
    pub(super) fn is_stale(&self, next: Option<&NextBoot>) -> bool {
        self.marks.annotation(&self.target.annotation).is_some()
            && next.is_none_or(|next| self.marks.annotation(&self.about) != Some(about(next)))
    }

    /// What is not there is not taken away once more.
    pub(super) fn withdraw(&mut self) -> Result<(), Failure> {
        let both = [self.target.annotation.clone(), self.about.clone()];
        if both.iter().all(|key| self.marks.annotation(key).is_none()) {
            return Ok(());
        }
        let nothing = both.map(|key| (key, None));
        self.write(nothing.into(), "take the annotation away from")
    }

    pub(super) fn confirm(&mut self, next: &NextBoot) -> Result<(), Failure> {
        let is_said = self.marks.annotation(&self.target.annotation) == Some(YES) && !self.is_stale(Some(next));
        if is_said {
            return Ok(());
        }
        let yes = (self.target.annotation.clone(), Some(YES.to_owned()));
        self.write([yes, (self.about.clone(), Some(about(next).to_owned()))].into(), "annotate")
    }

    fn write(&mut self, changes: BTreeMap<MarkKey, Option<String>>, what: &str) -> Result<(), Failure> {
        let answer = cluster_says(cluster::annotate_node(&self.access, &self.name, &changes, Patience::default()))?;
        self.marks = insist(answer, &self.name, what)?;
        Ok(())
    }

    /// One Event for each problem, the same one each time.
    pub(super) fn tell(&self, problem: &Problem, now: i64) -> Result<(), Failure> {
        let message = problem.to_string();
        let event = NodeEvent {
            node: self.name.clone(),
            uid: self.marks.uid.clone(),
            weight: Weight::Warning,
            reason: REASON.to_owned(),
            mark: mark(&self.marks.uid, &message),
            message,
        };
        let answer = cluster_says(cluster::say_about_node(&self.access, &event, now, Patience::default()))?;
        insist(answer, &self.name, "say something about")
    }
}

/// A value of an annotation.
fn about(next: &NextBoot) -> &str {
    match next {
        NextBoot::Same(_) => SAME,
        NextBoot::Other { version, .. } => version.as_str(),
    }
}

fn mark(uid: &str, message: &str) -> String {
    let digest = Sha256::digest(format!("{uid}\n{message}"));
    let mut digits = String::new();
    for byte in digest.iter().take(MARK_DIGITS / 2) {
        digits.push_str(&format!("{byte:02x}"));
    }
    digits
}

fn cluster_says<T>(question: impl Future<Output = Answer<T>>) -> Result<Answer<T>, Failure> {
    block_on(question).map_err(|error: ClusterError| Failure { code: Code::MayRetry, error: error.into() })
}

/// `what`: such as "read", of the Node.
fn insist<T>(answer: Answer<T>, name: &str, what: &str) -> Result<T, Failure> {
    let (code, why) = match answer {
        Answer::Found(found) => return Ok(found),
        Answer::NotThere => (Code::NeedsPerson, "the cluster has none of that name; see --node-name".to_owned()),
        Answer::Refused { status: 401 } => {
            (Code::NeedsPerson, "the API server does not accept the kubelet's credential (401)".to_owned())
        }
        Answer::Refused { status } => {
            let why = format!("the API server does not let this node do that ({status}); is it another one's Node?");
            (Code::NeedsPerson, why)
        }
        Answer::Unreachable { reason } => (Code::MayRetry, format!("the API server cannot be reached: {reason}")),
        Answer::Untrusted { reason } => (Code::NeedsPerson, format!("the API server cannot be trusted: {reason}")),
        Answer::Malformed { reason } => (Code::NeedsPerson, format!("the API server answers: {reason}")),
    };
    Err(Failure { code, error: anyhow!("cannot {what} the Node {name:?}: {why}") })
}
