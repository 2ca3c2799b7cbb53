//! A web server in the network of a lab: what a download site, a mirror or a store is to a node.
//!
//! In: a folder of files, which may change while it runs. Out: those files by GET, from any byte on, and the list of what was asked.

use std::fs::File;
use std::io::{self, BufReader, Read, Seek, SeekFrom, Write};
use std::path::{Component, Path, PathBuf};
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, Result};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ServerConfig, ServerConnection, StreamOwned};

use crate::command::append;
use crate::identities::Identities;
use crate::lab::{Lab, Lifetime};
use crate::listener::{Connection, Listening, Request, read_request};
use crate::network::{HUB, HUB_MEMBER, listen_inside};
use crate::node_root::write_file;
use crate::state::StateFile;
use crate::wait::wait_until;

/// A process that has only to listen; more when many of them start at once.
const START_DEADLINE: Duration = Duration::from_secs(30);

/// What is spoken below HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Transport {
    Plain,
    /// By a certificate of the lab's authority.
    Tls,
}

/// Listens at a port of the hub until it is dropped; in a lab that is up until `lab down`, until then.
pub struct WebServer {
    site: Site,
    url: String,
    /// None where a process of its own listens.
    _listening: Option<Listening>,
}

impl WebServer {
    pub(crate) fn start(lab: &Lab, transport: Transport) -> Result<Self> {
        let site = Site::create(lab.folder())?;
        match lab.lifetime() {
            Lifetime::Owned => Self::listen(lab.name(), site, transport),
            Lifetime::Detached { program } => {
                let mut command = Command::new(program);
                command.args(["keep-site", "--name", lab.name(), &site.name]);
                command.args(["--transport", if transport == Transport::Tls { "tls" } else { "plain" }]);
                lab.spawn_keeper(&site.name, &command)?;
                let url = wait_until(&format!("{} to listen", site.name), START_DEADLINE, || {
                    std::fs::read_to_string(site.url_file()).context("it has not said where").map(Some)
                })
                .with_context(|| lab.log(&site.name).unwrap_or_default())?;
                Ok(Self { site, url, _listening: None })
            }
        }
    }

    fn listen(lab: &str, site: Site, transport: Transport) -> Result<Self> {
        let listener = listen_inside(lab, HUB_MEMBER, (HUB.v4, 0).into())?;
        let served = site.clone();
        let listening = match transport {
            Transport::Plain => Listening::start(listener, move |connection| converse(connection, &served))?,
            Transport::Tls => {
                let config = Arc::new(tls_config(&Identities::in_lab(StateFile::of(lab).folder()))?);
                Listening::start(listener, move |connection| converse_with_tls(connection, &config, &served))?
            }
        };
        let url = listening.url_with(if transport == Transport::Tls { "https" } else { "http" });
        Ok(Self { site, url, _listening: Some(listening) })
    }

    /// `http://10.99.0.1:PORT`, as nodes reach it; with TLS `https`.
    pub fn url(&self) -> String {
        self.url.clone()
    }

    /// What lies here is served, by its path.
    pub fn folder(&self) -> PathBuf {
        self.site.files()
    }

    /// From now on the path, which starts with a slash, has these bytes.
    pub fn put(&self, path: &str, bytes: impl AsRef<[u8]>) -> Result<()> {
        let place = self.site.place(path).with_context(|| format!("'{path}' is no path of a site"))?;
        // Beside its place first: whoever asks meanwhile gets the old bytes or the new ones.
        let fresh = place.with_extension("fresh");
        write_file(&fresh, bytes)?;
        std::fs::rename(&fresh, &place).with_context(|| format!("renaming {} into place", fresh.display()))
    }

    /// From the next request for this path on nobody is answered any more, as if the machine had gone down: whoever asked for it
    /// gets a part of it, everybody else nothing, until [`WebServer::come_back`].
    pub fn go_down_at(&self, path: &str) -> Result<()> {
        write_file(&self.site.outage(), path)
    }

    /// Nobody is answered any more, until [`WebServer::come_back`].
    pub fn go_down(&self) -> Result<()> {
        write_file(&self.site.down(), "")
    }

    pub fn come_back(&self) -> Result<()> {
        for file in [self.site.outage(), self.site.down()] {
            match std::fs::remove_file(&file) {
                Err(error) if error.kind() != io::ErrorKind::NotFound => {
                    return Err(error).with_context(|| format!("removing {}", file.display()));
                }
                _ => {}
            }
        }
        Ok(())
    }

    /// The paths that were asked for, in that order, whether or not they were there; with the range of bytes, if there was one.
    pub fn requests(&self) -> Vec<String> {
        let log = std::fs::read_to_string(self.site.log()).unwrap_or_default();
        log.lines().map(str::to_owned).collect()
    }
}

