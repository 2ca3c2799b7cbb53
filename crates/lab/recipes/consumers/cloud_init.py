"""check.py COUNT [UNIT ...]: gives /mnt/0.user-data, /mnt/1.user-data ... to cloud-init's own code, on a machine that
has these units; prints a JSON list with a verdict for each.

Runs in a tree that is thrown away: what cloud-init writes is written, looked at, and removed before the next file.
"""
import argparse
import contextlib
import hashlib
import importlib.util
import io
import json
import logging
import os
import shutil
import stat
import sys

import yaml
from cloudinit import handlers, helpers, user_data, util
from cloudinit.config import cc_write_files, schema

SCHEMA = schema.get_schema()
KNOWN_KEYS = {key for part in SCHEMA["$defs"].values() for key in part.get("properties", {})}
BUILT_IN = set(handlers.INCLUSION_TYPES_MAP.values()) | {"text/x-shellscript", "text/cloud-config"}
# Where deliveries write.
WATCHED = ["/etc", "/opt", "/usr/bin", "/usr/lib/systemd/system", "/usr/local", "/var/lib/cloud"]


class Warnings(logging.Handler):
    """cloud-init goes on after most errors and only says so in its log."""

    def __init__(self):
        super().__init__(logging.DEBUG)
        self.said = []

    def emit(self, record):
        # The exception itself goes to the debug log.
        if record.exc_info and record.exc_info[1]:
            self.said.append(f"{record.exc_info[0].__name__}: {record.exc_info[1]}")
        elif record.levelno >= logging.WARNING:
            self.said.append(record.getMessage())


def to_bytes(payload):
    return payload.encode() if isinstance(payload, str) else payload


def schema_complaints(payload):
    """What `cloud-init schema` says, and keys that it does not know: this release ignores them without a word."""
    path = "/tmp/cloud-config"
    with open(path, "wb") as file:
        file.write(to_bytes(payload))
    said = io.StringIO()
    options = argparse.Namespace(config_file=path, docs=None, system=False, annotate=False)
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            schema.handle_schema_args("schema", options)
    except SystemExit:
        pass
    text = said.getvalue().strip()
    complaints = [] if text == f"Valid cloud-config: {path}" else [text]
    config = yaml.safe_load(payload)
    if isinstance(config, dict):
        complaints += [f"no module of cloud-init knows the key '{key}'" for key in sorted(set(config) - KNOWN_KEYS)]
    return complaints


def write_files(payload):
    entries = (yaml.safe_load(payload) or {}).get("write_files", [])
    # cloud-init does the deferred ones after users and packages are there; neither is here.
    now = [entry for entry in entries if not entry.get("defer")]
    cc_write_files.write_files("check", now, "root:root")


def load_handler(payload, number):
    path = f"/tmp/part_handler_{number}.py"
    with open(path, "wb") as file:
        file.write(to_bytes(payload))
    specification = importlib.util.spec_from_file_location(f"part_handler_{number}", path)
    module = importlib.util.module_from_spec(specification)
    specification.loader.exec_module(module)
    # What it would download is nowhere, and there is no network here: an empty file takes its place.
    if hasattr(module, "download"):
        module.download = lambda urls, digest, path, proxy: make_empty(path)
    return handlers.fixup_handler(module)


def make_empty(path):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "wb"):
        pass


def snapshot():
    found = {}
    for top in WATCHED:
        for folder, _, names in os.walk(top):
            for name in names:
                path = os.path.join(folder, name)
                status = os.lstat(path)
                if stat.S_ISREG(status.st_mode):
                    found[path] = (status.st_mtime_ns, status.st_ino)
    return found


def take_written(before):
    """What is new or changed, removed again so that the next file finds the tree as it was."""
    written = {}
    for path, identity in snapshot().items():
        if before.get(path) != identity:
            with open(path, "rb") as file:
                content = file.read()
            written[path] = {
                "sha256": hashlib.sha256(content).hexdigest(),
                "mode": format(stat.S_IMODE(os.lstat(path).st_mode), "04o"),
                "text": content.decode("utf-8", "replace"),
            }
            os.unlink(path)
    return written


def judge(blob, before):
    complaints, types, custom, used = [], [], {}, set()
    warnings = Warnings()
    logging.getLogger().handlers = [warnings]
    logging.getLogger().setLevel(logging.DEBUG)
    processor = user_data.UserDataProcessor(helpers.Paths({"cloud_dir": "/tmp/cloud"}))
    for part in processor.process(blob).walk():
        if part.get_content_maintype() == "multipart":
            continue
        kind, payload = part.get_content_type(), util.fully_decoded_payload(part)
        types.append(kind)
        try:
            if kind == "text/cloud-config":
                complaints += schema_complaints(payload)
                write_files(payload)
            elif kind == "text/part-handler":
                module = load_handler(payload, len(types))
                handlers.call_begin(module, {}, handlers.PER_INSTANCE)
                custom.update({listed: module for listed in module.list_types()})
            elif kind in custom:
                used.add(kind)
                handlers.run_part(
                    custom[kind], {}, part.get_filename(), payload, handlers.PER_INSTANCE, {"Content-Type": kind}
                )
            elif kind not in BUILT_IN:
                complaints.append(f"nothing in cloud-init handles a part of type '{kind}'")
        except Exception as error:
            complaints.append(f"{kind}: {type(error).__name__}: {error}")
    for module in set(custom.values()):
        handlers.call_end(module, {}, handlers.PER_INSTANCE)
        if not used.intersection(module.list_types()):
            complaints.append(f"a part handler is for {module.list_types()}, and no part is of these types")
    complaints += warnings.said
    return {"complaints": complaints, "types": types, "written": take_written(before)}


def main():
    # cloud-init's helpers print; the answer must be alone on the standard output.
    answer, sys.stdout = sys.stdout, sys.stderr
    # An image brings them, or user data does.
    for unit in sys.argv[2:]:
        shutil.copy(f"/mnt/{unit}", "/usr/lib/systemd/system/")
    # Each file has handlers of the same name: what Python compiled for one must not be run for the next.
    sys.dont_write_bytecode = True
    before = snapshot()
    verdicts = []
    for number in range(int(sys.argv[1])):
        with open(f"/mnt/{number}.user-data", "rb") as file:
            verdicts.append(judge(file.read(), before))
        shutil.rmtree("/tmp/cloud", ignore_errors=True)
    json.dump(verdicts, answer)


main()
