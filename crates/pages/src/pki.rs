//! The arguments of `nodestrap pki`, where the command line looks for them.

#[path = "../../cli/src/pki/args.rs"]
pub(crate) mod args;
