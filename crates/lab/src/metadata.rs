//! A metadata service as AWS, GCE, Azure and OpenStack have it, which can also behave badly.
//!
//! In: an [`Instance`] and an address to listen at. Out: answers as the real service gives them (it wants the same headers
//! and refuses in the same way), and the list of what was asked. A test tells it how to behave next ([`Manner`]); without a
//! word it is faithful. Gone with its value.

mod answers;
mod manners;

use std::collections::VecDeque;
use std::io;
use std::net::TcpListener;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use anyhow::{Context, Result};

pub use answers::{Instance, Provider, Role};
pub use manners::Manner;

use crate::listener::{Connection, Listening, locked};

pub struct MetadataServer {
    listening: Listening,
    shared: Arc<Shared>,
}

struct Shared {
    instance: Instance,
    requests: Mutex<Vec<String>>,
    connections: AtomicUsize,
    next: Mutex<VecDeque<Manner>>,
    always: Mutex<Manner>,
}

impl MetadataServer {
    /// On loopback, at a port of its own.
    pub fn start(instance: Instance) -> Result<Self> {
        Self::serve(TcpListener::bind("127.0.0.1:0").context("listening on loopback")?, instance)
    }

    /// Where something else has made the listener: in another namespace, at a port that was free before.
    pub fn serve(listener: TcpListener, instance: Instance) -> Result<Self> {
        let shared = Arc::new(Shared {
            instance,
            requests: Mutex::default(),
            connections: AtomicUsize::new(0),
            next: Mutex::default(),
            always: Mutex::new(Manner::Faithful),
        });
        let answering = Arc::clone(&shared);
        let listening = Listening::start(listener, move |connection| converse(connection, &answering))?;
        Ok(Self { listening, shared })
    }

    /// `http://127.0.0.1:PORT`.
    pub fn url(&self) -> String {
        self.listening.url()
    }

    /// The next requests are answered like this, one after the other.
    pub fn next(&self, manners: impl IntoIterator<Item = Manner>) {
        locked(&self.shared.next).extend(manners);
    }

    /// All others are answered like this.
    pub fn always(&self, manner: Manner) {
        *locked(&self.shared.always) = manner;
    }

    /// Such as `PUT /latest/api/token`, in the order in which they came.
    pub fn requests(&self) -> Vec<String> {
        locked(&self.shared.requests).clone()
    }

    /// How many connections were made.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }
}

/// One connection, for as many requests as the client wants and the manner allows.
fn converse(connection: &mut Connection<'_>, shared: &Shared) -> io::Result<()> {
    shared.connections.fetch_add(1, Ordering::SeqCst);
    while let Some(request) = connection.next_request()? {
        locked(&shared.requests).push(format!("{} {}", request.verb, request.path));
        let manner = locked(&shared.next).pop_front().unwrap_or_else(|| locked(&shared.always).clone());
        let answer = answers::answer(&shared.instance, &request);
        if !manners::send(connection.stream, &manner, &answer)? {
            break;
        }
    }
    Ok(())
}
