//! A real store that speaks S3 (versitygw), with its buckets in a folder of its own. Gone with its value.
//!
//! Beside it runs the service that knows its accounts (versitygw's IAM): one account that may do everything, and whatever roles
//! a test admits, with sessions that end.

use std::net::{Ipv4Addr, SocketAddr, TcpListener, TcpStream};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};
use serde_json::json;
use tempfile::TempDir;

use crate::cache;
use crate::identities::Identities;
use crate::lab::Lab;
use crate::metadata::Role;
use crate::network::{HUB, HUB_MEMBER, connect_inside, inside, listen_inside, namespace_path};
use crate::process::spawn_logged;
use crate::wait::{Fatal, wait_until};

pub const ACCESS_KEY: &str = "lab-access-key";
pub const SECRET_KEY: &str = "lab-secret-key";
pub const REGION: &str = "lab-region-1";
/// What the keys of sessions begin with: by this the store tells them from those of accounts.
pub const SESSION_PREFIX: &str = "ASIA";
const START_DEADLINE: Duration = Duration::from_secs(60);
/// In the folder of the store.
const ACCOUNTS: &str = "accounts";
const SOCKET: &str = "accounts.socket";
const LOG: &str = "log";
const CREATED: &str = "2026-01-01T00:00:00Z";

