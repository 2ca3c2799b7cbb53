//! What the types of a manifest cannot say.

use std::collections::BTreeSet;

use super::{Artefact, Form, Manifest, ManifestError, OsName, Role};

impl Manifest {
    pub(super) fn check(&self) -> Result<(), ManifestError> {
        if self.expires <= self.issued {
            return Err(ManifestError::ExpiresBeforeIssued { issued: self.issued, expires: self.expires });
        }
        for artefact in &self.artefacts {
            check_artefact(artefact)
                .map_err(|problem| ManifestError::Artefact { artefact: artefact.to_string(), problem })?;
        }
        if let Some(pair) = self.artefacts.windows(2).find(|pair| pair[0] > pair[1]) {
            return Err(ManifestError::Order { artefact: pair[1].to_string() });
        }
        check_overlaps(&self.artefacts)
    }
}

fn check_artefact(artefact: &Artefact) -> Result<(), &'static str> {
    let mut programs = BTreeSet::new();
    match (artefact.form, artefact.programs.as_slice()) {
        _ if artefact.size == 0 => Err("has the size 0"),
        _ if artefact.places.is_empty() => Err("has no place where it can be had"),
        (_, []) => Err("names no program"),
        (Form::Sysext, _) if artefact.extension.is_none() => Err("is a system extension without its 'extension'"),
        (Form::Program | Form::TarGz, _) if artefact.extension.is_some() => {
            Err("has an 'extension', but is no system extension")
        }
        (Form::Program, [program]) if program.as_str() == program.name() => Ok(()),
        (Form::Program, _) => Err("is one program, so that 'programs' must have its name alone"),
        (Form::TarGz | Form::Sysext, all) if !all.iter().all(|program| programs.insert(program)) => {
            Err("names a program twice")
        }
        (Form::Sysext, all) if !all.iter().all(|program| program.as_str().starts_with("usr/")) => {
            Err("has a program outside usr/")
        }
        (Form::TarGz | Form::Sysext, _) => Ok(()),
    }
}

/// For which nodes there is an artefact already.
#[derive(Default)]
struct Taken<'a> {
    any: bool,
    os: BTreeSet<&'a OsName>,
}

impl<'a> Taken<'a> {
    /// Whether it was free until now.
    fn take(&mut self, os: &'a BTreeSet<OsName>) -> bool {
        let free = match os.is_empty() {
            true => !self.any && self.os.is_empty(),
            false => !self.any && os.iter().all(|name| !self.os.contains(name)),
        };
        self.any |= os.is_empty();
        self.os.extend(os);
        free
    }
}

/// Two artefacts for one node would make it a matter of luck which one it gets.
fn check_overlaps(sorted: &[Artefact]) -> Result<(), ManifestError> {
    let alike =
        |a: &Artefact, b: &Artefact| (&a.name, &a.version, a.architecture) == (&b.name, &b.version, b.architecture);
    for group in sorted.chunk_by(alike) {
        let mut taken = <[(Taken<'_>, Taken<'_>); 2]>::default();
        for artefact in group {
            let (worker, control_plane) = &mut taken[usize::from(artefact.is_image())];
            let is_for = |role: Role| artefact.role.is_none_or(|only| only == role);
            let free_for_workers = !is_for(Role::Worker) || worker.take(&artefact.os);
            let free_for_control_planes = !is_for(Role::ControlPlane) || control_plane.take(&artefact.os);
            if !(free_for_workers && free_for_control_planes) {
                return Err(ManifestError::Overlap { artefact: artefact.to_string() });
            }
        }
    }
    Ok(())
}
