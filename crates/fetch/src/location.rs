//! Addresses: what may be asked, where a redirect leads, and how an address is shown.

use std::fmt;

use hyper::Uri;
use hyper::http::uri::{PathAndQuery, Scheme};

/// An http or https URL that names a host.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Location {
    uri: Uri,
    https: bool,
}

impl Location {
    /// Fails with what is wrong about it.
    pub(crate) fn parse(text: &str) -> Result<Self, &'static str> {
        let uri: Uri = text.parse().map_err(|_| "it is not a URL")?;
        let https = match uri.scheme() {
            Some(scheme) if *scheme == Scheme::HTTPS => true,
            Some(scheme) if *scheme == Scheme::HTTP => false,
            _ => return Err("only http and https URLs can be fetched"),
        };
        match uri.authority() {
            Some(authority) if authority.as_str().contains('@') => Err("a URL must not hold a user or a password"),
            Some(authority) if !authority.host().is_empty() => Ok(Self { uri, https }),
            _ => Err("the URL names no host"),
        }
    }

    pub(crate) fn is_https(&self) -> bool {
        self.https
    }

    /// As it is looked up: without the brackets of an IPv6 address.
    pub(crate) fn host(&self) -> &str {
        self.uri.host().unwrap_or_default().trim_start_matches('[').trim_end_matches(']')
    }

    pub(crate) fn port(&self) -> u16 {
        self.uri.port_u16().unwrap_or(if self.https { 443 } else { 80 })
    }

    /// For the `Host` header.
    pub(crate) fn authority(&self) -> &str {
        self.uri.authority().map_or("", |authority| authority.as_str())
    }

    /// What the request line asks for.
    pub(crate) fn target(&self) -> &str {
        self.uri.path_and_query().map_or("/", PathAndQuery::as_str)
    }

    /// Where a `Location` header leads from here.
    pub(crate) fn follow(&self, reference: &str) -> Result<Self, &'static str> {
        let scheme = if self.https { "https" } else { "http" };
        let reference = reference.split('#').next().unwrap_or_default();
        let names_scheme = reference.split(['/', '?']).next().is_some_and(|first| first.contains(':'));
        let absolute = if names_scheme {
            reference.to_owned()
        } else if let Some(rest) = reference.strip_prefix("//") {
            format!("{scheme}://{rest}")
        } else {
            format!("{scheme}://{}{}", self.authority(), self.resolve_path(reference))
        };
        let next = Self::parse(&absolute)?;
        if self.https && !next.https { Err("it leads from https to http") } else { Ok(next) }
    }

    /// A path, a query or both, seen from this location (RFC 3986, 5.2).
    fn resolve_path(&self, reference: &str) -> String {
        let (path, query) = match reference.split_once('?') {
            Some((path, query)) => (path, format!("?{query}")),
            None => (reference, String::new()),
        };
        if path.is_empty() {
            return format!("{}{query}", self.uri.path());
        }
        let folder = self.uri.path().rsplit_once('/').map_or("", |(folder, _)| folder);
        let whole = if path.starts_with('/') { path.to_owned() } else { format!("{folder}/{path}") };
        let mut kept: Vec<&str> = Vec::new();
        for segment in whole.split('/').skip(1) {
            match segment {
                "." => {}
                ".." => {
                    kept.pop();
                }
                _ => kept.push(segment),
            }
        }
        // A path that ends in a dot segment names a folder.
        let end = if whole.ends_with("/.") || whole.ends_with("/..") { "/" } else { "" };
        format!("/{}{end}{query}", kept.join("/"))
    }
}

impl fmt::Display for Location {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redacted(&self.uri.to_string()))
    }
}

/// An address as it may be shown: the query of a presigned URL opens the store, and so does a password.
pub fn redacted(url: &str) -> String {
    let (shown, rest) = url.find(['?', '#']).map_or((url, ""), |at| url.split_at(at));
    let shown: String = shown.chars().filter(|character| !character.is_control()).collect();
    let hint = if rest.is_empty() { "" } else { "?[redacted]" };
    let Some((scheme, after)) = shown.split_once("://") else { return format!("{shown}{hint}") };
    let (authority, path) = after.find('/').map_or((after, ""), |at| after.split_at(at));
    let host = authority.rsplit_once('@').map_or(authority, |(_, host)| host);
    format!("{scheme}://{host}{path}{hint}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(text: &str) -> Location {
        Location::parse(text).unwrap_or_else(|why| panic!("{text}: {why}"))
    }

    #[test]
    fn only_plain_web_addresses_can_be_asked() {
        for (text, why) in [
            ("ftp://h/x", "only http and https"),
            ("file:///etc/shadow", "not a URL"),
            ("/x", "only http and https"),
            ("", "not a URL"),
            ("https://user:word@h/x", "password"),
            ("https://h/a b", "not a URL"),
        ] {
            assert!(Location::parse(text).unwrap_err().contains(why), "{text}: {:?}", Location::parse(text));
        }
        let six = at("https://[fd00::1]:8443/a?b=c");
        assert_eq!((six.host(), six.port(), six.target()), ("fd00::1", 8443, "/a?b=c"));
        assert_eq!((at("http://h").port(), at("https://h").port(), at("http://h").target()), (80, 443, "/"));
    }

    #[test]
    fn a_redirect_is_seen_from_where_it_came() {
        for (reference, leads_to) in [
            ("http://other/x?y", "http://other/x?y"),
            ("//other/x", "http://other/x"),
            ("/x", "http://h:1/x"),
            ("x", "http://h:1/a/x"),
            ("../x", "http://h:1/x"),
            ("../../../x", "http://h:1/x"),
            ("./x/..", "http://h:1/a/"),
            ("?sig=1", "http://h:1/a/b?sig=1"),
            ("x?back=http://h/", "http://h:1/a/x?back=http://h/"),
            ("/x#part", "http://h:1/x"),
        ] {
            let next = at("http://h:1/a/b?q").follow(reference).unwrap_or_else(|why| panic!("{reference}: {why}"));
            assert_eq!(next, at(leads_to), "{reference}");
        }
        assert_eq!(at("https://h/a").follow("http://h/a").unwrap_err(), "it leads from https to http");
        assert!(at("http://h/a").follow("https://h/a").is_ok());
        assert!(at("http://h/a").follow("ftp://h/a").is_err());
    }

    #[test]
    fn what_opens_a_store_is_not_shown() {
        for (url, shown) in [
            ("https://h/a/b.json?X-Amz-Signature=canary", "https://h/a/b.json?[redacted]"),
            ("https://me:canary@h:1/a", "https://h:1/a"),
            ("https://h/a#canary", "https://h/a?[redacted]"),
            ("not a url?canary", "not a url?[redacted]"),
            ("https://h/a\u{1b}[2J\n", "https://h/a[2J"),
        ] {
            assert_eq!(redacted(url), shown);
        }
        assert_eq!(at("https://h/a?canary").to_string(), "https://h/a?[redacted]");
    }
}
