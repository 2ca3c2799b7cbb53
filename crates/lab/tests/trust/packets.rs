//! Keys as no gpg exports them: packets left out, and parts of a signature.

/// Tag and body of each packet.
pub(crate) fn split(bytes: &[u8]) -> Vec<(u8, Vec<u8>)> {
    let (mut packets, mut rest) = (Vec::new(), bytes);
    while let [header, after @ ..] = rest {
        assert!(header & 0xc0 == 0x80, "gpg writes keys and signatures in the old format: {header:#x}");
        let (length, after) = match header & 3 {
            0 => (usize::from(after[0]), &after[1..]),
            1 => (usize::from(u16::from_be_bytes([after[0], after[1]])), &after[2..]),
            _ => panic!("a packet of more than 64 KiB"),
        };
        packets.push((header >> 2 & 0xf, after[..length].to_vec()));
        rest = &after[length..];
    }
    packets
}

pub(crate) fn join(packets: &[(u8, Vec<u8>)]) -> Vec<u8> {
    let written = packets.iter().map(|(tag, body)| {
        let length = u16::try_from(body.len()).expect("less than 64 KiB").to_be_bytes();
        [&[0x80 | tag << 2 | 1], &length[..], body].concat()
    });
    written.collect::<Vec<_>>().concat()
}

pub(crate) const SIGNATURE: u8 = 2;
pub(crate) const SUBKEY_BINDING: u8 = 0x18;
const EMBEDDED_SIGNATURE: u8 = 32;

/// Whether it is a signature of that type.
pub(crate) fn is_signature((tag, body): &(u8, Vec<u8>), kind: u8) -> bool {
    *tag == SIGNATURE && body[0] == 4 && body[1] == kind
}

/// A signature without the signature within it, which gpg puts into the part that nobody signs.
pub(crate) fn without_embedded(body: &[u8]) -> Vec<u8> {
    let hashed = usize::from(u16::from_be_bytes([body[4], body[5]]));
    let (head, rest) = body.split_at(6 + hashed);
    let length = usize::from(u16::from_be_bytes([rest[0], rest[1]]));
    let (mut unhashed, tail) = rest[2..].split_at(length);
    let mut kept = Vec::new();
    while let [first, ..] = unhashed {
        let (size, prefix) = match first {
            0..192 => (usize::from(*first), 1),
            192..255 => (((usize::from(*first) - 192) << 8) + usize::from(unhashed[1]) + 192, 2),
            255 => panic!("a part of more than 8 KiB"),
        };
        let (part, after) = unhashed.split_at(prefix + size);
        if part[prefix] & 0x7f != EMBEDDED_SIGNATURE {
            kept.extend_from_slice(part);
        }
        unhashed = after;
    }
    assert!(kept.len() < length, "there was an embedded signature");
    let length = u16::try_from(kept.len()).expect("less than before").to_be_bytes();
    [head, &length, &kept, tail].concat()
}
