//! What another program sends us, as long as it sends.

use std::io::{self, Read};
use std::time::Duration;

use rustix::event::{PollFd, PollFlags, Timespec, poll};

/// Standard input, with a deadline between two signs of life: who is at the other end of a network may vanish without a word.
pub struct StandardInput {
    stall: Duration,
}

impl StandardInput {
    pub fn new(stall: Duration) -> Self {
        Self { stall }
    }
}

impl Read for StandardInput {
    fn read(&mut self, into: &mut [u8]) -> io::Result<usize> {
        let input = rustix::stdio::stdin();
        let timeout = Timespec::try_from(self.stall).map_err(io::Error::other)?;
        // A signal ends this early with `Interrupted`, upon which readers ask again.
        match poll(&mut [PollFd::new(&input, PollFlags::IN)], Some(&timeout))? {
            0 => Err(io::Error::new(
                io::ErrorKind::TimedOut,
                format!("nothing came for {} seconds", self.stall.as_secs()),
            )),
            _ => Ok(rustix::io::read(input, into)?),
        }
    }
}
