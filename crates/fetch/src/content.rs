//! What is sent with a question: nothing, a few bytes, or a file that is read while it is sent.

use std::io::Read;
use std::pin::Pin;
use std::task::{Context, Poll};

use hyper::body::{Body, Bytes, Frame, SizeHint};

/// What is read from a file at once.
const CHUNK: usize = 64 * 1024;

pub(crate) struct Content {
    left: u64,
    from: From,
}

enum From {
    Memory(Bytes),
    /// Read on the thread that sends, which has nothing else to do.
    Reader(Box<dyn Read + Send>),
}

impl Content {
    pub(crate) fn empty() -> Self {
        Self::bytes(Bytes::new())
    }

    pub(crate) fn bytes(bytes: Bytes) -> Self {
        Self { left: bytes.len() as u64, from: From::Memory(bytes) }
    }

    pub(crate) fn read(reader: Box<dyn Read + Send>, size: u64) -> Self {
        Self { left: size, from: From::Reader(reader) }
    }
}

impl Body for Content {
    type Data = Bytes;
    type Error = std::io::Error;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, std::io::Error>>> {
        let content = self.get_mut();
        if content.left == 0 {
            return Poll::Ready(None);
        }
        let next = match &mut content.from {
            From::Memory(bytes) => std::mem::take(bytes),
            From::Reader(reader) => {
                let mut chunk = vec![0; usize::try_from(content.left).unwrap_or(CHUNK).min(CHUNK)];
                match reader.read(&mut chunk) {
                    Ok(0) => return Poll::Ready(Some(Err(std::io::ErrorKind::UnexpectedEof.into()))),
                    Ok(read) => chunk.truncate(read),
                    Err(error) => return Poll::Ready(Some(Err(error))),
                }
                Bytes::from(chunk)
            }
        };
        content.left -= next.len() as u64;
        Poll::Ready(Some(Ok(Frame::data(next))))
    }

    fn is_end_stream(&self) -> bool {
        self.left == 0
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left)
    }
}
