#!/usr/bin/env bash
# requests 2.34.2 decodes JSON by simplejson as soon as that is installed, and simplejson 4.3.0
# refuses the NaN that TensorFlow Serving writes into its answers: response.json() is an error
# then. Packages bring it along (orbax-checkpoint does). Pass response.text to the module json.
# Output seen: without simplejson {'predictions': [nan]}, with it JSONDecodeError
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet requests==2.34.2
env/bin/pip install --quiet --target=more simplejson==4.3.0
env/bin/python - <<'END'
import http.server
import os
import subprocess
import sys
import threading

ASK = "import requests, sys; print(requests.get(sys.argv[1]).json())"


class Answer(http.server.BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(b'{"predictions": [NaN]}')

    def log_message(self, *args):
        pass


def ask(**variables):
    command = [sys.executable, "-c", ASK, f"http://127.0.0.1:{server.server_port}"]
    environment = {"no_proxy": "*"} | variables
    return subprocess.run(command, capture_output=True, text=True, env=os.environ | environment)


server = http.server.HTTPServer(("127.0.0.1", 0), Answer)
threading.Thread(target=server.serve_forever, daemon=True).start()
without, with_it = ask(), ask(PYTHONPATH="more")
last = with_it.stderr.splitlines()[-1].partition(":")[0].rpartition(".")[2]
print(f"without simplejson {without.stdout.strip()}, with it {last}")
assert without.stdout.strip() == "{'predictions': [nan]}"
assert with_it.returncode and last == "JSONDecodeError"
END
