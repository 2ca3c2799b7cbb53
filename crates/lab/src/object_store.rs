//! A real store that speaks S3 (versitygw), with its buckets in a folder of its own. Gone with its value.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use tempfile::TempDir;

use crate::cache;
use crate::command::append;
use crate::wait::{Fatal, wait_until};

pub const ACCESS_KEY: &str = "lab-access-key";
pub const SECRET_KEY: &str = "lab-secret-key";
pub const REGION: &str = "lab-region-1";
const START_DEADLINE: Duration = Duration::from_secs(60);

pub struct ObjectStore {
    address: SocketAddr,
    program: Child,
    folder: TempDir,
}

impl ObjectStore {
    /// On loopback; `buckets` are made. The account has [`ACCESS_KEY`] and [`SECRET_KEY`].
    pub fn start(buckets: &[&str]) -> Result<Self> {
        // Between us and the program somebody else may take the port; then it does not start, and says so.
        let address = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|free| free.local_addr());
        let address = address.context("finding a free port")?;
        Self::start_at(address, buckets)
    }

    /// Where something else decides about the address.
    pub fn start_at(address: SocketAddr, buckets: &[&str]) -> Result<Self> {
        let binary = cache::object_store()?;
        let folder = tempfile::tempdir().context("making the folder of the store")?;
        let (objects, metadata) = (folder.path().join("objects"), folder.path().join("metadata"));
        std::fs::create_dir(&metadata).context("making the folder of the store")?;
        for bucket in buckets {
            std::fs::create_dir_all(objects.join(bucket)).with_context(|| format!("making the bucket {bucket}"))?;
        }
        let log = folder.path().join("log");
        let mut command = Command::new(binary);
        command.env_clear().env("ROOT_ACCESS_KEY_ID", ACCESS_KEY).env("ROOT_SECRET_ACCESS_KEY", SECRET_KEY);
        command.args(["--region", REGION, "--port", &address.to_string(), "posix", "--sidecar"]).arg(metadata).arg(objects);
        command.stdin(Stdio::null()).stdout(append(&log)?).stderr(append(&log)?);
        let program = command.spawn().context("starting versitygw")?;
        let mut store = Self { address, program, folder };
        store.wait(&log)?;
        Ok(store)
    }

    fn wait(&mut self, log: &Path) -> Result<()> {
        wait_until("the object store", START_DEADLINE, || {
            if let Some(status) = self.program.try_wait()? {
                let said = std::fs::read_to_string(log).unwrap_or_default();
                return Err(Fatal(format!("versitygw ended ({status}): {said}")).into());
            }
            Ok(TcpStream::connect(self.address).is_ok().then_some(()))
        })
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Such as `http://127.0.0.1:PORT`, for path style.
    pub fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// One line for each request.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join("log")).unwrap_or_default()
    }
}

impl Drop for ObjectStore {
    fn drop(&mut self) {
        // A child that has not been waited for cannot be confused with anybody else.
        let _ = self.program.kill();
        let _ = self.program.wait();
    }
}