/// Serves a site of a lab until that is down: the background process of `lab` for [`WebServer::start`].
pub fn keep_site(lab: &str, name: &str, transport: Transport) -> Result<()> {
    let site = Site { folder: sites(StateFile::of(lab).folder()).join(name), name: name.to_owned() };
    let server = WebServer::listen(lab, site, transport)?;
    let (fresh, place) = (server.site.folder.join("url.fresh"), server.site.url_file());
    write_file(&fresh, &server.url)?;
    std::fs::rename(&fresh, &place).context("saying where it listens")?;
    loop {
        std::thread::park();
    }
}

fn sites(lab: &Path) -> PathBuf {
    lab.join("sites")
}

/// The folder of a server below that of its lab.
#[derive(Clone)]
struct Site {
    name: String,
    folder: PathBuf,
}

impl Site {
    fn create(lab: &Path) -> Result<Self> {
        let all = sites(lab);
        std::fs::create_dir_all(&all).with_context(|| format!("creating {}", all.display()))?;
        for number in 1_u32.. {
            let name = format!("site-{number}");
            let site = Self { folder: all.join(&name), name };
            match std::fs::create_dir(&site.folder) {
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                made => {
                    made.with_context(|| format!("creating {}", site.folder.display()))?;
                    std::fs::create_dir(site.files()).context("creating the folder of files")?;
                    return Ok(site);
                }
            }
        }
        anyhow::bail!("the lab has no number left for another site")
    }

    fn files(&self) -> PathBuf {
        self.folder.join("files")
    }

    fn log(&self) -> PathBuf {
        self.folder.join("requests")
    }

    fn url_file(&self) -> PathBuf {
        self.folder.join("url")
    }

    /// Has the path at which the server goes down.
    fn outage(&self) -> PathBuf {
        self.folder.join("outage")
    }

    /// Is there while it is down.
    fn down(&self) -> PathBuf {
        self.folder.join("down")
    }

    /// Whether this is where it goes down.
    fn ends_at(&self, path: &str) -> bool {
        std::fs::read_to_string(self.outage()).is_ok_and(|ending| decoded(path).as_deref() == Some(&ending))
    }

    /// `None`: a path that would leave the folder.
    fn place(&self, path: &str) -> Option<PathBuf> {
        let path = decoded(path.split('?').next()?)?;
        let relative = Path::new(path.strip_prefix('/')?);
        let is_below = relative.components().all(|component| matches!(component, Component::Normal(_)));
        (is_below && relative.components().next().is_some()).then(|| self.files().join(relative))
    }
}

fn converse(connection: &mut Connection<'_>, site: &Site) -> io::Result<()> {
    match connection.next_request()? {
        Some(request) => answer(&request, connection.stream, site),
        None => Ok(()),
    }
}

fn converse_with_tls(connection: &mut Connection<'_>, config: &Arc<ServerConfig>, site: &Site) -> io::Result<()> {
    let session = ServerConnection::new(Arc::clone(config)).map_err(io::Error::other)?;
    let mut reader = BufReader::new(StreamOwned::new(session, connection.stream));
    let Some(request) = read_request(&mut reader)? else { return Ok(()) };
    let mut stream = reader.into_inner();
    answer(&request, &mut stream, site)?;
    stream.conn.send_close_notify();
    stream.flush()
}

/// The API server's own: it is for all addresses of the hub.
fn tls_config(identities: &Identities) -> Result<ServerConfig> {
    let chain = CertificateDer::pem_file_iter(identities.path("apiserver.crt")).context("reading the certificate")?;
    let chain = chain.collect::<Result<Vec<_>, _>>().context("reading the certificate")?;
    let key = PrivateKeyDer::from_pem_file(identities.path("apiserver.key")).context("reading the key")?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    builder.with_no_client_auth().with_single_cert(chain, key).context("using the certificate")
}

fn answer(request: &Request, stream: impl Write, site: &Site) -> io::Result<()> {
    if request.verb != "GET" {
        return respond(stream, "405 Method Not Allowed", "", 0, &b""[..]);
    }
    let range = request.header("range");
    let line = range.map_or_else(|| request.path.clone(), |range| format!("{} {range}", request.path));
    writeln!(append(&site.log()).map_err(io::Error::other)?, "{line}")?;
    if site.down().exists() {
        return Ok(());
    }
    let found = site.place(&request.path).filter(|place| place.is_file()).map(File::open);
    let Some(mut file) = found.transpose()? else {
        let body = b"there is no such file\n";
        return respond(stream, "404 Not Found", "", body.len() as u64, &body[..]);
    };
    let size = file.metadata()?.len();
    if site.ends_at(&request.path) {
        File::create(site.down())?;
        return respond_in_part(stream, size, file);
    }
    match range.and_then(first_byte) {
        None => respond(stream, "200 OK", "", size, file),
        Some(first) if first >= size => {
            let whole = format!("Content-Range: bytes */{size}\r\n");
            respond(stream, "416 Range Not Satisfiable", &whole, 0, &b""[..])
        }
        Some(first) => {
            file.seek(SeekFrom::Start(first))?;
            let part = format!("Content-Range: bytes {first}-{}/{size}\r\n", size - 1);
            respond(stream, "206 Partial Content", &part, size - first, file)
        }
    }
}

