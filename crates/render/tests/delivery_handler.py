"""Scenarios for the part handler: each starts from a rendered message and an empty root folder."""
import base64
import email
import hashlib
import http.server
import importlib.util
import io
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time

BINARY = bytes(range(256)) * 4000
DIGEST = hashlib.sha256(BINARY).hexdigest()
TARGET = "/opt/bin/nodestrap"
UNIT = "/etc/systemd/system/k8s-node-bootstrap.service"
BUNDLE = "/etc/nodestrap/bundle.json"
ALARM = "/var/lib/cloud/instance/scripts/nodestrap-failed"


class Mirrors(object):
    """A server whose answers are told by the path; counts requests."""

    def __init__(self):
        self.requests = []
        self.logins = []
        self.flaky = 0
        outer = self

        class Answer(http.server.BaseHTTPRequestHandler):
            def do_GET(self):
                outer.requests.append(self.path)
                outer.logins.append(self.headers.get("Proxy-Authorization"))
                name = self.path.strip("/")
                if name == "missing":
                    return self.send_error(404)
                if name == "flaky":
                    outer.flaky += 1
                    if outer.flaky == 1:
                        return self.send_error(503)
                body = BINARY[:-1] + b"x" if name == "wrong" else BINARY
                self.send_response(200)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                if name == "truncated":
                    body = body[: len(body) // 2]
                if name == "slow":
                    self.wfile.write(body[:1000])
                    self.wfile.flush()
                    time.sleep(60)
                self.wfile.write(body)
                self.close_connection = True

            def log_message(self, *_):
                pass

        self.server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Answer)
        self.server.daemon_threads = True
        threading.Thread(target=self.server.serve_forever, daemon=True).start()

    def url(self, name):
        return "http://127.0.0.1:%d/%s" % (self.server.server_address[1], name)


class Boot(object):
    """One run of cloud-init's walk through the message, with a fresh import of the handler as on every boot."""

    def __init__(self, folder, urls, frequency="once-per-instance", digest=DIGEST, proxy=None):
        self.root, self.errors, self.systemctl = os.path.join(folder, "root"), [], []
        os.makedirs(self.root, exist_ok=True)
        with open(os.path.join(folder, "user-data")) as file:
            message = email.message_from_string(file.read())
        handler = None
        for part in message.walk():
            payload, ctype = part.get_payload(decode=True), part.get_content_type()
            if part.get_content_maintype() == "multipart":
                continue
            if ctype == "text/part-handler":
                path = os.path.join(folder, "part-handler.py")
                with open(path, "wb") as file:
                    file.write(payload)
                spec = importlib.util.spec_from_file_location("part_handler", path)
                handler = importlib.util.module_from_spec(spec)
                spec.loader.exec_module(handler)
                handler.ROOT, handler.PAUSE = self.root, 0.01
                handler.systemctl = lambda *arguments: self.systemctl.append(arguments)
                self.call(handler, "__begin__", None, frequency)
                continue
            assert ctype in handler.list_types(), ctype
            if ctype == handler.INSTALL:
                order = json.loads(payload.decode())
                order["urls"], order["sha256"] = urls, digest
                if proxy:
                    order["proxy"] = proxy
                payload = json.dumps(order).encode()
            self.call(handler, ctype, payload, frequency)
        self.call(handler, "__end__", None, frequency)

    def call(self, handler, ctype, payload, frequency):
        try:
            handler.handle_part({}, ctype, "name", payload, frequency)
        except Exception as error:  # as cloud-init does
            self.errors.append(str(error))

    def read(self, path):
        with open(self.root + path, "rb") as file:
            return file.read()

    def mode(self, path):
        return stat.S_IMODE(os.stat(self.root + path).st_mode)

    def files(self):
        found = []
        for folder, _, names in os.walk(self.root):
            found += [os.path.join(folder, name)[len(self.root) :] for name in names]
        return sorted(found)


def expect_complete(boot, folder):
    assert boot.errors == [], boot.errors
    assert boot.files() == sorted([TARGET, UNIT, BUNDLE]), boot.files()
    assert boot.read(TARGET) == BINARY and boot.mode(TARGET) == 0o755
    assert boot.mode(UNIT) == 0o644 and b"ExecStartPre=/opt/bin/nodestrap apply\n" in boot.read(UNIT)
    with open(os.path.join(folder, "expected.json"), "rb") as file:
        assert boot.read(BUNDLE) == file.read()
    assert boot.mode(BUNDLE) == 0o600
    name = os.path.basename(UNIT)
    assert boot.systemctl == [("daemon-reload",), ("enable", name), ("start", "--no-block", name)], boot.systemctl


def expect_nothing(boot, *said):
    assert boot.files() == [ALARM], boot.files()
    assert boot.systemctl == []
    assert len(boot.errors) == 2, boot.errors
    for text in said:
        assert text in boot.errors[0], boot.errors
    assert "not installed" in boot.errors[1], boot.errors
    # What cloud-init runs in its last stage: it must fail, and say why.
    run = subprocess.run([boot.root + ALARM], stderr=subprocess.PIPE)
    assert run.returncode == 1 and b"nodestrap: " in run.stderr, run
    for text in said:
        assert text.encode() in run.stderr, run


def installs_the_binary_the_unit_and_the_bundle(folder, mirrors):
    expect_complete(Boot(folder, [mirrors.url("good")]), folder)
    assert mirrors.requests == ["/good"]


