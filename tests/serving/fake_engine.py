"""Plays `tensorflow_model_server` or `docker`, whichever it is called: what tests put on PATH.

It appends what it was given to the file FAKE_LOG, and does as FAKE says.
"""

import json
import os
import signal
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

STATUS = {"model_version_status": [{"version": "1", "state": "AVAILABLE"}]}
METADATA = {"metadata": {"signature_def": {"signature_def": {}}}}


class Handler(BaseHTTPRequestHandler):
    """A minimal server with any model."""

    def do_GET(self):
        if self.path == "/die":
            os._exit(4)
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(STATUS | METADATA).encode())

    def log_message(self, *_):
        pass


def value(words, option, ending=""):
    """What follows `option=`; the option may be there several times with different endings."""
    results = [w for w in words if w.startswith(f"{option}=") and w.endswith(ending)]
    return results[0].removeprefix(f"{option}=") if results else None


def main(name, words, mode):
    if words[0] == "version":
        return 1 if mode == "no engine" else 0
    if words[0] == "kill":
        return 0
    if name == "docker":
        port = value(words, "--publish", ":8501").split(":")[1]
        mounts = [word.split('"')[1].removeprefix("source=") for word in words if '"' in word]
        config = Path(mounts[0]) / "models.config"
    else:
        port = value(words, "--rest_api_port")
        config = Path(value(words, "--model_config_file"))
    record = {"name": name, "words": words, "config": config.read_text(), "pid": os.getpid()}
    with open(os.environ["FAKE_LOG"], "a") as log:
        log.write(json.dumps(record) + "\n")
    print("Starting.", file=sys.stderr)
    if mode == "no image":
        print("docker: Error response from daemon: no route\nSee --help.", file=sys.stderr)
        return 125
    if mode == "broken":
        print("cannot open the model", file=sys.stderr)
        return 3
    if mode == "stubborn":
        signal.signal(signal.SIGTERM, signal.SIG_IGN)
    HTTPServer(("127.0.0.1", int(port)), Handler).serve_forever()


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[0]).name, sys.argv[1:], os.environ.get("FAKE")))
