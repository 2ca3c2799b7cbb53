//! ASCII armour. Read here and not by the library, because keyrings and signatures are often several blocks in one file, and
//! because a block that was cut off must be called that.

use data_encoding::BASE64;

/// What a block may be.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Block {
    PublicKey,
    SecretKey,
    Signature,
}

impl Block {
    fn label(self) -> &'static str {
        match self {
            Self::PublicKey => "PGP PUBLIC KEY BLOCK",
            Self::SecretKey => "PGP PRIVATE KEY BLOCK",
            Self::Signature => "PGP SIGNATURE",
        }
    }
}

/// The packets of a file: its bytes if it is binary, or what its armoured blocks have, one after the other.
pub(super) fn unarmour(bytes: &[u8], wanted: &[Block]) -> Result<Vec<u8>, String> {
    // The first bit of every packet is set, and that of no character of an armour.
    if bytes.first().is_some_and(|byte| byte & 0x80 != 0) && !bytes.starts_with("\u{feff}".as_bytes()) {
        return Ok(bytes.to_vec());
    }
    let text = String::from_utf8_lossy(bytes);
    let mut lines = text.lines().map(str::trim_end);
    let mut packets = Vec::new();
    while let Some(label) = lines.by_ref().find_map(|line| boundary(line, "BEGIN ")) {
        let Some(block) = wanted.iter().find(|block| block.label() == label) else {
            let wanted: Vec<&str> = wanted.iter().map(|block| block.label()).collect();
            let label: String = label.chars().take(40).flat_map(char::escape_default).collect();
            return Err(format!("there is a block '{label}' where a '{}' should be", wanted.join("' or '")));
        };
        packets.extend(read_block(&mut lines, block.label())?);
    }
    if packets.is_empty() && !bytes.iter().all(u8::is_ascii_whitespace) {
        return Err("it is neither armoured ('-----BEGIN PGP …') nor binary OpenPGP".to_owned());
    }
    Ok(packets)
}

fn boundary<'l>(line: &'l str, kind: &str) -> Option<&'l str> {
    line.trim_start_matches('\u{feff}').strip_prefix("-----")?.strip_prefix(kind)?.strip_suffix("-----")
}

/// From the line after its beginning to its end.
fn read_block<'t>(lines: &mut impl Iterator<Item = &'t str>, label: &str) -> Result<Vec<u8>, String> {
    // Headers, such as a comment, end with an empty line.
    if !lines.by_ref().any(str::is_empty) {
        return Err(format!("the block '{label}' is cut off"));
    }
    let (mut digits, mut sum) = (String::new(), None);
    for line in lines {
        match (boundary(line, "END "), line.strip_prefix('=')) {
            (Some(end), _) if end == label => return decode(&digits, sum),
            (Some(_), _) => break,
            (None, Some(stated)) if sum.is_none() => sum = Some(stated),
            _ if sum.is_some() && !line.is_empty() => break,
            _ => digits.push_str(line),
        }
    }
    Err(format!("the block '{label}' is cut off, or something else stands in it"))
}

fn decode(digits: &str, sum: Option<&str>) -> Result<Vec<u8>, String> {
    let bytes = BASE64.decode(digits.as_bytes()).map_err(|error| format!("its base64 is wrong ({error})"))?;
    match sum {
        Some(sum) if BASE64.decode(sum.as_bytes()).ok().as_deref() != Some(&crc24(&bytes)[..]) => {
            Err("its check sum is wrong".to_owned())
        }
        _ => Ok(bytes),
    }
}

/// The check sum of RFC 9580, section 6.1.
fn crc24(bytes: &[u8]) -> [u8; 3] {
    let sum = bytes.iter().fold(0x00b7_04ce_u32, |sum, byte| {
        (0..8).fold(sum ^ u32::from(*byte) << 16, |sum, _| {
            let shifted = sum << 1;
            if shifted & 0x0100_0000 == 0 { shifted } else { shifted ^ 0x0186_4cfb }
        })
    });
    let [_, high, middle, low] = sum.to_be_bytes();
    [high, middle, low]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn block(label: &str, body: &str) -> String {
        format!("-----BEGIN {label}-----\nComment: x\n\n{body}\n-----END {label}-----\n")
    }

    #[test]
    fn several_blocks_and_the_text_around_them_are_read() {
        let one = block("PGP SIGNATURE", "YWJj");
        let both = format!("words before\r\n{}\nbetween\n{one}", one.replace('\n', "\r\n"));
        assert_eq!(unarmour(both.as_bytes(), &[Block::Signature]).unwrap(), b"abcabc");
        let summed = block("PGP SIGNATURE", "aGVsbG8gd29ybGQ=\n=ZWvS");
        let sum = BASE64.encode(&crc24(b"hello world"));
        assert_eq!(unarmour(summed.replace("ZWvS", &sum).as_bytes(), &[Block::Signature]).unwrap(), b"hello world");
        assert_eq!(crc24(b""), [0xb7, 0x04, 0xce]);
        assert_eq!(crc24(b"123456789"), [0x21, 0xcf, 0x02], "the value that every description of CRC-24 gives");
    }

    #[test]
    fn damage_is_named() {
        let whole = block("PGP SIGNATURE", "YWJj\n=AAAA");
        for (text, why) in [
            (whole.as_str(), "check sum"),
            (&whole[..40], "cut off"),
            (&whole[..whole.len() - 10], "cut off"),
            (&block("PGP SIGNATURE", "YW!j"), "base64"),
            (&block("PGP SIGNATURE", "YWJ"), "base64"),
            (&block("PGP MESSAGE", "YWJj"), "'PGP MESSAGE' where a 'PGP SIGNATURE' should be"),
            (&block("PGP SIGNATURE", "YWJj").replace("END PGP SIGNATURE", "END PGP MESSAGE"), "cut off"),
            ("hello", "neither"),
        ] {
            let refused = unarmour(text.as_bytes(), &[Block::Signature]).expect_err(text);
            assert!(refused.contains(why), "{refused}");
        }
        assert_eq!(unarmour(b" \n", &[Block::Signature]), Ok(Vec::new()));
        assert_eq!(unarmour(b"\x88\x01", &[Block::Signature]), Ok(b"\x88\x01".to_vec()));
    }
}