def does_not_download_what_is_there_already(folder, mirrors):
    Boot(folder, [mirrors.url("good")])
    # A clone of the disk is another instance: everything is written anew, and nothing is fetched.
    expect_complete(Boot(folder, [mirrors.url("good")]), folder)
    assert mirrors.requests == ["/good"], mirrors.requests
    os.chmod(os.path.join(folder, "root") + TARGET, 0o600)
    expect_complete(Boot(folder, [mirrors.url("good")]), folder)


def goes_on_to_the_next_mirror_after_404_and_a_refused_connection(folder, mirrors):
    urls = [mirrors.url("missing"), "http://127.0.0.1:9/nodestrap", mirrors.url("wrong"), mirrors.url("good")]
    expect_complete(Boot(folder, urls), folder)
    assert mirrors.requests == ["/missing", "/wrong", "/good"], mirrors.requests


def tries_again_when_all_mirrors_fail_once(folder, mirrors):
    expect_complete(Boot(folder, [mirrors.url("flaky"), mirrors.url("missing")]), folder)
    assert mirrors.requests == ["/flaky", "/missing", "/flaky"], mirrors.requests


def refuses_a_wrong_digest_and_leaves_nothing(folder, mirrors):
    expect_nothing(Boot(folder, [mirrors.url("wrong")]), "SHA-256", DIGEST)
    assert len(mirrors.requests) == 6, "the rounds are bounded"


def refuses_a_truncated_body_and_leaves_nothing(folder, mirrors):
    expect_nothing(Boot(folder, [mirrors.url("truncated")]), "could not be downloaded")


def writes_no_bundle_when_the_installation_failed(folder, mirrors):
    expect_nothing(Boot(folder, [mirrors.url("missing")]), "404")


def finishes_on_a_later_boot_and_then_leaves_the_machine_alone(folder, mirrors):
    expect_nothing(Boot(folder, [mirrors.url("missing")]), "404")
    expect_complete(Boot(folder, [mirrors.url("good")], frequency="always"), folder)
    # An upgrade in place since then must survive every later boot.
    root = os.path.join(folder, "root")
    for path in (TARGET, BUNDLE):
        with open(root + path, "wb") as file:
            file.write(b"newer")
    boot = Boot(folder, [mirrors.url("good")], frequency="always")
    assert boot.errors == [] and boot.systemctl == []
    assert boot.read(TARGET) == b"newer" and boot.read(BUNDLE) == b"newer"


def recovers_from_being_killed_during_the_download(folder, mirrors):
    child = os.fork()
    if child == 0:
        Boot(folder, [mirrors.url("slow")])
        os._exit(1)
    part = os.path.join(folder, "root") + TARGET + ".part"
    for _ in range(3000):
        if os.path.exists(part):
            break
        time.sleep(0.01)
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    left = [os.path.relpath(os.path.join(at, name), folder) for at, _, names in os.walk(os.path.join(folder, "root")) for name in names]
    assert left == ["root" + TARGET + ".part"], left
    expect_complete(Boot(folder, [mirrors.url("good")]), folder)


def asks_by_the_proxy_of_the_spec_unless_a_mirror_is_reached_directly(folder, mirrors):
    proxy = {"http": mirrors.url("").rstrip("/"), "https": None, "direct": [".inside.example", "10.0.0.0/8", "fd00::/8"]}
    expect_complete(Boot(folder, ["http://mirror.example.com/good"], proxy=proxy), folder)
    assert mirrors.requests == ["http://mirror.example.com/good"], mirrors.requests
    os.remove(os.path.join(folder, "root") + BUNDLE)
    os.remove(os.path.join(folder, "root") + TARGET)
    direct = {"http": "http://127.0.0.1:9", "https": None, "direct": ["localhost", "127.0.0.0/8"]}
    expect_complete(Boot(folder, [mirrors.url("good")], proxy=direct), folder)
    assert mirrors.requests[1:] == ["/good"], mirrors.requests


def tells_the_proxy_who_it_is(folder, mirrors):
    proxy = {"http": mirrors.url("").rstrip("/").replace("//", "//me%40work:p%3Aw@"), "https": None, "direct": []}
    expect_complete(Boot(folder, ["http://mirror.example.com/good"], proxy=proxy), folder)
    assert mirrors.logins == ["Basic " + base64.b64encode(b"me@work:p:w").decode()], mirrors.logins


def ignores_a_proxy_of_the_environment(folder, mirrors):
    os.environ["http_proxy"] = os.environ["HTTP_PROXY"] = "http://127.0.0.1:9"
    expect_complete(Boot(folder, [mirrors.url("good")]), folder)


def refuses_a_bundle_that_is_none_or_too_large(folder, mirrors):
    Boot(folder, [mirrors.url("good")])
    spec = importlib.util.spec_from_file_location("again", os.path.join(folder, "part-handler.py"))
    handler = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(handler)
    handler.ROOT, handler.systemctl = os.path.join(folder, "other"), lambda *_: None
    packed = io.BytesIO()
    with handler.gzip.GzipFile(fileobj=packed, mode="wb") as stream:
        stream.write(b" " * (2 << 20))
    for payload in (b"{}", b"{", b'{"kind": "Cluster"}', packed.getvalue()):
        try:
            handler.deliver(payload)
        except ValueError:
            continue
        raise AssertionError(payload[:40])
    assert not os.path.exists(handler.ROOT + BUNDLE)


if __name__ == "__main__":
    globals()[sys.argv[1]](sys.argv[2], Mirrors())
