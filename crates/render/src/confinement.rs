//! What units that run nodestrap may not do, because they have no use for it. The same for all of them but for two lists.
//!
//! A directive that a systemd does not know is warned about and ignored, so the list is for the newest of them. It names system
//! calls to forbid, not to allow: systemd before 231 knows no groups of them, and would allow nothing.

use crate::unit::Section;

pub(crate) struct Confinement {
    capabilities: &'static str,
    /// Groups of system calls.
    forbidden: &'static str,
}

/// `nodestrap apply`, as `dist/systemd` ships it: files of any owner, a config drive to mount.
#[cfg(test)]
pub(crate) const APPLY: Confinement = Confinement {
    capabilities: "CAP_CHOWN CAP_DAC_OVERRIDE CAP_DAC_READ_SEARCH CAP_FOWNER CAP_FSETID CAP_SYS_ADMIN",
    forbidden: "@clock @cpu-emulation @debug @module @obsolete @raw-io @reboot @resources @swap",
};

/// `nodestrap network`, `spend-credentials` and `gate`: they read files of root's, ask the API server, and write or remove files that
/// are root's, too.
pub(crate) const READER: Confinement = Confinement {
    capabilities: "CAP_DAC_OVERRIDE",
    forbidden: "@clock @cpu-emulation @debug @module @mount @obsolete @privileged @raw-io @reboot @resources @swap",
};

/// `nodestrap clean-runtime-data`: it removes what others own, whatever their modes say.
pub(crate) const CLEANER: Confinement =
    Confinement { capabilities: "CAP_DAC_OVERRIDE CAP_FOWNER", forbidden: READER.forbidden };

impl Confinement {
    pub(crate) fn add_to<'a>(&self, service: Section<'a>) -> Section<'a> {
        service
            .text("LimitCORE", "0")
            .text("UMask", "0077")
            .text("NoNewPrivileges", "yes")
            .text("CapabilityBoundingSet", self.capabilities)
            .text("RestrictAddressFamilies", "AF_UNIX AF_INET AF_INET6")
            .text("RestrictNamespaces", "yes")
            .text("RestrictRealtime", "yes")
            .text("LockPersonality", "yes")
            .text("MemoryDenyWriteExecute", "yes")
            .text("SystemCallArchitectures", "native")
            .text("SystemCallErrorNumber", "EPERM")
            .text("SystemCallFilter", format!("~{}", self.forbidden))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::bootstrap_unit;
    use crate::unit::UnitFile;

    #[test]
    fn the_shipped_unit_is_confined_like_those_that_are_rendered() {
        let section = APPLY.add_to(Section::new("Service"));
        let rendered = String::from_utf8(UnitFile::new(vec![section]).render().unwrap()).unwrap();
        let (_, lines) = rendered.split_once("[Service]\n").unwrap();
        let shipped = bootstrap_unit("/usr/bin/nodestrap").unwrap();
        assert!(shipped.contains(lines), "{lines}");
    }
}
