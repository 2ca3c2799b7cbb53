//! The arguments of `nodestrap hook`, where the command line looks for them.

#[allow(dead_code, reason = "the commands that take these arguments are in cli")]
#[path = "../../cli/src/hook/args.rs"]
pub(crate) mod args;
