//! How an answer is sent: as it should be, or as the world sometimes does it.

use std::io::{self, Read, Write};
use std::net::TcpStream;
use std::time::Duration;

use super::answers::Answer;

/// How one request is answered.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Manner {
    Faithful,
    /// Right, and then the connection is closed, without a word about it.
    Close,
    /// Never a word, and the connection stays.
    Silence,
    /// Headers and half of the body, then nothing more.
    Stall,
    /// One byte at a time, each soon enough not to look like a stall.
    Trickle,
    /// The connection ends in the middle of the body.
    Truncate,
    /// A body without an end.
    Endless,
    /// To an address that would answer anything.
    Redirect(String),
    /// Somebody's login page, with status 200.
    Page,
    /// An error with its page.
    Status(u16),
}

const TRICKLE: Duration = Duration::from_millis(100);
const PAGE: &[u8] = b"<!DOCTYPE html><html><body>Please log in to the network of this hotel.</body></html>\n";

/// Whether the connection can be used for another request.
pub(crate) fn send(stream: &TcpStream, manner: &Manner, answer: &Answer) -> io::Result<bool> {
    let mut out = stream;
    match manner {
        Manner::Faithful => respond(out, answer.status, &answer.headers, &answer.body).map(|()| true),
        Manner::Close => respond(out, answer.status, &answer.headers, &answer.body).map(|()| false),
        Manner::Silence => hold(stream),
        Manner::Stall => {
            head(out, answer.status, &answer.headers, answer.body.len())?;
            out.write_all(&answer.body[..answer.body.len() / 2])?;
            hold(stream)
        }
        Manner::Trickle => {
            head(out, answer.status, &answer.headers, answer.body.len())?;
            for byte in &answer.body {
                std::thread::sleep(TRICKLE);
                out.write_all(&[*byte])?;
            }
            Ok(true)
        }
        Manner::Truncate => {
            head(out, answer.status, &answer.headers, answer.body.len())?;
            out.write_all(&answer.body[..answer.body.len() / 2])?;
            Ok(false)
        }
        Manner::Endless => {
            write!(out, "HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")?;
            loop {
                write!(out, "1000\r\n")?;
                out.write_all(&[b'x'; 0x1000])?;
                write!(out, "\r\n")?;
            }
        }
        Manner::Redirect(to) => {
            write!(out, "HTTP/1.1 302 Found\r\nLocation: {to}\r\nContent-Length: 0\r\n\r\n")?;
            Ok(true)
        }
        Manner::Page => respond(out, 200, &[("Content-Type", "text/html")], PAGE).map(|()| true),
        Manner::Status(status) => respond(out, *status, &[("Content-Type", "text/html")], PAGE).map(|()| true),
    }
}

fn respond(mut out: &TcpStream, status: u16, headers: &[(&str, &str)], body: &[u8]) -> io::Result<()> {
    head(out, status, headers, body.len())?;
    out.write_all(body)
}

/// In one write, as a packet of its own.
fn head(mut out: &TcpStream, status: u16, headers: &[(&str, &str)], length: usize) -> io::Result<()> {
    let mut text = format!("HTTP/1.1 {status} {}\r\nServer: lab\r\n", if status == 200 { "OK" } else { "No" });
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("Content-Length: {length}\r\n\r\n"));
    out.write_all(text.as_bytes())
}

/// Until the other side has had enough.
fn hold(mut stream: &TcpStream) -> io::Result<bool> {
    while matches!(stream.read(&mut [0; 64]), Ok(1..)) {}
    Ok(false)
}
