//! The update operators of Container Linux (CLUO) and of Flatcar (FLUO), and their agents: what they write on Nodes and when, without
//! their programs, which cannot be had here. Pure; who drives it reads Nodes from a real API server and writes them there.
//!
//! ```text
//! agent: needs a reboot → operator: before-reboot → hooks: all annotations true → operator: ok → agent: in progress, reboots
//!        → agent: needs none → operator: after-reboot → hooks: all annotations true → operator: no longer ok
//! ```
//! Both speak the same words, each with a prefix of its own. One node reboots at a time.

use std::collections::BTreeMap;

const YES: &str = "true";
const NO: &str = "false";

/// What is written on a Node.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Marks {
    pub labels: BTreeMap<String, String>,
    pub annotations: BTreeMap<String, String>,
}

impl Marks {
    fn says(&self, key: &str) -> bool {
        self.annotations.get(key).is_some_and(|value| value == YES)
    }

    fn has_label(&self, key: &str) -> bool {
        self.labels.get(key).is_some_and(|value| value == YES)
    }

    fn annotate(&mut self, key: &str, value: &str) {
        self.annotations.insert(key.to_owned(), value.to_owned());
    }

    fn label(&mut self, key: &str, value: &str) {
        self.labels.insert(key.to_owned(), value.to_owned());
    }

    fn forget(&mut self, label: &str, annotations: &[String]) {
        self.labels.remove(label);
        self.annotations.retain(|key, _| !annotations.contains(key));
    }
}

/// Whose words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    ContainerLinux,
    Flatcar,
}

impl Protocol {
    pub const ALL: [Self; 2] = [Self::ContainerLinux, Self::Flatcar];

    pub fn prefix(self) -> &'static str {
        match self {
            Self::ContainerLinux => "container-linux-update.v1.coreos.com/",
            Self::Flatcar => "flatcar-linux-update.v1.flatcar-linux.net/",
        }
    }

    pub fn key(self, word: &str) -> String {
        format!("{}{word}", self.prefix())
    }
}

/// The operator, with what it was told to wait for.
#[derive(Clone, Debug)]
pub struct Operator {
    pub protocol: Protocol,
    /// `--before-reboot-annotations`.
    pub before: Vec<String>,
    /// `--after-reboot-annotations`.
    pub after: Vec<String>,
}

impl Operator {
    /// What it makes of all Nodes in one turn; there is one every 30 seconds.
    pub fn turn(&self, nodes: &mut BTreeMap<String, Marks>) {
        let key = |word| self.protocol.key(word);
        let [before, after, ok, needed] = ["before-reboot", "after-reboot", "reboot-ok", "reboot-needed"].map(key);
        let in_progress = key("reboot-in-progress");
        for node in nodes.values_mut() {
            if node.labels.contains_key(&before) && !self.wants_reboot(node) {
                node.forget(&before, &self.before);
            }
            if node.has_label(&after) && self.after.iter().all(|key| node.says(key)) {
                node.forget(&after, &self.after);
                node.annotate(&ok, NO);
            }
            let has = |key: &str, value: &str| node.annotations.get(key).is_some_and(|found| found == value);
            if has(&ok, YES) && has(&needed, NO) && has(&in_progress, NO) && !node.has_label(&after) {
                node.annotations.retain(|key, _| !self.after.contains(key));
                node.label(&after, YES);
            }
            if node.has_label(&before) && self.before.iter().all(|key| node.says(key)) {
                node.forget(&before, &self.before);
                node.annotate(&ok, YES);
            }
        }
        let is_busy = |node: &Marks| node.says(&ok) || node.has_label(&before) || node.has_label(&after);
        if nodes.values().any(is_busy) {
            return;
        }
        if let Some(node) = nodes.values_mut().find(|node| self.wants_reboot(node)) {
            // What an earlier round has left says nothing about this one.
            node.annotations.retain(|key, _| !self.before.contains(key));
            node.label(&before, YES);
        }
    }

    fn wants_reboot(&self, node: &Marks) -> bool {
        let says = |word| node.says(&self.protocol.key(word));
        says("reboot-needed") && !says("reboot-paused") && !says("reboot-ok") && !says("reboot-in-progress")
    }
}

/// What an agent is at.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Agent {
    /// Its process has begun, in whichever boot.
    #[default]
    Begins,
    /// The last reboot is not over for the operator.
    WaitsForTheEnd,
    /// update_engine has nothing for it.
    Watches,
    /// It has said that it needs a reboot.
    Asks,
    /// It drains the node, and reboots it.
    Reboots,
}

