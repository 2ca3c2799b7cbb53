//! From a location to a stream: name, TCP, TLS, and what a proxy needs. The one place where connections are made.

use std::cell::OnceCell;
use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use hyper::StatusCode;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{CertificateError, ClientConfig, RootCertStore};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;

use crate::error::{FetchError, Reason};
use crate::location::Location;
use crate::proxy::Proxy;

/// A proxy says in a few lines whether it opened a tunnel.
const TUNNEL_ANSWER_LIMIT: usize = 16 * 1024;

/// How we came to a location decides where it may lead.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Arrival {
    /// Somebody who may configure this machine named it.
    Named,
    /// A mirror named it. No mirror may send us where a metadata service lives, nor to a service of this machine itself.
    Redirected,
    /// The same, on a way that began at this machine itself: whoever configured it trusts what answers here.
    RedirectedHere,
}

impl Arrival {
    /// How we come to where the answer of `peer` sends us.
    pub(crate) fn redirected_by(self, peer: Option<IpAddr>) -> Self {
        match self {
            Self::Named if peer.is_some_and(|peer| is_this_machine(peer.to_canonical())) => Self::RedirectedHere,
            Self::Named => Self::Redirected,
            later => later,
        }
    }

    /// What kind of address this is, if it is one that we must not be sent to.
    fn refused(self, address: IpAddr) -> Option<&'static str> {
        let address = address.to_canonical();
        match self {
            Self::Named => None,
            Self::Redirected if is_this_machine(address) => Some("an address of this machine itself"),
            Self::Redirected | Self::RedirectedHere if is_link_local(address) => Some("a link-local address"),
            Self::Redirected | Self::RedirectedHere => {
                is_metadata_service(address).then_some("the address of a metadata service")
            }
        }
    }
}

pub(crate) trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

/// Whose certificates count.
struct Trust {
    given: Vec<CertificateDer<'static>>,
    /// The system's authorities are read and parsed only if somebody asks for https.
    connector: OnceCell<TlsConnector>,
}

impl Trust {
    fn new(authorities: Option<&str>) -> Result<Self, FetchError> {
        let unusable = |problem: String| FetchError::Authorities { problem };
        let given = CertificateDer::pem_slice_iter(authorities.unwrap_or_default().as_bytes())
            .collect::<Result<Vec<_>, _>>()
            .map_err(|error| unusable(error.to_string()))?;
        if authorities.is_some() && given.is_empty() {
            return Err(unusable("there is no certificate".to_owned()));
        }
        let mut known = RootCertStore::empty();
        for certificate in &given {
            known.add(certificate.clone()).map_err(|error| unusable(error.to_string()))?;
        }
        Ok(Self { given, connector: OnceCell::new() })
    }

    fn connector(&self) -> Result<&TlsConnector, Reason> {
        if let Some(connector) = self.connector.get() {
            return Ok(connector);
        }
        let mut roots = RootCertStore::empty();
        roots.add_parsable_certificates(rustls_native_certs::load_native_certs().certs);
        roots.add_parsable_certificates(self.given.iter().cloned());
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let config = ClientConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .map_err(|error| Reason::Exchange(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(self.connector.get_or_init(|| TlsConnector::from(Arc::new(config))))
    }
}

/// Whom to trust, and what is between this machine and the rest of the world.
pub(crate) struct Outbound<'a> {
    trust: Trust,
    proxy: Option<&'a Proxy>,
}

impl<'a> Outbound<'a> {
    pub(crate) fn new(authorities: Option<&str>, proxy: Option<&'a Proxy>) -> Result<Self, FetchError> {
        Ok(Self { trust: Trust::new(authorities)?, proxy })
    }
}

/// A stream, and who is at its other end.
pub(crate) struct Connected<'a> {
    pub(crate) stream: Box<dyn Stream>,
    /// `None`: a proxy knows.
    pub(crate) peer: Option<IpAddr>,
    /// A proxy that reads the questions itself, and must be told whom they are for.
    pub(crate) told: Option<&'a Proxy>,
}

/// What is left of the time for one connection.
struct Remaining {
    started: Instant,
    patience: Duration,
}

impl Remaining {
    fn left(&self) -> Duration {
        self.patience.saturating_sub(self.started.elapsed())
    }

    async fn wait<T>(&self, waiting_for: &'static str, what: impl Future<Output = T>) -> Result<T, Reason> {
        timeout(self.left(), what).await.map_err(|_| self.late(waiting_for))
    }

    fn late(&self, waiting_for: &'static str) -> Reason {
        Reason::TimedOut { waiting_for, after: self.patience }
    }
}

