//! `k8s-node-bootstrap.service`, for machines whose image does not bring it.

use bundle::AbsolutePath;

use crate::error::RenderError;

/// The unit as packages install it; one text for both, so that they cannot drift apart.
const SHIPPED: &str = include_str!("../../../../dist/systemd/k8s-node-bootstrap.service");

/// The binary that the shipped unit starts.
const SHIPPED_BINARY: &str = "/usr/bin/nodestrap";

/// The unit that starts the nodestrap at this path, without the reasons for it: user data has a limit.
pub fn bootstrap_unit(nodestrap_path: &str) -> Result<String, RenderError> {
    // What needs no escaping in a unit, in JSON or in a command line.
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || b"/._+-".contains(&byte);
    if AbsolutePath::new(nodestrap_path).is_err() || !nodestrap_path.bytes().all(plain) {
        return Err(RenderError::ProgramPath { path: nodestrap_path.to_owned() });
    }
    let directives: String = SHIPPED.split_inclusive('\n').filter(|line| !line.starts_with('#')).collect();
    Ok(directives.replace(SHIPPED_BINARY, nodestrap_path))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_the_commands_differ_from_what_the_shipped_unit_directs() {
        let shipped: Vec<&str> = SHIPPED.lines().filter(|line| !line.starts_with('#')).collect();
        assert_eq!(bootstrap_unit("/usr/bin/nodestrap").unwrap().lines().collect::<Vec<_>>(), shipped);
        let other = bootstrap_unit("/opt/bin/nodestrap").unwrap();
        assert_eq!(other.lines().count(), shipped.len());
        let pairs = shipped.into_iter().zip(other.lines());
        let changed: Vec<(&str, &str)> = pairs.filter(|(one, two)| one != two).collect();
        assert_eq!(
            changed,
            [
                ("ExecStartPre=/usr/bin/nodestrap apply", "ExecStartPre=/opt/bin/nodestrap apply"),
                ("ExecStart=/usr/bin/nodestrap status --brief", "ExecStart=/opt/bin/nodestrap status --brief"),
            ]
        );
    }

    #[test]
    fn a_path_that_a_unit_would_read_differently_is_refused() {
        for path in ["nodestrap", "", "/a b", "/a%b", "/a$b", "/a/../b", "/a\nb", "/a;b"] {
            assert!(matches!(bootstrap_unit(path), Err(RenderError::ProgramPath { .. })), "{path:?}");
        }
    }
}
