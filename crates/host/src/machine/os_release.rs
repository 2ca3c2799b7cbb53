//! `os-release(5)`: lines of `KEY=value`, where the value may be quoted as in a shell.

use std::collections::BTreeMap;

/// What the file says, with the defaults of the manual page for what it does not.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct OsRelease {
    /// `linux` if the file does not say.
    pub id: String,
    /// Empty on rolling distributions.
    pub version_id: String,
    pub pretty_name: String,
    /// Every key as written, these three included.
    pub keys: BTreeMap<String, String>,
}

/// Takes what it can: a line that is no assignment is left out, as every reader of this file does. The last of two
/// equal keys counts.
pub fn parse_os_release(text: &str) -> OsRelease {
    let assignments = text.lines().map(str::trim).filter(|line| !line.starts_with('#')).filter_map(|line| {
        let (key, value) = line.split_once('=')?;
        is_key(key).then(|| (key.to_owned(), unquote(value)))
    });
    let keys: BTreeMap<String, String> = assignments.collect();
    let get = |key: &str, default: &str| keys.get(key).cloned().unwrap_or_else(|| default.to_owned());
    OsRelease {
        id: get("ID", "linux"),
        version_id: get("VERSION_ID", ""),
        pretty_name: get("PRETTY_NAME", "Linux"),
        keys,
    }
}

fn is_key(key: &str) -> bool {
    let starts_well = key.starts_with(|c: char| c.is_ascii_alphabetic() || c == '_');
    starts_well && key.chars().all(|c| c.is_ascii_alphanumeric() || c == '_')
}

