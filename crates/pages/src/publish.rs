//! The arguments of `nodestrap publish` and `nodestrap artefacts`, where the command line looks for them.

#[allow(dead_code, reason = "the commands that take these arguments are in cli")]
#[path = "../../cli/src/publish/args.rs"]
pub(crate) mod args;
