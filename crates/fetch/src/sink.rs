//! Where the bytes of a download go, and where they were left off.

use std::error::Error;

/// Takes the bytes of one object in order; what it keeps over a cut or a kill is where the next attempt begins.
pub trait Sink {
    /// How many bytes are there already.
    fn kept(&self) -> u64;
    fn append(&mut self, bytes: &[u8]) -> Result<(), SinkError>;
    /// Begins anew: what is kept is of no use.
    fn discard(&mut self) -> Result<(), SinkError>;
}

/// Why a sink takes nothing more.
#[derive(Debug, thiserror::Error)]
#[error("keep what was fetched")]
pub struct SinkError(#[source] pub Box<dyn Error + Send + Sync>);