/// Shell words without expansion: 'as is', "with \" \$ \` \\ escapes", bare\ words. An open quote ends with the line.
fn unquote(value: &str) -> String {
    let mut text = String::new();
    let mut quote = None;
    let mut chars = value.chars();
    while let Some(c) = chars.next() {
        match (quote, c) {
            (None, '\'' | '"') => quote = Some(c),
            (Some(open), _) if c == open => quote = None,
            (None, '\\') => text.extend(chars.next()),
            (Some('"'), '\\') => match chars.next() {
                Some(escaped @ ('"' | '$' | '`' | '\\')) => text.push(escaped),
                Some(other) => text.extend(['\\', other]),
                None => text.push('\\'),
            },
            // An unquoted blank ends the word, and with it the value.
            (None, c) if c.is_whitespace() => break,
            _ => text.push(c),
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn reads_values_as_a_shell_would() {
        let cases = [
            ("ID=debian", Some("debian")),
            ("ID=\"flatcar\"", Some("flatcar")),
            ("ID='a b'", Some("a b")),
            ("ID=\"a \\\"b\\\" \\$c \\` \\\\ \\n\"", Some("a \"b\" $c ` \\ \\n")),
            ("ID='a\\b'", Some("a\\b")),
            ("ID=a\\ b", Some("a b")),
            ("ID=a b", Some("a")),
            ("ID=a\"b\"'c'", Some("abc")),
            ("ID=", Some("")),
            ("ID=\"open", Some("open")),
            ("  ID=x  \r", Some("x")),
            ("ID=one\nID=two", Some("two")),
            ("#ID=debian", None),
            ("export ID=debian", None),
            ("1D=debian", None),
            ("=debian", None),
            ("ID = debian", None),
        ];
        for (text, wanted) in cases {
            assert_eq!(parse_os_release(text).keys.get("ID").map(String::as_str), wanted, "{text:?}");
        }
    }

    /// As each of them writes it: quoted or not, in this order of keys or that one.
    #[test]
    fn reads_every_distribution_that_a_spec_can_name() {
        let cases = [
            (
                "PRETTY_NAME=\"Debian GNU/Linux 12 (bookworm)\"\nNAME=\"Debian GNU/Linux\"\nVERSION_ID=\"12\"\n\
                 VERSION=\"12 (bookworm)\"\nVERSION_CODENAME=bookworm\nID=debian\n",
                ["debian", "12", "Debian GNU/Linux 12 (bookworm)", ""],
            ),
            (
                "PRETTY_NAME=\"Ubuntu 24.04.1 LTS\"\nVERSION_ID=\"24.04\"\nID=ubuntu\nID_LIKE=debian\n",
                ["ubuntu", "24.04", "Ubuntu 24.04.1 LTS", ""],
            ),
            (
                "NAME=\"Flatcar Container Linux by Kinvolk\"\nID=flatcar\nID_LIKE=coreos\nVERSION=4081.2.0\n\
                 VERSION_ID=4081.2.0\nPRETTY_NAME=\"Flatcar 4081.2.0 (Oklo)\"\nANSI_COLOR=\"38;5;75\"\n",
                ["flatcar", "4081.2.0", "Flatcar 4081.2.0 (Oklo)", ""],
            ),
            (
                "NAME=\"Container Linux by CoreOS\"\nID=coreos\nVERSION=2345.3.0\nVERSION_ID=2345.3.0\n\
                 PRETTY_NAME=\"Container Linux by CoreOS 2345.3.0 (Rhyolite)\"\n",
                ["coreos", "2345.3.0", "Container Linux by CoreOS 2345.3.0 (Rhyolite)", ""],
            ),
            (
                "NAME=\"Amazon Linux\"\nVERSION=\"2\"\nID=\"amzn\"\nID_LIKE=\"centos rhel fedora\"\nVERSION_ID=\"2\"\n\
                 PRETTY_NAME=\"Amazon Linux 2\"\n",
                ["amzn", "2", "Amazon Linux 2", ""],
            ),
            (
                "ID=\"amzn\"\nID_LIKE=\"fedora\"\nVERSION_ID=\"2023\"\nPRETTY_NAME=\"Amazon Linux 2023.6.20241010\"\n",
                ["amzn", "2023", "Amazon Linux 2023.6.20241010", ""],
            ),
            (
                "NAME=\"Red Hat Enterprise Linux\"\nID=\"rhel\"\nVERSION_ID=\"9.4\"\n\
                 PRETTY_NAME=\"Red Hat Enterprise Linux 9.4 (Plow)\"\n",
                ["rhel", "9.4", "Red Hat Enterprise Linux 9.4 (Plow)", ""],
            ),
            (
                "ID=\"rhcos\"\nVARIANT=\"CoreOS\"\nVARIANT_ID=coreos\nVERSION_ID=\"4.15\"\n\
                 PRETTY_NAME=\"Red Hat Enterprise Linux CoreOS 415.92\"\n",
                ["rhcos", "4.15", "Red Hat Enterprise Linux CoreOS 415.92", "coreos"],
            ),
        ];
        for (text, wanted) in cases {
            let read = parse_os_release(text);
            let variant = read.keys.get("VARIANT_ID").map_or("", String::as_str);
            assert_eq!([&*read.id, &*read.version_id, &*read.pretty_name, variant], wanted, "{text}");
        }
    }

    #[test]
    fn knows_the_defaults_of_the_manual_page() {
        let empty = parse_os_release("");
        assert_eq!((&*empty.id, &*empty.version_id, &*empty.pretty_name), ("linux", "", "Linux"));
    }

    proptest! {
        #[test]
        fn never_panics(text in "([A-Z_]{1,3}=?|[\"'\\\\#$ \n]|\\PC){0,120}") {
            parse_os_release(&text);
        }

        #[test]
        fn reads_back_what_is_quoted(value in "[^\n\r\0]{0,40}") {
            let escaped: String = value.chars().flat_map(|c| match c {
                '"' | '$' | '`' | '\\' => vec!['\\', c],
                _ => vec![c],
            }).collect();
            let read = parse_os_release(&format!("K=\"{escaped}\""));
            prop_assert_eq!(read.keys.get("K"), Some(&value));
        }
    }
}
