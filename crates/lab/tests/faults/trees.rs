//! A bundle that brings its programs, from a store that is a folder of the machine which runs the test.

use std::path::{Path, PathBuf};

use bundle::{
    AbsolutePath, Artefact, ArtefactDigest, ArtefactForm, Bundle, Component, Downloads, Provenance, Readers,
    RelativePath, Tree, UnitName, sha256_hex,
};

use crate::machine::{Bundles, done};

const CONTAINERD: &str = "2.2.1";

/// What the artefacts are, and where they lie: outside of every machine, so that a disk sees only what is fetched from here.
pub(crate) struct Store {
    folder: tempfile::TempDir,
}

impl Store {
    pub(crate) fn create() -> Self {
        Self { folder: tempfile::tempdir_in("/dev/shm").unwrap() }
    }

    /// The two bundles of [`Bundles::render`], each with a kubelet of its own patch and a containerd of the same.
    pub(crate) fn bundles(&self) -> Bundles {
        self.bundles_with(16 << 10)
    }

    /// The same, with a kubelet of so many bytes.
    pub(crate) fn bundles_with(&self, kubelet_size: usize) -> Bundles {
        let containerd = self.containerd();
        let Bundles { first, second } = Bundles::render();
        let [first, second] = [(first, "1.36.3"), (second, "1.36.4")].map(|(json, patch)| {
            let mut bundle = Bundle::parse(json.as_bytes()).unwrap();
            let kubelet: Vec<u8> = format!("kubelet {patch}\n").bytes().cycle().take(kubelet_size).collect();
            let kubelet = self.put(&format!("kubelet-{patch}"), &kubelet);
            bundle.trees = vec![
                tree(Component::Containerd, CONTAINERD, ArtefactForm::TarGz, &containerd, "bin/containerd"),
                tree(Component::Kubelet, patch, ArtefactForm::Program, &kubelet, "kubelet"),
            ];
            bundle.downloads = Some(Downloads {
                provenance: Provenance::Unsigned {},
                certificate_authorities: None,
                proxy: None,
                no_proxy: Vec::new(),
                s3: None,
            });
            bundle.validate().unwrap();
            bundle.to_json()
        });
        Bundles { first, second }
    }

    fn put(&self, name: &str, bytes: &[u8]) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, bytes).unwrap();
        path
    }

    /// With a folder, a program, a link and something that is no program, as tar and gzip of this machine write it.
    fn containerd(&self) -> PathBuf {
        let [archive, content] = ["containerd.tar.gz", "content"].map(|name| self.folder.path().join(name));
        let bin = content.join("bin");
        std::fs::create_dir_all(&bin).unwrap();
        for (name, text) in [("containerd", "a containerd\n"), ("notices", "who made it\n")] {
            std::fs::write(bin.join(name), text.repeat(999)).unwrap();
        }
        std::os::unix::fs::symlink("containerd", bin.join("ctr")).unwrap();
        done(&["chmod", "0755", &bin.join("containerd").display().to_string()]);
        let [to, from] = [&archive, &content].map(|path| path.display().to_string());
        done(&["tar", "-czf", &to, "-C", &from, "bin"]);
        archive
    }
}

fn tree(component: Component, version: &str, form: ArtefactForm, path: &Path, program: &str) -> Tree {
    let bytes = std::fs::read(path).unwrap();
    let link = AbsolutePath::new(format!("/usr/local/bin/{component}")).unwrap();
    let unit = UnitName::new(format!("{component}.service")).unwrap();
    Tree {
        component,
        version: version.to_owned(),
        artefact: Artefact {
            digest: ArtefactDigest::new(format!("sha256:{}", sha256_hex(&bytes))).unwrap(),
            size: bytes.len() as u64,
            form,
            places: vec![format!("file://{}", path.display())],
        },
        links: [(link, RelativePath::new(program).unwrap())].into(),
        read_by: Readers { units: [unit].into(), ..Readers::default() },
    }
}
