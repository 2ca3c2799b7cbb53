//! Certificates as text: PEM in one normal form.

use data_encoding::BASE64;

use crate::values::Invalid;

const BEGIN: &str = "-----BEGIN ";
const END: &str = "-----END ";
const DASHES: &str = "-----";
/// RFC 7468: generators wrap at 64 columns.
const LINE_LENGTH: usize = 64;

const SHAPE: &str = "a PEM block (\"-----BEGIN CERTIFICATE-----\" …), or the base64 text of a kubeconfig's \
                     certificate-authority-data; on a control plane it is /etc/kubernetes/pki/ca.crt";

/// Takes PEM or base64 of PEM. Messages never repeat the text: somebody will paste a private key here one day.
pub(crate) fn normalise_certificates(text: &str) -> Result<String, Invalid> {
    let text = text.trim();
    if text.is_empty() {
        return Err(Invalid::new("no certificate").advise(SHAPE));
    }
    if text.contains(BEGIN) {
        return normalise_pem(text);
    }
    let packed: String = text.split_ascii_whitespace().collect();
    let decoded = BASE64
        .decode(packed.as_bytes())
        .ok()
        .and_then(|bytes| String::from_utf8(bytes).ok())
        .filter(|decoded| decoded.contains(BEGIN))
        .ok_or_else(|| Invalid::new("neither a PEM certificate nor base64 of one").advise(SHAPE))?;
    normalise_pem(decoded.trim())
}

fn normalise_pem(text: &str) -> Result<String, Invalid> {
    let mut normal = String::new();
    let mut lines = text.lines().map(str::trim);
    while let Some(line) = lines.next() {
        // Text between blocks is legal (openssl prints subjects there) and means nothing.
        let Some(label) = line.strip_prefix(BEGIN).and_then(|rest| rest.strip_suffix(DASHES)) else { continue };
        if label.contains("PRIVATE KEY") {
            return Err(Invalid::new("this contains a private key; only the certificate belongs here")
                .advise("no node may have the key of the certificate authority: use ca.crt, not ca.key"));
        }
        if label != "CERTIFICATE" {
            return Err(Invalid::new(format!("a certificate is needed, this is a \"{label}\"")).advise(SHAPE));
        }
        let mut body = String::new();
        loop {
            match lines.next() {
                None => return Err(Invalid::new("the certificate has no END line: it was cut off")),
                Some(line) if line.starts_with(END) => break,
                Some(line) => body.push_str(line),
            }
        }
        push_block(&mut normal, &body)?;
    }
    if normal.is_empty() {
        return Err(Invalid::new("no certificate in this PEM text").advise(SHAPE));
    }
    Ok(normal)
}

fn push_block(normal: &mut String, body: &str) -> Result<(), Invalid> {
    let packed: String = body.split_ascii_whitespace().collect();
    let der = BASE64.decode(packed.as_bytes()).map_err(|_| Invalid::new("the certificate's base64 text is damaged"))?;
    if !is_one_der_sequence(&der) {
        return Err(Invalid::new("the certificate is damaged: its length does not fit its content"));
    }
    let encoded = BASE64.encode(&der);
    normal.push_str("-----BEGIN CERTIFICATE-----\n");
    let mut rest = encoded.as_str();
    while !rest.is_empty() {
        let (line, after) = rest.split_at(rest.len().min(LINE_LENGTH));
        normal.push_str(line);
        normal.push('\n');
        rest = after;
    }
    normal.push_str("-----END CERTIFICATE-----\n");
    Ok(())
}

/// Catches truncation and mis-pasting without an X.509 parser: the outermost DER element must be a SEQUENCE that spans
/// exactly the bytes.
fn is_one_der_sequence(der: &[u8]) -> bool {
    let (header, length) = match der {
        [0x30, length, ..] if *length < 0x80 => (2, usize::from(*length)),
        [0x30, 0x81, length, ..] => (3, usize::from(*length)),
        [0x30, 0x82, high, low, ..] => (4, usize::from(*high) << 8 | usize::from(*low)),
        [0x30, 0x83, high, middle, low, ..] => {
            (5, usize::from(*high) << 16 | usize::from(*middle) << 8 | usize::from(*low))
        }
        _ => return false,
    };
    length > 0 && header + length == der.len()
}

#[cfg(test)]
mod tests {
    use super::*;

    const NORMAL: &str = "-----BEGIN CERTIFICATE-----\nMAMCAQE=\n-----END CERTIFICATE-----\n";

    #[test]
    fn all_spellings_of_a_certificate_become_one() {
        let noisy = "subject=CN = x\r\n -----BEGIN CERTIFICATE-----\r\n MAMC\r\n AQE=\r\n -----END CERTIFICATE-----";
        for text in [NORMAL, noisy, &BASE64.encode(NORMAL.as_bytes()), &BASE64.encode(noisy.as_bytes())] {
            assert_eq!(normalise_certificates(text).unwrap(), NORMAL);
        }
        assert_eq!(normalise_certificates(&NORMAL.repeat(2)).unwrap(), NORMAL.repeat(2));
    }

    #[test]
    fn keys_and_damage_are_refused_without_being_repeated() {
        for (bad, why) in [
            ("", "no certificate"),
            ("hunter2", "neither"),
            ("-----BEGIN PRIVATE KEY-----\nhunter2\n-----END PRIVATE KEY-----", "private key"),
            ("-----BEGIN CERTIFICATE-----\nMAMCAQE=", "cut off"),
            ("-----BEGIN CERTIFICATE-----\nMAMC\n-----END CERTIFICATE-----", "damaged"),
            ("-----BEGIN CERTIFICATE-----\n!!\n-----END CERTIFICATE-----", "damaged"),
            ("-----BEGIN CERTIFICATE REQUEST-----\nMAMCAQE=\n-----END CERTIFICATE REQUEST-----", "REQUEST"),
        ] {
            let invalid = normalise_certificates(bad).unwrap_err();
            assert!(invalid.message.contains(why) && !invalid.message.contains("hunter2"), "{}", invalid.message);
        }
    }
}
