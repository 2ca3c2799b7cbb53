//! The form that a value must have before it counts.

use std::net::Ipv4Addr;

/// Longer than any name of a platform's.
const LONGEST: usize = 255;

pub(crate) type Form = fn(&str) -> bool;

/// `i-` and 8 or 17 hexadecimal digits.
pub(crate) fn is_aws_instance_id(text: &str) -> bool {
    let digits = text.strip_prefix("i-").unwrap_or_default();
    matches!(digits.len(), 8 | 17) && digits.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

/// `m5.large`, `u-6tb1.112xlarge`.
pub(crate) fn is_aws_instance_type(text: &str) -> bool {
    text.split_once('.').is_some_and(|(family, size)| is_label(family) && is_label(size))
}

/// Lower-case letters, digits and dashes: regions and zones of AWS and GCE, machine types of GCE.
pub(crate) fn is_label(text: &str) -> bool {
    is_some_of(text, |byte| matches!(byte, b'a'..=b'z' | b'0'..=b'9' | b'-'))
}

/// Names of Azure, such as `Standard_D2s_v5`.
pub(crate) fn is_azure_name(text: &str) -> bool {
    is_some_of(text, |byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

/// As an operator called it: printable, on one line, and no markup.
pub(crate) fn is_name(text: &str) -> bool {
    is_some_of(text, |byte| byte >= b' ' && !matches!(byte, b'<' | b'>' | 0x7f))
}

pub(crate) fn is_number(text: &str) -> bool {
    text.len() <= 20 && is_some_of(text, |byte| byte.is_ascii_digit())
}

/// 8-4-4-4-12 hexadecimal digits.
pub(crate) fn is_uuid(text: &str) -> bool {
    let lengths = text.split('-').map(str::len);
    lengths.eq([8, 4, 4, 4, 12]) && text.bytes().all(|byte| byte == b'-' || byte.is_ascii_hexdigit())
}

/// The address of one machine.
pub(crate) fn is_ipv4(text: &str) -> bool {
    text.parse::<Ipv4Addr>().is_ok_and(|address| {
        !address.is_unspecified() && !address.is_loopback() && !address.is_multicast() && !address.is_broadcast()
    })
}

fn is_some_of(text: &str, allowed: fn(u8) -> bool) -> bool {
    !text.is_empty() && text.len() <= LONGEST && text.bytes().all(allowed)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PAGES: [&str; 6] =
        ["", "<html>login</html>", "401 - Unauthorized", "a b\nc", "i-12345678\n<script>", "{\"error\": 1}"];

    #[test]
    fn no_page_is_a_value() {
        let forms: [Form; 9] = [
            is_aws_instance_id,
            is_aws_instance_type,
            is_label,
            is_azure_name,
            is_number,
            is_uuid,
            is_ipv4,
            |text| is_name(text) && text.contains('<'),
            |text| is_name(text) && text.contains('\n'),
        ];
        for (number, form) in forms.into_iter().enumerate() {
            for page in PAGES {
                assert!(!form(page), "{number}: {page:?}");
            }
        }
    }

    #[test]
    fn real_values_have_their_form() {
        assert!(is_aws_instance_id("i-0a1b2c3d") && is_aws_instance_id("i-0123456789abcdef0"));
        for name in ["m5.large", "u-6tb1.112xlarge", "c7gn.metal", "mac2-m2.metal"] {
            assert!(is_aws_instance_type(name), "{name}");
        }
        assert!(!is_aws_instance_id("i-0A1B2C3D") && !is_aws_instance_type("m5") && !is_aws_instance_type("m5.large/"));
        assert!(is_label("eu-central-1a") && is_label("n2-standard-4") && is_azure_name("Standard_D2s_v5"));
        assert!(is_uuid("02aab8a4-74ef-476e-8182-f6d2ba4166a6") && !is_uuid("02aab8a474ef476e8182f6d2ba4166a6"));
        assert!(is_number("1234567890123456789") && !is_number("123456789012345678901"));
        assert!(is_ipv4("10.0.0.7"));
        for address in ["0.0.0.0", "127.0.0.1", "10.0.0", "::1", "224.0.0.1", "255.255.255.255"] {
            assert!(!is_ipv4(address), "{address}");
        }
    }
}