/// With `%2B` and the like as the characters that they stand for; `None` if they stand for none.
fn decoded(path: &str) -> Option<String> {
    let mut bytes = Vec::new();
    let mut parts = path.split('%');
    bytes.extend_from_slice(parts.next()?.as_bytes());
    for part in parts {
        bytes.push(u8::from_str_radix(part.get(..2)?, 16).ok()?);
        bytes.extend_from_slice(&part.as_bytes()[2..]);
    }
    String::from_utf8(bytes).ok()
}

/// The first half, after the promise of the whole.
fn respond_in_part(mut stream: impl Write, size: u64, body: impl Read) -> io::Result<()> {
    write!(stream, "HTTP/1.1 200 OK\r\nContent-Length: {size}\r\nConnection: close\r\n\r\n")?;
    io::copy(&mut body.take(size / 2), &mut stream).map(drop)
}

/// Of `bytes=N-`, the one form that resumes; a server may answer any other with the whole.
fn first_byte(range: &str) -> Option<u64> {
    range.strip_prefix("bytes=")?.strip_suffix('-')?.parse().ok()
}

fn respond(mut stream: impl Write, status: &str, headers: &str, size: u64, body: impl Read) -> io::Result<()> {
    let head = format!(
        "HTTP/1.1 {status}\r\nContent-Length: {size}\r\nAccept-Ranges: bytes\r\n{headers}Connection: close\r\n\r\n"
    );
    stream.write_all(head.as_bytes())?;
    // A file that grew meanwhile is no longer than was said.
    io::copy(&mut body.take(size), &mut stream).map(drop)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn answered(site: &Site, head: &str) -> String {
        let request = read_request(&mut head.as_bytes()).expect("readable").expect("a request");
        let mut said = Vec::new();
        answer(&request, &mut said, site).expect("answered");
        String::from_utf8(said).expect("text")
    }

    #[test]
    fn a_site_serves_its_folder_from_any_byte_on_and_nothing_beside_it() {
        let lab = tempfile::tempdir().expect("temporary folder");
        let site = Site::create(lab.path()).expect("a site");
        std::fs::write(site.files().join("a"), "0123456789").expect("written");
        std::fs::write(site.folder.join("secret"), "not served").expect("written");
        let server = WebServer { site: site.clone(), url: String::new(), _listening: None };

        let whole = answered(&site, "GET /a HTTP/1.1\r\n\r\n");
        assert!(whole.starts_with("HTTP/1.1 200 ") && whole.ends_with("\r\n\r\n0123456789"), "{whole}");
        let rest = answered(&site, "GET /a HTTP/1.1\r\nRange: bytes=7-\r\n\r\n");
        assert!(rest.starts_with("HTTP/1.1 206 ") && rest.contains("bytes 7-9/10"), "{rest}");
        assert!(rest.ends_with("\r\n\r\n789"), "{rest}");
        assert!(answered(&site, "GET /a HTTP/1.1\r\nRange: bytes=10-\r\n\r\n").starts_with("HTTP/1.1 416 "));
        assert!(answered(&site, "GET /%61 HTTP/1.1\r\n\r\n").ends_with("0123456789"), "as clients of packages ask");
        for outside in ["/../secret", "/%2e%2e/secret", "/%2", "/%zz", "/./../secret", "//secret", "/", "a"] {
            assert!(
                answered(&site, &format!("GET {outside} HTTP/1.1\r\n\r\n")).starts_with("HTTP/1.1 404 "),
                "{outside}"
            );
        }
        assert_eq!(server.requests()[..3], ["/a", "/a bytes=7-", "/a bytes=10-"]);
    }

    #[test]
    fn a_site_goes_down_in_the_middle_of_a_file_and_comes_back() {
        let lab = tempfile::tempdir().expect("temporary folder");
        let site = Site::create(lab.path()).expect("a site");
        let server = WebServer { site: site.clone(), url: String::new(), _listening: None };
        for path in ["/a", "/b"] {
            server.put(path, "0123456789").expect("written");
        }
        server.go_down_at("/b").expect("from now on");
        assert!(answered(&site, "GET /a HTTP/1.1\r\n\r\n").ends_with("\r\n\r\n0123456789"), "until then all is well");
        let half = answered(&site, "GET /b HTTP/1.1\r\n\r\n");
        assert!(half.contains("Content-Length: 10") && half.ends_with("\r\n\r\n01234"), "{half}");
        assert_eq!(answered(&site, "GET /a HTTP/1.1\r\n\r\n"), "", "it is down");
        server.come_back().expect("up again");
        assert!(answered(&site, "GET /b HTTP/1.1\r\n\r\n").ends_with("0123456789"));
    }

    #[test]
    fn two_sites_of_a_lab_have_folders_of_their_own() {
        let lab = tempfile::tempdir().expect("temporary folder");
        let [one, two] = [(); 2].map(|()| Site::create(lab.path()).expect("a site"));
        assert_ne!(one.folder, two.folder);
    }
}
