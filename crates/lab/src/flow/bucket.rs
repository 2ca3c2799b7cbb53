//! A private bucket in the hub of a lab: what is in it is for machines with a role, and for nobody else.

use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use data_encoding::BASE64;

use crate::cache::{ARCHITECTURE, Patch, ReleaseFile};
use crate::command::stdout_of;
use crate::flow::incompressible_text;
use crate::lab::Lab;
use crate::metadata::Role;
use crate::object_store::{ObjectStore, REGION, SESSION_PREFIX};
use crate::signing::SigningKey;
use crate::worker_spec::WorkerSpec;

const BUCKET: &str = "nodes";

/// A bucket of a real store, and the role that may read it.
pub struct PrivateBucket {
    pub store: ObjectStore,
    pub role: Role,
    key: SigningKey,
    /// Of the store's own files: authority, manifest, bundle.
    folder: PathBuf,
}

impl PrivateBucket {
    /// Empty as yet.
    pub fn start(lab: &Lab) -> Result<Self> {
        let store = ObjectStore::start_in(lab, &[BUCKET])?;
        let role = Role {
            name: "nodes".to_owned(),
            access_key: format!("{SESSION_PREFIX}0000000000000001"),
            secret_key: "secret-of-the-role".to_owned(),
            token: "token-of-the-role".to_owned(),
            expiration: "2099-01-01T00:00:00Z".to_owned(),
        };
        store.admit(BUCKET, &[&role])?;
        let folder = lab.folder().join("private-bucket");
        std::fs::create_dir(&folder).context("making the folder of the bucket")?;
        std::fs::write(folder.join("ca.pem"), lab.ca_pem()).context("writing the authority")?;
        let key = SigningKey::create(&folder)?;
        Ok(Self { store, role, key, folder })
    }

    fn publish(&self, nodestrap: &Path, below: &str, arguments: &[String]) -> Result<()> {
        let mut publish = self.store.client(nodestrap);
        publish.arg("publish").arg(format!("s3://{BUCKET}/{below}"));
        publish.args(["--s3-region", REGION, "--s3-path-style", "--s3-endpoint", &self.store.endpoint()]);
        publish.arg("--s3-certificate-authority").arg(self.folder.join("ca.pem"));
        stdout_of(publish.args(arguments)).with_context(|| format!("publishing {below}")).map(drop)
    }

    /// Puts a release into the bucket and signs for it.
    pub fn publish_release(&self, nodestrap: &Path, release: &[ReleaseFile]) -> Result<()> {
        let path = |path: &Path| path.display().to_string();
        let mut arguments = vec!["--architecture".to_owned(), ARCHITECTURE.to_owned()];
        arguments.extend(["--key".to_owned(), path(&self.key.secret), "--keyring".to_owned(), path(&self.key.keyring)]);
        arguments.extend(["--out".to_owned(), path(&self.folder.join("manifest.json"))]);
        for ReleaseFile { component, version, path, .. } in release {
            arguments.extend(["--add".to_owned(), format!("{component}@{version}={}", path.display())]);
        }
        self.publish(nodestrap, "programs", &arguments)
    }

    /// Puts a bundle there, as user data with its stub expects it.
    pub fn publish_bundle(&self, nodestrap: &Path, bundle: &[u8]) -> Result<()> {
        let file = self.folder.join("bundle.json");
        std::fs::write(&file, bundle).context("writing the bundle")?;
        self.publish(nodestrap, "bundles", &["--bundle".to_owned(), file.display().to_string()])
    }

    /// Of a worker whose programs are here, and whose bundle is, too: with that file it is too large for user data.
    pub fn spec(&self, lab: &Lab, patch: Patch, large: &str) -> Result<WorkerSpec> {
        let authority = BASE64.encode(lab.ca_pem().as_bytes());
        let endpoint = self.store.endpoint();
        let s3 = format!("{{region: {REGION}, endpoint: '{endpoint}', pathStyle: true}}");
        let mut spec = WorkerSpec::of(lab).with_kube_proxy(lab)?;
        spec.cluster.push_str(&format!(
            "provider: aws\nkubernetesVersion: {}\nartefacts:\n  store: s3://{BUCKET}/programs\n  manifest: {{file: {}}}\n  \
             keyrings: [{{file: {}}}]\n  certificateAuthority: {authority}\n  s3: {s3}\n\
             delivery: {{store: {{urls: ['s3://{BUCKET}/bundles'], certificateAuthority: {authority}, s3: {s3}}}}}\n",
            patch.kubernetes_version(),
            self.folder.join("manifest.json").display(),
            self.key.keyring.display(),
        ));
        spec.group.push_str(&format!(
            "source: tree\narchitecture: {ARCHITECTURE}\nfileAssets: [{{path: {large}, content: {}}}]\n",
            incompressible_text()
        ));
        Ok(spec)
    }
}
