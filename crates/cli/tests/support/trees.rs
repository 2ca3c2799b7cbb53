//! A bundle that brings its programs, and a machine that has their artefacts in a folder of its own.

use std::sync::OnceLock;

use bundle::{
    AbsolutePath, Artefact, ArtefactDigest, ArtefactForm, Bundle, Component, Downloads, Provenance, Readers,
    RelativePath, Tree, UnitName, sha256_hex,
};

use super::{Sandbox, finish, program};

/// Where the artefacts lie on the machine.
const FOLDER: &str = "/srv/artefacts";

/// As tar and gzip of this machine write it; made once, since no two are the same bytes.
fn archive() -> &'static [u8] {
    static ARCHIVE: OnceLock<Vec<u8>> = OnceLock::new();
    ARCHIVE.get_or_init(|| {
        let folder = tempfile::tempdir().unwrap();
        let bin = folder.path().join("bin");
        std::fs::create_dir(&bin).unwrap();
        std::fs::write(bin.join("containerd"), "a containerd\n".repeat(99)).unwrap();
        std::os::unix::fs::symlink("containerd", bin.join("ctr")).unwrap();
        let mut chmod = program("chmod");
        chmod.arg("0755").arg(bin.join("containerd"));
        finish(chmod).expect(0);
        let mut tar = program("tar");
        tar.arg("-czf").arg(folder.path().join("out.tar.gz")).arg("-C").arg(folder.path()).arg("bin");
        finish(tar).expect(0);
        std::fs::read(folder.path().join("out.tar.gz")).unwrap()
    })
}

/// The example's bundle with a kubelet of this version and a containerd, and their artefacts on the machine.
pub(crate) fn deliver(sandbox: &Sandbox, version: &str) -> Bundle {
    let kubelet = format!("kubelet {version}\n").repeat(99).into_bytes();
    let mut bundle = Bundle::parse(super::bundle().as_bytes()).unwrap();
    bundle.trees = vec![
        tree(sandbox, Component::Containerd, "2.2.1", ArtefactForm::TarGz, archive(), "bin/containerd"),
        tree(sandbox, Component::Kubelet, version, ArtefactForm::Program, &kubelet, "kubelet"),
    ];
    bundle.downloads = Some(Downloads {
        provenance: Provenance::Unsigned {},
        certificate_authorities: None,
        proxy: None,
        no_proxy: Vec::new(),
        s3: None,
    });
    bundle.validate().unwrap();
    sandbox.deliver(&bundle.to_json());
    bundle
}

fn tree(
    sandbox: &Sandbox,
    component: Component,
    version: &str,
    form: ArtefactForm,
    bytes: &[u8],
    within: &str,
) -> Tree {
    let place = format!("{FOLDER}/{component}-{version}");
    sandbox.write(&place, bytes);
    let unit = UnitName::new(format!("{component}.service")).unwrap();
    Tree {
        component,
        version: version.to_owned(),
        artefact: Artefact {
            digest: ArtefactDigest::new(format!("sha256:{}", sha256_hex(bytes))).unwrap(),
            size: bytes.len() as u64,
            form,
            places: vec![format!("file://{place}")],
        },
        links: [(
            AbsolutePath::new(format!("/usr/local/bin/{component}")).unwrap(),
            RelativePath::new(within).unwrap(),
        )]
        .into(),
        read_by: Readers { units: [unit].into(), ..Readers::default() },
    }
}
