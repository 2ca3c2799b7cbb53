//! `nodestrap pki`: the keys and certificates of a control plane. The room `pki` decides; here are files and words.

pub(crate) mod args;
mod create;
pub(crate) mod files;
mod inspect;
mod renew;

use crate::outcome::Outcome;
use crate::pki::args::{PkiArguments, PkiCommand};
use crate::show::Screen;

pub(crate) fn run(arguments: PkiArguments, screen: &Screen) -> Outcome {
    match arguments.command {
        PkiCommand::Create(arguments) => create::run(&arguments, screen),
        PkiCommand::Inspect(arguments) => inspect::run(&arguments, screen),
        PkiCommand::Renew(arguments) => renew::run(arguments, screen),
    }
}