pub(crate) async fn connect<'a>(
    location: &Location,
    arrival: Arrival,
    outbound: &Outbound<'a>,
    patience: Duration,
) -> Result<Connected<'a>, Reason> {
    let remaining = Remaining { started: Instant::now(), patience };
    let Some(proxy) = outbound.proxy.filter(|proxy| proxy.is_for(location)) else {
        let (stream, peer) = reach(location, arrival, &outbound.trust, &remaining).await?;
        return Ok(Connected { stream, peer: Some(peer), told: None });
    };
    // A name is the proxy's to look up; an address can be judged here.
    if let Some(kind) = location.host().parse().ok().and_then(|address| arrival.refused(address)) {
        return Err(Reason::Redirect(format!("{location} is {kind}")));
    }
    let by_proxy = |reason| Reason::Proxy { proxy: proxy.location().to_string(), reason: Box::new(reason) };
    let (stream, _) = reach(proxy.location(), Arrival::Named, &outbound.trust, &remaining).await.map_err(by_proxy)?;
    if !location.is_https() {
        return Ok(Connected { stream, peer: None, told: Some(proxy) });
    }
    let tunnel = remaining.wait("a tunnel", tunnel(stream, location, proxy)).await;
    let tunnel = tunnel.and_then(|opened| opened).map_err(by_proxy)?;
    let stream = encrypt(tunnel, location, &outbound.trust, &remaining).await?;
    Ok(Connected { stream, peer: None, told: None })
}

/// Straight to a location.
async fn reach(
    location: &Location,
    arrival: Arrival,
    trust: &Trust,
    remaining: &Remaining,
) -> Result<(Box<dyn Stream>, IpAddr), Reason> {
    let looked_up = tokio::net::lookup_host((location.host(), location.port()));
    let addresses: Vec<SocketAddr> = remaining
        .wait("the address of its name", looked_up)
        .await?
        .map_err(|error| Reason::Lookup(error.to_string()))?
        .collect();
    // What the name was resolved to is what is connected to: it is not looked up again.
    if let Some(kind) = addresses.iter().find_map(|address| arrival.refused(address.ip())) {
        return Err(Reason::Redirect(format!("{location} is {kind}")));
    }
    let (plain, peer) = dial(&addresses, remaining).await?;
    if !location.is_https() {
        return Ok((Box::new(plain), peer));
    }
    Ok((encrypt(Box::new(plain), location, trust, remaining).await?, peer))
}

async fn encrypt(
    plain: Box<dyn Stream>,
    location: &Location,
    trust: &Trust,
    remaining: &Remaining,
) -> Result<Box<dyn Stream>, Reason> {
    let name = ServerName::try_from(location.host().to_owned())
        .map_err(|_| Reason::Url("no certificate can be for this host"))?;
    let handshake = trust.connector()?.connect(name, plain);
    match remaining.wait("the TLS handshake", handshake).await? {
        Err(error) => Err(handshake_failure(&error)),
        Ok(encrypted) => Ok(Box::new(encrypted)),
    }
}

/// Asks a proxy for a way through, after which it reads nothing more of what is said.
async fn tunnel(mut stream: Box<dyn Stream>, to: &Location, proxy: &Proxy) -> Result<Box<dyn Stream>, Reason> {
    let broken = |error: std::io::Error| Reason::Exchange(error.to_string());
    let host = if to.host().contains(':') { format!("[{}]", to.host()) } else { to.host().to_owned() };
    let target = format!("{host}:{}", to.port());
    let mut question = format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n").into_bytes();
    if let Some(authorization) = proxy.authorization() {
        question.extend([b"Proxy-Authorization: ", authorization.as_bytes(), b"\r\n"].concat());
    }
    question.extend(b"\r\n");
    stream.write_all(&question).await.map_err(broken)?;
    stream.flush().await.map_err(broken)?;
    // One byte at a time: what comes after the empty line is for somebody else.
    let mut answer = Vec::new();
    while !answer.ends_with(b"\r\n\r\n") {
        if answer.len() > TUNNEL_ANSWER_LIMIT {
            return Err(Reason::Exchange("its answer has no end".to_owned()));
        }
        answer.push(stream.read_u8().await.map_err(broken)?);
    }
    let status = answer.split(|byte| *byte == b' ').nth(1).and_then(|code| StatusCode::from_bytes(code).ok());
    match status {
        Some(status) if status.is_success() => Ok(stream),
        Some(status) => Err(Reason::status(status)),
        None => Err(Reason::Exchange("its answer is not HTTP".to_owned())),
    }
}

/// The first address that answers; one that swallows packets leaves the others their share of the time.
async fn dial(addresses: &[SocketAddr], remaining: &Remaining) -> Result<(TcpStream, IpAddr), Reason> {
    let mut trouble = Reason::Lookup("the name has no address".to_owned());
    let mut still = u32::try_from(addresses.len()).unwrap_or(u32::MAX);
    for address in addresses {
        let share = remaining.left() / still;
        still -= 1;
        trouble = match timeout(share, TcpStream::connect(address)).await {
            Ok(Ok(stream)) => return Ok((stream, address.ip())),
            Ok(Err(error)) => Reason::Connect(error.to_string()),
            Err(_) => remaining.late("a connection"),
        };
    }
    Err(trouble)
}