impl Agent {
    /// What it makes of its Node, and what it is at then. `has_update`: update_engine needs a reboot.
    #[must_use]
    pub fn turn(self, protocol: Protocol, has_update: bool, node: &mut Marks) -> Self {
        let key = |word| protocol.key(word);
        let [ok, needed, in_progress] = ["reboot-ok", "reboot-needed", "reboot-in-progress"].map(key);
        match self {
            Self::Begins => {
                node.annotate(&needed, NO);
                node.annotate(&in_progress, NO);
                node.label(&needed, NO);
                Self::WaitsForTheEnd
            }
            Self::WaitsForTheEnd if !node.says(&ok) => Self::Watches,
            Self::Watches if has_update => {
                node.annotate(&needed, YES);
                node.label(&needed, YES);
                Self::Asks
            }
            Self::Asks if node.says(&ok) && node.says(&needed) => {
                node.annotate(&in_progress, YES);
                Self::Reboots
            }
            other => other,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const READY: &str = "nodestrap.io/next-boot-ready";

    fn operator(protocol: Protocol) -> Operator {
        Operator { protocol, before: vec![READY.to_owned()], after: Vec::new() }
    }

    fn two_that_need_a_reboot(protocol: Protocol) -> BTreeMap<String, Marks> {
        let mut nodes = BTreeMap::from(["n1", "n2"].map(|name| (name.to_owned(), Marks::default())));
        for node in nodes.values_mut() {
            let mut agent = Agent::default();
            for _ in 0..3 {
                agent = agent.turn(protocol, true, node);
            }
            assert_eq!(agent, Agent::Asks);
        }
        nodes
    }

    #[test]
    fn one_node_after_the_other_waits_for_its_hooks_reboots_and_is_done() {
        for protocol in Protocol::ALL {
            let (operator, mut nodes) = (operator(protocol), two_that_need_a_reboot(protocol));
            let [before, after, ok] = ["before-reboot", "after-reboot", "reboot-ok"].map(|word| protocol.key(word));
            // Of an earlier round: cleared, and not taken for an answer.
            nodes.get_mut("n1").expect("there").annotate(READY, YES);
            for _ in 0..3 {
                operator.turn(&mut nodes);
                assert!(nodes["n1"].has_label(&before) && !nodes["n2"].has_label(&before));
                assert!(!nodes["n1"].says(&ok) && !nodes["n1"].says(READY));
            }
            let node = nodes.get_mut("n1").expect("there");
            node.annotate(READY, YES);
            operator.turn(&mut nodes);
            let node = nodes.get_mut("n1").expect("there");
            assert!(node.says(&ok) && !node.has_label(&before) && !node.annotations.contains_key(READY));
            assert_eq!(Agent::Asks.turn(protocol, true, node), Agent::Reboots);
            operator.turn(&mut nodes);
            assert!(!nodes["n2"].has_label(&before), "one at a time");

            let node = nodes.get_mut("n1").expect("there");
            let agent = Agent::Begins.turn(protocol, false, node);
            assert_eq!(agent.turn(protocol, false, node), Agent::WaitsForTheEnd);
            operator.turn(&mut nodes);
            assert!(nodes["n1"].has_label(&after));
            operator.turn(&mut nodes);
            assert!(!nodes["n1"].says(&ok) && !nodes["n1"].has_label(&after));
            let node = nodes.get_mut("n1").expect("there");
            assert_eq!(Agent::WaitsForTheEnd.turn(protocol, false, node), Agent::Watches);
            assert!(nodes["n2"].has_label(&before), "its turn");
        }
    }

    #[test]
    fn a_node_that_is_paused_is_not_waited_for_and_loses_what_its_hooks_have_said() {
        let protocol = Protocol::Flatcar;
        let (operator, mut nodes) = (operator(protocol), two_that_need_a_reboot(protocol));
        operator.turn(&mut nodes);
        let node = nodes.get_mut("n1").expect("there");
        node.annotate(&protocol.key("reboot-paused"), YES);
        node.annotate(READY, YES);
        operator.turn(&mut nodes);
        let before = protocol.key("before-reboot");
        assert!(!nodes["n1"].has_label(&before) && !nodes["n1"].says(READY));
        assert!(!nodes["n1"].says(&protocol.key("reboot-ok")));
        assert!(nodes["n2"].has_label(&before), "the next one");
    }
}
