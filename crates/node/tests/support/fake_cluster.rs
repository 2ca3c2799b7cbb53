//! A cluster that says what it is told to say of itself, and counts who asks.

use std::sync::{Arc, Mutex};

use cluster::{Access, Answer, ClusterError, ConfigMapKey, GitVersion};
use node::AskCluster;
use node::cluster_release::{Asked, Asker};

/// A clone is another handle of the same one.
#[derive(Clone)]
pub(crate) struct FakeCluster(Arc<Mutex<State>>);

struct State {
    version: Answer<String>,
    mappings: Answer<String>,
    questions: usize,
}

impl Default for FakeCluster {
    /// One that nobody can reach.
    fn default() -> Self {
        let down = || Answer::Unreachable { reason: "connection refused".to_owned() };
        Self(Arc::new(Mutex::new(State { version: down(), mappings: down(), questions: 0 })))
    }
}

impl FakeCluster {
    pub(crate) fn answer(&self, version: Answer<String>, mappings: Answer<String>) {
        self.with(|state| (state.version, state.mappings) = (version, mappings));
    }

    pub(crate) fn questions(&self) -> usize {
        self.with(|state| state.questions)
    }

    fn with<T>(&self, look: impl FnOnce(&mut State) -> T) -> T {
        look(&mut self.0.lock().expect("nobody panics with it"))
    }
}

impl AskCluster for FakeCluster {
    fn version(&self, _: &Access) -> Result<Asked<GitVersion>, ClusterError> {
        let answer = self.with(|state| {
            state.questions += 1;
            state.version.clone()
        });
        let read = |text: String| GitVersion::parse(&text).ok_or(format!("{text:?} is no version"));
        Ok(Asked { answer: answer.read(read), by: Asker::Node })
    }

    fn mappings(&self, _: &Access, _: &ConfigMapKey) -> Result<Asked<String>, ClusterError> {
        let answer = self.with(|state| {
            state.questions += 1;
            state.mappings.clone()
        });
        Ok(Asked { answer, by: Asker::Node })
    }
}