pub struct ObjectStore {
    address: SocketAddr,
    scheme: &'static str,
    /// The lab in whose hub it is.
    lab: Option<String>,
    programs: Vec<Child>,
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
        Self::prepare(address, "http", None, buckets)?.run(None)
    }

    /// In the hub of a lab, where its nodes reach it over https, by a certificate of the lab's authority.
    pub fn start_in(lab: &Lab, buckets: &[&str]) -> Result<Self> {
        let free = listen_inside(lab.name(), HUB_MEMBER, (HUB.v4, 0).into())?;
        let address = free.local_addr().context("finding a free port")?;
        drop(free);
        // The API server's own: it is for all addresses of the hub.
        let identities = Identities::in_lab(lab.folder());
        let certificate = [identities.path("apiserver.crt"), identities.path("apiserver.key")];
        Self::prepare(address, "https", Some(lab.name().to_owned()), buckets)?.run(Some(&certificate))
    }

    fn prepare(address: SocketAddr, scheme: &'static str, lab: Option<String>, buckets: &[&str]) -> Result<Self> {
        let folder = tempfile::tempdir().context("making the folder of the store")?;
        for name in ["metadata", ACCOUNTS] {
            std::fs::create_dir(folder.path().join(name)).context("making the folder of the store")?;
        }
        for bucket in buckets {
            let path = folder.path().join("objects").join(bucket);
            std::fs::create_dir_all(path).with_context(|| format!("making the bucket {bucket}"))?;
        }
        Ok(Self { address, scheme, lab, programs: Vec::new(), folder })
    }

    fn run(mut self, certificate: Option<&[PathBuf; 2]>) -> Result<Self> {
        let path = |name: &str| self.folder.path().join(name);
        let mut accounts = self.command()?;
        accounts.arg("--port").arg(path("control.socket")).arg("iam").arg("--dir").arg(path(ACCOUNTS));
        accounts.arg("--private-ports").arg(path(SOCKET));
        let mut store = self.command()?;
        store.args(["--region", REGION, "--port", &self.address.to_string()]);
        store.arg("--iam-standalone-endpoint").arg(path(SOCKET));
        if let Some([chain, key]) = certificate {
            store.arg("--cert").arg(chain).arg("--key").arg(key);
        }
        store.args(["posix", "--sidecar"]).arg(path("metadata")).arg(path("objects"));
        let socket = path(SOCKET);
        self.spawn(&accounts)?;
        self.wait("the accounts of the object store", |_| socket.exists())?;
        self.spawn(&store)?;
        self.wait("the object store", |store| match &store.lab {
            None => TcpStream::connect(store.address).is_ok(),
            Some(lab) => connect_inside(lab, HUB_MEMBER, store.address).is_ok(),
        })?;
        Ok(self)
    }

    fn command(&self) -> Result<Command> {
        let mut command = Command::new(cache::object_store()?);
        command.env("ROOT_ACCESS_KEY_ID", ACCESS_KEY).env("ROOT_SECRET_ACCESS_KEY", SECRET_KEY);
        Ok(command)
    }

    fn spawn(&mut self, program: &Command) -> Result<()> {
        let log = self.folder.path().join(LOG);
        let namespace = self.lab.as_ref().map(|lab| namespace_path(lab, HUB_MEMBER));
        // A test that is killed leaves processes that its lab knows by its name.
        let lab = self.lab.as_deref().unwrap_or_default();
        self.programs.push(spawn_logged(lab, namespace.as_deref(), program, &log)?);
        Ok(())
    }

    fn wait(&mut self, what: &str, is_there: impl Fn(&Self) -> bool) -> Result<()> {
        wait_until(what, START_DEADLINE, || {
            for program in &mut self.programs {
                if let Some(status) = program.try_wait()? {
                    let said = std::fs::read_to_string(self.folder.path().join(LOG)).unwrap_or_default();
                    return Err(Fatal(format!("versitygw ended ({status}): {said}")).into());
                }
            }
            Ok(is_there(self).then_some(()))
        })
    }

    /// From now on these sessions, and no others, may read what lies in a bucket, each until it expires; they may do nothing
    /// else. Their keys must begin with [`SESSION_PREFIX`].
    pub fn admit(&self, bucket: &str, sessions: &[&Role]) -> Result<()> {
        let (mut roles, mut known) = (json!({}), json!({}));
        let allowed = json!({
            "Version": "2012-10-17",
            "Statement": [{ "Effect": "Allow", "Action": "s3:GetObject", "Resource": format!("arn:aws:s3:::{bucket}/*") }],
        });
        for Role { name, access_key, secret_key, token, expiration } in sessions {
            let (arn, id) = (format!("arn:aws:iam::000000000000:role/{name}"), format!("AROA-{name}"));
            let policy = json!({
                "PolicyName": "read", "PolicyDocument": allowed.to_string(), "CreateDate": CREATED, "UpdateDate": CREATED,
            });
            roles[name] = json!({
                "Path": "/", "RoleName": name, "RoleID": id, "Arn": arn, "CreateDate": CREATED,
                "Policies": { "inline": [policy] },
            });
            known[access_key] = json!({
                "accessKeyId": access_key, "secretAccessKey": secret_key, "sessionToken": token, "roleArn": arn,
                "roleName": name, "roleId": id, "roleSessionName": "lab", "createDate": CREATED, "expiration": expiration,
            });
        }
        let folder = self.folder.path().join(ACCOUNTS);
        let (fresh, place) = (folder.join("fresh"), folder.join("iam.json"));
        std::fs::write(&fresh, json!({ "roles": roles, "sessions": known }).to_string()).context("writing accounts")?;
        // It is read anew with each request, by somebody who must not find a half.
        std::fs::rename(&fresh, &place).context("replacing the accounts")
    }

    /// A program that reaches the store, with the account in its environment as clients of AWS expect it.
    pub fn client(&self, program: &Path) -> Command {
        let mut command = match &self.lab {
            Some(lab) => inside(lab, HUB_MEMBER, program),
            None => Command::new(program),
        };
        command.env("AWS_ACCESS_KEY_ID", ACCESS_KEY).env("AWS_SECRET_ACCESS_KEY", SECRET_KEY);
        command.stdin(Stdio::null());
        command
    }

    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// Such as `http://127.0.0.1:PORT`, for path style.
    pub fn endpoint(&self) -> String {
        format!("{}://{}", self.scheme, self.address)
    }

    /// One line for each request.
    pub fn log(&self) -> String {
        std::fs::read_to_string(self.folder.path().join(LOG)).unwrap_or_default()
    }
}

impl Drop for ObjectStore {
    fn drop(&mut self) {
        // A child that has not been waited for cannot be confused with anybody else.
        for program in &mut self.programs {
            let _ = program.kill();
            let _ = program.wait();
        }
    }
}
