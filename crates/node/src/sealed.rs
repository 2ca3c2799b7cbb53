//! JSON that tells by itself whether it is whole: a line with its digest, then the text. Torn or edited counts as absent.

use engine::Digest;
use serde::Serialize;
use serde::de::DeserializeOwned;

pub(crate) fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Option<T> {
    let seal_end = bytes.iter().position(|byte| *byte == b'\n')?;
    let (seal, json) = (&bytes[..seal_end], &bytes[seal_end + 1..]);
    (seal == Digest::of(json).as_str().as_bytes()).then(|| serde_json::from_slice(json).ok())?
}

pub(crate) fn print(value: &impl Serialize) -> Vec<u8> {
    // Names and texts only: nothing can fail to be written, and an empty text would be seen as torn.
    let mut json = serde_json::to_vec_pretty(value).unwrap_or_default();
    json.push(b'\n');
    let mut bytes = format!("{}\n", Digest::of(&json)).into_bytes();
    bytes.append(&mut json);
    bytes
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;

    #[test]
    fn every_truncation_and_every_changed_byte_counts_as_absent() {
        let value = BTreeMap::from([("a".to_owned(), "b".to_owned())]);
        let bytes = print(&value);
        assert_eq!(parse(&bytes), Some(value));
        for length in 0..bytes.len() {
            assert_eq!(parse::<BTreeMap<String, String>>(&bytes[..length]), None, "{length} bytes");
        }
        for position in 0..bytes.len() {
            let mut damaged = bytes.clone();
            damaged[position] ^= 1;
            assert_eq!(parse::<BTreeMap<String, String>>(&damaged), None, "byte {position}");
        }
    }
}
