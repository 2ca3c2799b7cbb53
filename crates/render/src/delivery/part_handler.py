#part-handler
"""Brings nodestrap and its bundle onto this machine, with nothing but what cloud-init itself needs.

Order: the binary, the unit, the bundle, each written beside its place, made durable and renamed in. The unit does not
start without the bundle, so a machine on which this fails stays untouched, and the next boot tries again.
"""
import gzip
import hashlib
import io
import ipaddress
import json
import logging
import os
import subprocess
import sys
import time
import urllib.parse
import urllib.request

INSTALL = "application/vnd.nodestrap.install+json"
BUNDLE = "application/vnd.nodestrap.bundle+json"
BUNDLE_PATH = "/etc/nodestrap/bundle.json"
UNIT = "k8s-node-bootstrap.service"

ROOT = ""  # a folder in place of /, for tests
ROUNDS = 6  # through all mirrors, with growing pauses: about half a minute
PAUSE = 1.0  # seconds after the first round; doubles
TIMEOUT = 30  # seconds without a byte
DEADLINE = 600  # seconds for one download
MAX_BINARY = 256 * 1024 * 1024
MAX_BUNDLE = 1024 * 1024
LOG = logging.getLogger(__name__)

handler_version = 2
frequency = "always"
_failed = []


def list_types():
    return [INSTALL, BUNDLE]


def handle_part(data, ctype, filename, payload, frequency):
    if ctype not in list_types():
        return
    # A later boot only finishes what an earlier one could not: it must not take back what was upgraded since.
    if frequency == "always" and os.path.exists(ROOT + BUNDLE_PATH):
        return
    if not isinstance(payload, bytes):
        payload = payload.encode("utf-8", "surrogateescape")
    try:
        if ctype == INSTALL:
            install(json.loads(payload.decode("utf-8")))
        elif _failed:
            raise RuntimeError("the bundle is not written, because nodestrap is not installed")
        else:
            deliver(payload)
    except Exception as error:
        if not _failed:
            tell(error)
        _failed.append(error)
        raise


def install(order):
    path = ROOT + order["path"]
    if digest_of(path) != order["sha256"]:
        download(order["urls"], order["sha256"], path, order.get("proxy") or {})
    os.chmod(path, 0o755)
    write(ROOT + "/etc/systemd/system/" + UNIT, order["unit"].encode("utf-8"), 0o644)


def deliver(payload):
    if payload[:2] == b"\x1f\x8b":
        with gzip.GzipFile(fileobj=io.BytesIO(payload)) as stream:
            payload = stream.read(MAX_BUNDLE + 1)
    if len(payload) > MAX_BUNDLE:
        raise ValueError("the bundle has more than %d bytes" % MAX_BUNDLE)
    if json.loads(payload.decode("utf-8")).get("kind") not in ("Bundle", "BundleReference"):
        raise ValueError("what came as a bundle is none")
    write(ROOT + BUNDLE_PATH, payload, 0o600)
    systemctl("daemon-reload")
    systemctl("enable", UNIT)
    # The unit waits for cloud-init, which waits for this: so its start is only queued.
    systemctl("start", "--no-block", UNIT)
    forget()


def download(urls, digest, path, proxy):
    for attempt in range(ROUNDS):
        if attempt:
            time.sleep(PAUSE * 2 ** (attempt - 1))
        problems = []
        for url in urls:
            try:
                return fetch(url, digest, path, proxy)
            except Exception as error:
                problems.append("%s: %s" % (url, error))
                LOG.warning("nodestrap from %s", problems[-1])
    raise RuntimeError("nodestrap could not be downloaded: " + "; ".join(problems))


def is_direct(url, entries):
    host = urllib.parse.urlsplit(url).hostname or ""
    for entry in entries:
        name = entry.lstrip("*").lstrip(".")
        if host == name or host.endswith("." + name):
            return True
        try:
            if ipaddress.ip_address(host) in ipaddress.ip_network(name, strict=False):
                return True
        except ValueError:
            pass
    return False


def fetch(url, digest, path, proxy):
    # As the spec says, and as nothing in the environment says.
    ways = {name: proxy[name] for name in ("http", "https") if proxy.get(name)}
    if is_direct(url, proxy.get("direct") or []):
        ways = {}
    opener = urllib.request.build_opener(urllib.request.ProxyHandler(ways))
    end = time.monotonic() + DEADLINE
    seen = hashlib.sha256()
    size = 0
    with opener.open(url, timeout=TIMEOUT) as answer, Beside(path, 0o755) as part:
        while True:
            block = answer.read(1 << 16)
            if not block:
                break
            size += len(block)
            if size > MAX_BINARY or time.monotonic() > end:
                raise RuntimeError("too large or too slow, stopped after %d bytes" % size)
            seen.update(block)
            part.file.write(block)
        if seen.hexdigest() != digest:
            raise RuntimeError("%d bytes with SHA-256 %s, wanted %s" % (size, seen.hexdigest(), digest))
        part.keep()


class Beside(object):
    """A file beside its place, of mode 0600 until it is kept; what is not kept is taken away."""

    def __init__(self, path, mode):
        self.path, self.mode, self.part = path, mode, path + ".part"

    def __enter__(self):
        os.makedirs(os.path.dirname(self.path), exist_ok=True)
        if os.path.lexists(self.part):
            os.unlink(self.part)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
        self.file = os.fdopen(os.open(self.part, flags, 0o600), "wb")
        return self

    def keep(self):
        self.file.flush()
        os.fchmod(self.file.fileno(), self.mode)
        os.fsync(self.file.fileno())
        os.rename(self.part, self.path)
        folder = os.open(os.path.dirname(self.path), os.O_RDONLY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)

    def __exit__(self, *_):
        self.file.close()
        if os.path.lexists(self.part):
            os.unlink(self.part)


def write(path, content, mode):
    with Beside(path, mode) as part:
        part.file.write(content)
        part.keep()


def digest_of(path):
    seen = hashlib.sha256()
    try:
        with open(path, "rb") as file:
            for block in iter(lambda: file.read(1 << 20), b""):
                seen.update(block)
    except OSError:
        return None
    return seen.hexdigest()


def systemctl(*arguments):
    command = ("systemctl",) + arguments
    if ROOT:
        print(" ".join(command))
    else:
        subprocess.check_call(command, stdin=subprocess.DEVNULL, timeout=60)


def alarm():
    return ROOT + "/var/lib/cloud/instance/scripts/nodestrap-failed"


def tell(error):
    """cloud-init only logs what a handler raises; a failing script of the last stage makes its status an error."""
    message = "nodestrap: %s" % error
    sys.stderr.write(message + "\n")
    script = "#!%s\nraise SystemExit(%a)\n" % (sys.executable or "/usr/bin/python3", message)
    try:
        write(alarm(), script.encode("utf-8"), 0o700)
    except OSError as problem:
        LOG.warning("%s: %s", alarm(), problem)


def forget():
    if os.path.lexists(alarm()):
        os.unlink(alarm())
