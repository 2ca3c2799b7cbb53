//! `facts`: what nodestrap believes this machine to be, and who says so.

use crate::args::FactsArguments;
use crate::machine;
use crate::node_commands::session_failure;
use crate::outcome::Outcome;
use crate::show::{Paint, Screen, table};

pub(crate) fn run(arguments: &FactsArguments, screen: &Screen) -> Outcome {
    let host = machine::open_with(&arguments.root.root, &arguments.platform)?;
    let facts = node::gather_facts(&host).map_err(|error| session_failure(error.into()))?;
    screen.result(&facts, || {
        let said = facts.notes().into_iter().filter(|fact| !fact.value.is_empty());
        let rows = said.map(|fact| vec![fact.name, fact.value, screen.paint(Paint::Quiet, &fact.source)]);
        table(&rows.collect::<Vec<_>>())
    })
}