fn handshake_failure(error: &std::io::Error) -> Reason {
    let refused = error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>());
    let Some(rustls::Error::InvalidCertificate(why)) = refused else {
        return Reason::Exchange(format!("TLS: {error}"));
    };
    let problem = match why {
        // A bad signature: the authority was made anew under the same name.
        CertificateError::UnknownIssuer | CertificateError::BadSignature => {
            "it is signed by an authority that is not trusted here".to_owned()
        }
        other => other.to_string(),
    };
    let by_clock = matches!(
        why,
        CertificateError::Expired
            | CertificateError::ExpiredContext { .. }
            | CertificateError::NotValidYet
            | CertificateError::NotValidYetContext { .. }
    );
    Reason::Certificate { problem, by_clock }
}

pub(crate) fn is_link_local(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(four) => four.is_link_local(),
        IpAddr::V6(six) => six.is_unicast_link_local(),
    }
}

/// To connect to the unspecified address is to connect to oneself.
pub(crate) fn is_this_machine(address: IpAddr) -> bool {
    address.is_loopback() || address.is_unspecified()
}

/// Those that are not link-local: AWS reserves `fd00:ec2::/32`, GCE `fd20:ce::/32`; the last one is Azure's.
pub(crate) fn is_metadata_service(address: IpAddr) -> bool {
    const RESERVED: [[u16; 2]; 2] = [[0xfd00, 0x0ec2], [0xfd20, 0x00ce]];
    match address {
        IpAddr::V4(four) => four == Ipv4Addr::new(168, 63, 129, 16),
        IpAddr::V6(six) => RESERVED.iter().any(|prefix| six.segments().starts_with(prefix)),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_mirror_may_send_us_to_a_metadata_service_or_to_this_machine() {
        let refused = |arrival: Arrival, address: &str| arrival.refused(address.parse().unwrap()).unwrap_or_default();
        for (address, kind) in [
            ("169.254.169.254", "link-local"),
            ("169.254.0.1", "link-local"),
            ("fe80::1", "link-local"),
            ("febf::1", "link-local"),
            ("::ffff:169.254.169.254", "link-local"),
            ("fd00:ec2::254", "metadata"),
            ("fd00:ec2:ffff::1", "metadata"),
            ("fd20:ce::254", "metadata"),
            ("168.63.129.16", "metadata"),
            ("::ffff:168.63.129.16", "metadata"),
        ] {
            for arrival in [Arrival::Redirected, Arrival::RedirectedHere] {
                assert!(refused(arrival, address).contains(kind), "{address}");
            }
            assert_eq!(refused(Arrival::Named, address), "", "{address}");
        }
        for address in ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1", "0.0.0.0", "::", "::ffff:0.0.0.0"] {
            assert!(refused(Arrival::Redirected, address).contains("this machine"), "{address}");
            assert_eq!(refused(Arrival::RedirectedHere, address), "", "{address}");
        }
        for address in ["169.255.0.1", "10.0.0.1", "fd00::1", "fd00:ec3::1", "2001:db8::1", "168.63.129.17"] {
            assert_eq!(refused(Arrival::Redirected, address), "", "{address}");
        }
    }

    #[test]
    fn only_a_way_that_began_at_this_machine_may_lead_back_to_it() {
        let first = |peer: &str| Arrival::Named.redirected_by(peer.parse().ok());
        for here in ["127.0.0.1", "::1", "::ffff:127.0.0.1", "0.0.0.0"] {
            assert_eq!(first(here), Arrival::RedirectedHere, "{here}");
        }
        assert_eq!(first("10.0.0.1"), Arrival::Redirected);
        // Not by a detour either: what counts is where the way began.
        assert_eq!(first("10.0.0.1").redirected_by("127.0.0.1".parse().ok()), Arrival::Redirected);
        // Nor by a proxy that happens to run here.
        assert_eq!(Arrival::Named.redirected_by(None), Arrival::Redirected);
    }

    #[test]
    fn a_name_is_judged_by_what_it_resolves_to() {
        let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
        let port = listener.local_addr().unwrap().port();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        let outbound = Outbound::new(None, None).unwrap();
        for host in ["localhost", "127.0.0.1", "0.0.0.0", "[::ffff:127.0.0.1]"] {
            let location = Location::parse(&format!("http://{host}:{port}/x")).unwrap();
            let arrive = |arrival| {
                let connected = connect(&location, arrival, &outbound, Duration::from_secs(20));
                runtime.block_on(connected).map(|connected| connected.peer)
            };
            let refused = arrive(Arrival::Redirected).unwrap_err();
            assert!(matches!(&refused, Reason::Redirect(why) if why.contains("this machine")), "{host}: {refused:?}");
            let peer = arrive(Arrival::Named).unwrap_or_else(|reason| panic!("{host}: {reason:?}"));
            assert!(Arrival::Named.redirected_by(peer) == Arrival::RedirectedHere, "{host}: {peer:?}");
            assert!(arrive(Arrival::RedirectedHere).is_ok(), "{host}");
        }
    }

    #[test]
    fn what_is_no_certificate_is_no_authority() {
        for pem in ["", "nonsense", "-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"] {
            let error = Trust::new(Some(pem)).err().map(|error| error.to_string()).unwrap_or_default();
            assert!(error.contains("PEM"), "{pem:?}: {error}");
        }
        assert!(Trust::new(None).is_ok());
    }
}
