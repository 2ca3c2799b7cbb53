//! `nodestrap receive`: the end of a push that is on the node.
//!
//! Reads: standard input, as `fetch::assets` describes it. Writes: the folder that `--to` names, and beside it while it comes.

use std::io::IsTerminal as _;
use std::time::Duration;

use fetch::assets::{self, Done, Existing, ReceiveError, Received, Target};
use fetch::unpack::UnpackError;
use host::disk::RootedDisk;
use host::machine::StandardInput;
use serde::{Deserialize, Serialize};

use crate::args::{PlaceArguments, ReceiveArguments};
use crate::outcome::{Code, Failure, OrFail, Outcome};
use crate::show::Screen;

/// A connection of which nothing is heard for so long is gone; the lock must not stay with it.
const STALL: Duration = Duration::from_secs(120);

/// What became of a push, as the node says it to whoever pushed.
#[derive(Serialize, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub(crate) struct ReceivedView {
    pub(crate) folder: String,
    pub(crate) digest: String,
    pub(crate) outcome: ViewedOutcome,
}

#[derive(Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub(crate) enum ViewedOutcome {
    Published,
    Replaced,
    ThereAlready,
}

impl ViewedOutcome {
    /// After the name of the folder.
    pub(crate) fn text(self) -> &'static str {
        match self {
            Self::Published => "is there",
            Self::Replaced => "is there, in place of an earlier push",
            Self::ThereAlready => "was there already, by an earlier push: nothing to do",
        }
    }
}

pub(crate) fn run(arguments: &ReceiveArguments, screen: &Screen) -> Outcome {
    if std::io::stdin().is_terminal() {
        return Err(anyhow::anyhow!("receive takes what nodestrap push sends, and nobody types that"))
            .or_fail(Code::WrongInput);
    }
    let disk = RootedDisk::open(&arguments.root.root).or_fail(Code::WrongInput)?;
    let target = target(&arguments.place);
    let received = assets::receive(&mut StandardInput::new(STALL), &disk, &target);
    let received = received.map_err(|error| Failure { code: code_of(&error), error: error.into() })?;
    let view = view(&arguments.place, &received);
    screen.result(&view, || format!("{} {}\n", view.folder, view.outcome.text()))
}

fn target(place: &PlaceArguments) -> Target {
    let existing = if place.replace { Existing::Replaced } else { Existing::Stays };
    Target { path: (&place.to).into(), existing }
}

fn view(place: &PlaceArguments, received: &Received) -> ReceivedView {
    let outcome = match received.done {
        Done::Published { .. } => ViewedOutcome::Published,
        Done::Replaced { .. } => ViewedOutcome::Replaced,
        Done::ThereAlready => ViewedOutcome::ThereAlready,
    };
    ReceivedView { folder: place.to.clone(), digest: received.heading.digest.to_string(), outcome }
}

/// What was cut or damaged on its way may come whole the next time.
fn code_of(error: &ReceiveError) -> Code {
    use UnpackError::{NoEnd, Place, Read, Truncated, Write};
    match error {
        ReceiveError::Busy => Code::Busy,
        ReceiveError::Target { .. } | ReceiveError::Heading(_) | ReceiveError::TooLarge { .. } => Code::WrongInput,
        ReceiveError::NoHeading | ReceiveError::Read(_) | ReceiveError::Differs | ReceiveError::TooLong => {
            Code::MayRetry
        }
        ReceiveError::Unpack(Truncated { .. } | NoEnd | Read(_)) => Code::MayRetry,
        ReceiveError::Unpack(Write { .. } | Place { .. }) => Code::NeedsPerson,
        ReceiveError::Unpack(_) => Code::WrongInput,
        ReceiveError::NoSpace { .. }
        | ReceiveError::OtherPush { .. }
        | ReceiveError::NotOurs { .. }
        | ReceiveError::Lost { .. }
        | ReceiveError::Disk(_)
        | ReceiveError::Files(_) => Code::NeedsPerson,
    }
}
