//! The texts of a YAML document by their paths. A reader by types would add a tenth of a megabyte to the binary.

use std::collections::BTreeMap;

use granit_parser::{Event, Options, Parser};

/// A kubeconfig has six levels.
const DEEPEST: usize = 32;

pub(crate) struct NotYaml;

/// Where in the document the next text stands.
enum Place {
    Item(usize),
    /// A key, or its value once the key is known.
    Entry(Option<String>),
}

/// `users/0/user/token` and so on, of the first document. Aliases, empty keys and keys that are there twice are refused.
pub(crate) fn scalars(yaml: &str) -> Result<BTreeMap<String, String>, NotYaml> {
    let mut options = Options::default();
    options.set_emit_comments(false);
    options.flow_nesting_limit = DEEPEST;
    options.block_nesting_limit = DEEPEST;
    let mut parser = Parser::new_from_str_with_options(yaml, options);
    let mut places: Vec<Place> = Vec::new();
    let mut found = BTreeMap::new();
    while let Some(event) = parser.next_event() {
        match event.map_err(|_| NotYaml)?.0 {
            // As a key.
            Event::SequenceStart(..) | Event::MappingStart(..) if matches!(places.last(), Some(Place::Entry(None))) => {
                return Err(NotYaml);
            }
            Event::SequenceStart(..) => places.push(Place::Item(0)),
            Event::MappingStart(..) => places.push(Place::Entry(None)),
            Event::SequenceEnd | Event::MappingEnd => {
                places.pop();
                advance(&mut places);
            }
            Event::Scalar(text, ..) => match places.last_mut() {
                Some(Place::Entry(key @ None)) => *key = Some(text.into_owned()),
                _ => {
                    if found.insert(path_of(&places), text.into_owned()).is_some() {
                        return Err(NotYaml);
                    }
                    advance(&mut places);
                }
            },
            Event::Alias(_) | Event::UnresolvedAlias(_) => return Err(NotYaml),
            Event::DocumentEnd => break,
            _ => {}
        }
    }
    Ok(found)
}

fn path_of(places: &[Place]) -> String {
    let part = |place: &Place| match place {
        Place::Item(index) => index.to_string(),
        Place::Entry(key) => key.clone().unwrap_or_default(),
    };
    places.iter().map(part).collect::<Vec<_>>().join("/")
}

fn advance(places: &mut [Place]) {
    match places.last_mut() {
        Some(Place::Item(index)) => *index += 1,
        Some(Place::Entry(key)) => *key = None,
        None => {}
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_found_by_their_path_in_both_styles() {
        let yaml = "a: 1\nlist:\n- name: x\n  inner: {deep: \"y\"}\n- [p, q]\nempty: {}\nlast: z\n";
        let found = scalars(yaml).unwrap_or_default();
        let expected = [
            ("a", "1"),
            ("last", "z"),
            ("list/0/inner/deep", "y"),
            ("list/0/name", "x"),
            ("list/1/0", "p"),
            ("list/1/1", "q"),
        ];
        assert_eq!(found, BTreeMap::from(expected.map(|(path, text)| (path.to_owned(), text.to_owned()))));
        let json = scalars(r#"{"users": [{"user": {"token": "t"}}]}"#).unwrap_or_default();
        assert_eq!(json["users/0/user/token"], "t");
    }

    #[test]
    fn what_could_be_read_in_two_ways_is_refused() {
        let deep = "[".repeat(200);
        for wrong in ["a: 1\na: 2\n", "a: &x 1\nb: *x\n", "{a: b}: c\n", "[a]: c\n", "a: [", "a: b: c", &deep] {
            assert!(scalars(wrong).is_err(), "{wrong}");
        }
    }
}
