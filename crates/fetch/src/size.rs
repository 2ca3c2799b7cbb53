//! How large an object is, before anybody has its bytes.

use hyper::StatusCode;
use hyper::header::HeaderMap;

use crate::error::{FetchError, Reason, chain};
use crate::exchange::{announced, get, refusal, refuse_encoded};
use crate::mirrors::Rounds;
use crate::place::{Place, Target};
use crate::{Request, connect};

/// As the first of the mirrors announces it that has the object; its answer is broken off there. Whether that is so, only the digest of
/// what comes can tell.
pub fn announced_size(request: &Request<'_>) -> Result<u64, FetchError> {
    let network = &request.network;
    let outbound = connect::Outbound::new(network.authorities, network.proxy)?;
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().map_err(FetchError::Runtime)?;
    let rounds = Rounds::new(request.what, &request.patience, request.random, request.tell);
    let urls: Vec<&str> = request.urls.iter().map(String::as_str).collect();
    let attempt = async |_: usize, place: &Place| {
        let target = match place {
            Place::Web(location) => Target::web(location),
            Place::Bucket(object) => Target::object(object, network.s3.as_ref())?,
            Place::File(path) => {
                let disk = network.disk.ok_or(Reason::Url("local files cannot be fetched here"))?;
                let found = disk.stat(path).map_err(|error| Reason::File(chain(&error)))?;
                let found = found.ok_or_else(|| Reason::File("there is no such file".to_owned()))?;
                return within(found.size, request.limit).map_err(Into::into);
            }
        };
        let opened = get(&target, &HeaderMap::new(), &outbound, &request.patience).await?;
        if opened.answer.status() != StatusCode::OK {
            return Err(refusal(opened.answer, target.dialect, request.patience.stall).await.into());
        }
        refuse_encoded(opened.answer.headers())?;
        let size = announced(opened.answer.headers());
        let size = size.ok_or_else(|| Reason::Mismatch("it does not say how large the object is".to_owned()))?;
        within(size, request.limit).map_err(Into::into)
    };
    let outcome = runtime.block_on(rounds.ask(&urls, attempt));
    // A name that is still being looked up must not hold up the answer.
    runtime.shutdown_background();
    outcome
}

fn within(size: u64, limit: usize) -> Result<u64, Reason> {
    if size > limit as u64 { Err(Reason::TooLarge { limit }) } else { Ok(size) }
}
