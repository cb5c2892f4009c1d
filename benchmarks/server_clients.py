"""Speed of the development server with 1, 8 and 64 clients, with and without batching.

    python benchmarks/server_clients.py [--clients 1 8 64] [--export FOLDER] [--text FILE]

Two servers have the same export, one of them without its `batching_params.pbtxt`. Clients ask
`serving_default` over REST, a text each, on a connection of their own, and ask again once they are
answered. The servers take turns, so that what slows the machine slows both; the clients share a
process, and the machine with the servers. Without `--export`, a classifier of MiniLM's size with
random weights is made; without `--text`, the texts are the first words of film reviews.

Ratios are those within a round, batched ÷ not, and the median over all rounds: of the median
latency at 1 client below 1.05, and of requests per second at 64 clients above 1, are wanted.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import argparse
import http.client
import itertools
import json
import shutil
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from urllib.parse import urlsplit

from materials import read_texts

WORDS = 5  # of a text; some 25 tokens, as the vocabulary has letters only


def make_export(folder):
    """Export a classifier of MiniLM's size: 6 layers, 384 wide."""
    from keras_lm.models import BertBackbone
    from keras_lm.tasks import TextClassifier
    from keras_lm.tokenizers import WordPieceTokenizer

    letters = "abcdefghijklmnopqrstuvwxyz"
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *letters]
    vocabulary += [f"##{letter}" for letter in letters]
    backbone = BertBackbone(
        vocabulary_size=len(vocabulary),
        num_layers=6,
        num_heads=12,
        hidden_dim=384,
        intermediate_dim=1536,
        max_sequence_length=128,
    )
    tokenizer = WordPieceTokenizer(vocabulary, lowercase=True)
    TextClassifier(backbone, class_names=["no", "yes"], tokenizer=tokenizer).export(folder)


class Server:
    """`keras-lm serve` of a folder, in a process of its own."""

    def __init__(self, folder):
        command = [Path(sys.executable).with_name("keras-lm"), "serve", folder, "--name", "model"]
        command += ["--engine", "embedded", "--rest-port", "0", "--grpc-port", "0"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        for line in self.process.stdout:
            if line.startswith("REST:"):
                self.address = urlsplit(line.split()[1]).netloc
            if line.startswith("Ctrl-C"):
                return
        raise RuntimeError("The server did not start.")

    def stop(self):
        self.process.terminate()
        self.process.communicate()


def ask_for(seconds, address, texts, number):
    """Have clients ask one text after the other; return (median latency, requests per second)."""
    latencies, end = [], time.monotonic() + seconds
    texts = itertools.cycle(texts)

    def client():
        connection = http.client.HTTPConnection(address)
        while (start := time.monotonic()) < end:
            body = json.dumps({"inputs": {"text": [next(texts)]}})
            connection.request("POST", "/v1/models/model:predict", body)
            response = connection.getresponse()
            answer = response.read()
            if response.status != 200:
                raise RuntimeError(answer)
            latencies.append(time.monotonic() - start)
        connection.close()

    threads = [threading.Thread(target=client) for _ in range(number)]
    start = time.monotonic()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return statistics.median(latencies), len(latencies) / (time.monotonic() - start)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64], help="how many")
    parser.add_argument("--export", type=Path, help="a folder of versions, of a task for one text")
    parser.add_argument("--text", help="a file with one text a line")
    parser.add_argument("--seconds", type=float, default=5, help="of each turn")
    parser.add_argument("--rounds", type=int, default=5)
    arguments = parser.parse_args()

    texts = [" ".join(text.split()[:WORDS]) for text in read_texts(arguments.text)[:2000]]
    with tempfile.TemporaryDirectory() as temporary:
        folders = [Path(temporary, name) for name in ("batched", "alone")]
        if arguments.export:
            shutil.copytree(arguments.export, folders[0])
        else:
            make_export(folders[0])
        shutil.copytree(folders[0], folders[1])
        for file in folders[1].glob("*/batching_params.pbtxt"):
            file.unlink()
        servers = [Server(folder) for folder in folders]
        try:
            measure(servers, texts, arguments)
        finally:
            for server in servers:
                server.stop()


def measure(servers, texts, arguments):
    print("clients  batched: ms, requests/s  alone: ms, requests/s  latency ÷  requests/s ÷")
    for number in arguments.clients:
        rounds = []
        for turn in range(arguments.rounds + 1):
            order = servers if turn % 2 else servers[::-1]
            figures = {
                server: ask_for(arguments.seconds if turn else 1, server.address, texts, number)
                for server in order
            }
            if turn:  # the first warms up
                rounds.append([*figures[servers[0]], *figures[servers[1]]])
        with_it, rate, alone, rate_alone = map(statistics.median, zip(*rounds))
        slower = statistics.median(one[0] / one[2] for one in rounds)
        faster = statistics.median(one[1] / one[3] for one in rounds)
        print(
            f"{number:7} {1000 * with_it:12.1f} {rate:12.1f} {1000 * alone:10.1f} "
            f"{rate_alone:11.1f} {slower:10.2f} {faster:14.2f}",
            flush=True,
        )


if __name__ == "__main__":
    main()
