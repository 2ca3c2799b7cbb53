//! Files as packets, and packets as the keys, user IDs and signatures that belong together. Nothing is believed here.

use pgp::packet::{
    Packet, PacketHeader, PublicKey, PublicSubkey, SecretKey, SecretSubkey, Signature, SignatureType, UserId,
};
use pgp::types::{PacketLength, Tag};

/// A packet, or what kind of packet could not be read and why.
pub(super) enum Piece {
    Packet(Box<Packet>),
    Unreadable { tag: Tag, reason: String },
}

/// All packets of a file. Fails where it is cut off: from there on nothing could be told apart.
pub(super) fn read_packets(mut rest: &[u8]) -> Result<Vec<Piece>, String> {
    let mut pieces = Vec::new();
    while !rest.is_empty() {
        let number = pieces.len() + 1;
        let header = PacketHeader::try_from_reader(&mut rest)
            .map_err(|error| format!("packet {number} is no packet, or cut off ({error})"))?;
        // Other lengths are for data that is written before its end is known; keys and signatures are not.
        let PacketLength::Fixed(length) = header.packet_length() else {
            return Err(format!("packet {number} does not say its length"));
        };
        let length = usize::try_from(length).unwrap_or(usize::MAX);
        let (body, after) = rest
            .split_at_checked(length)
            .ok_or_else(|| format!("packet {number} is cut off: it has {length} bytes"))?;
        rest = after;
        pieces.push(match Packet::from_reader(header, body) {
            Ok(packet) => Piece::Packet(Box::new(packet)),
            Err(error) => Piece::Unreadable { tag: header.tag(), reason: shown(&error) },
        });
    }
    Ok(pieces)
}

/// What the library says may quote what it has read.
pub(super) fn shown(error: &pgp::errors::Error) -> String {
    error.to_string().chars().take(120).flat_map(char::escape_default).collect()
}

/// A primary key with all that stands between it and the next one.
pub(super) struct Certificate {
    pub(super) primary: PublicKey,
    /// Those over the primary key alone, and all revocations of it and its subkeys.
    pub(super) direct: Vec<Signature>,
    pub(super) users: Vec<(UserId, Vec<Signature>)>,
    pub(super) subkeys: Vec<(PublicSubkey, Vec<Signature>)>,
    /// The first part of it that could not be read.
    pub(super) unreadable: Option<String>,
}

pub(super) enum SecretPart {
    Primary(SecretKey),
    Subkey(SecretSubkey),
}

#[derive(Default)]
pub(super) struct Sorted {
    pub(super) certificates: Vec<Certificate>,
    pub(super) secrets: Vec<SecretPart>,
    /// Those of primary keys, wherever they stand: one counts also where somebody has only appended it to the file.
    pub(super) revocations: Vec<Signature>,
    /// Primary keys that could not be read, by their place among the keys of the file.
    pub(super) lost: Vec<(usize, String)>,
}

/// What a signature is over: that which was read last.
enum Subject {
    Nothing,
    Primary,
    User,
    Subkey,
    Ignored,
}

/// Puts together what belongs together.
pub(super) fn sort_packets(pieces: Vec<Piece>) -> Sorted {
    let mut sorted = Sorted::default();
    let mut subject = Subject::Nothing;
    for piece in pieces {
        match piece {
            Piece::Packet(packet) => sorted.add(*packet, &mut subject),
            Piece::Unreadable { tag: Tag::PublicKey | Tag::SecretKey, reason } => {
                let place = sorted.certificates.len() + sorted.lost.len() + 1;
                sorted.lost.push((place, reason));
                subject = Subject::Nothing;
            }
            Piece::Unreadable { reason, .. } => {
                if let (false, Some(last)) = (matches!(subject, Subject::Nothing), sorted.certificates.last_mut()) {
                    last.unreadable.get_or_insert(reason);
                    subject = Subject::Ignored;
                }
            }
        }
    }
    sorted
}

impl Sorted {
    fn add(&mut self, packet: Packet, subject: &mut Subject) {
        match packet {
            Packet::PublicKey(key) => self.start(key, subject),
            Packet::SecretKey(key) => {
                self.start(key.public_key().clone(), subject);
                self.secrets.push(SecretPart::Primary(key));
            }
            Packet::Signature(signature) => self.add_signature(signature, subject),
            // What follows a primary key that could not be read belongs to nobody.
            _ if matches!(subject, Subject::Nothing) => {}
            Packet::PublicSubkey(key) => self.add_subkey(key, subject),
            Packet::SecretSubkey(key) => {
                self.add_subkey(key.public_key().clone(), subject);
                self.secrets.push(SecretPart::Subkey(key));
            }
            Packet::UserId(id) => {
                *subject = Subject::User;
                self.last(|certificate| certificate.users.push((id, Vec::new())));
            }
            // gpg's own notes between the packets of its keyrings.
            Packet::Trust(_) | Packet::Marker(_) | Packet::Padding(_) => {}
            _ => *subject = Subject::Ignored,
        }
    }

    fn start(&mut self, primary: PublicKey, subject: &mut Subject) {
        *subject = Subject::Primary;
        let (direct, users, subkeys) = (Vec::new(), Vec::new(), Vec::new());
        self.certificates.push(Certificate { primary, direct, users, subkeys, unreadable: None });
    }

    fn add_subkey(&mut self, key: PublicSubkey, subject: &mut Subject) {
        *subject = Subject::Subkey;
        self.last(|certificate| certificate.subkeys.push((key, Vec::new())));
    }

    fn add_signature(&mut self, signature: Signature, subject: &Subject) {
        let kind = signature.typ();
        if kind == Some(SignatureType::KeyRevocation) {
            self.revocations.push(signature.clone());
        }
        let revokes = matches!(kind, Some(SignatureType::KeyRevocation | SignatureType::SubkeyRevocation));
        self.last(|certificate| {
            let over = match subject {
                Subject::Nothing => None,
                Subject::Primary => Some(&mut certificate.direct),
                _ if revokes => Some(&mut certificate.direct),
                Subject::User => certificate.users.last_mut().map(|(_, signatures)| signatures),
                Subject::Subkey => certificate.subkeys.last_mut().map(|(_, signatures)| signatures),
                Subject::Ignored => None,
            };
            if let Some(signatures) = over {
                signatures.push(signature);
            }
        });
    }

    fn last(&mut self, change: impl FnOnce(&mut Certificate)) {
        if let Some(certificate) = self.certificates.last_mut() {
            change(certificate);
        }
    }
}
