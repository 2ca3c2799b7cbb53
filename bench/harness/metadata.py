"""Who this machine is, asked of a metadata service on this machine: ours beside a script with curl."""

import http.server
import os
import shutil
import subprocess
import threading

from harness import measure

OURS = "nodestrap"
TOKEN = "bench-token"
ANSWERS = {
    "instance-id": "i-0123456789abcdef0",
    "instance-type": "m5.large",
    "local-ipv4": "10.0.0.7",
    "local-hostname": "ip-10-0-0-7.ec2.internal",
    "placement/availability-zone": "eu-west-1b",
    "placement/region": "eu-west-1",
}


class Service(http.server.BaseHTTPRequestHandler):
    """IMDSv2, as far as it is asked; connections stay open."""

    protocol_version = "HTTP/1.1"
    # One segment for each answer, as real services send them; else the kernel holds the second one back for 40 ms.
    wbufsize = 65536
    asked = []

    def do_PUT(self):
        self.answer(TOKEN if self.path == "/latest/api/token" else None)

    def do_GET(self):
        allowed = self.headers.get("X-aws-ec2-metadata-token") == TOKEN
        self.answer(ANSWERS.get(self.path.removeprefix("/latest/meta-data/")) if allowed else None)

    def answer(self, text):
        self.asked.append(self.path)
        body = (text or "").encode()
        self.send_response(200 if text else 404)
        self.send_header("Content-Type", "text/plain")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def measure_metadata(bench):
    """Adds the case `metadata`: what is asked, not what is made of it, so ours writes no file."""
    if not shutil.which("curl") or not shutil.which("bash"):
        return bench.skip("metadata", "the script beside it needs bash and curl")
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Service)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    try:
        service = f"http://127.0.0.1:{server.server_address[1]}"
        root = bench.workload().fresh_root(bench.path("metadata"))
        setting = os.path.join(root, "etc/nodestrap/platform")
        os.makedirs(os.path.dirname(setting), exist_ok=True)
        with open(setting, "w") as file:
            file.write(f"aws {service}\n")
        types = bench.path("max_pods.map")
        with open(types, "w") as file:
            file.writelines(f"x{number}.large 29\n" for number in range(600))
            file.write("m5.large 29\n")
        local = bench.path("kubelet.local.env")
        peers = os.path.join(os.path.dirname(os.path.dirname(os.path.realpath(__file__))), "peers")
        ours = [bench.nodestrap, "facts", "--root", root, "-o", "json"]
        script = [shutil.which("bash"), os.path.join(peers, "metadata.sh"), service, types, local]
        check(ours, script, local)
        runners = {OURS: lambda: measure.run(ours), "bash and curl": lambda: measure.run(script)}
        times = measure.interleave("metadata", bench.rounds["metadata"], runners)
        Service.asked.clear()
        subprocess.run(ours, check=True, capture_output=True)
        notes = {"requests": len(Service.asked)}
        return bench.add(
            "metadata", f"Ask the metadata service of AWS: {len(ANSWERS) - 1} values ({notes['requests']} requests), beside 3",
            times, {"bash and curl": "peer"}, notes=notes,
        )
    finally:
        server.shutdown()


def check(ours, script, local):
    """Who did not learn it has no time."""
    said = subprocess.run(ours, check=True, capture_output=True, text=True).stdout
    subprocess.run(script, check=True)
    with open(local) as file:
        written = file.read()
    for name in ("instance-id", "instance-type", "local-ipv4"):
        if ANSWERS[name] not in said or ANSWERS[name] not in written:
            raise RuntimeError(f"{name} was not learnt")
    if "MAX_PODS=29" not in written:
        raise RuntimeError("the script found no number of pods")
