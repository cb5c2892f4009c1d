"""Speed of the development server with 1, 8 and 64 clients, with and without batching.

    python benchmarks/server_clients.py [--clients 1 8 64] [--export FOLDER] [--text FILE]
    python benchmarks/server_clients.py --endpoints --clients 64 --seconds 60

Two servers have the same export, one of them without its `batching_params.pbtxt`. Clients ask
`serving_default` over REST, a text each, on a connection of their own, and ask again once they are
answered. The servers take turns, so that what slows the machine slows both; the clients share a
process, and the machine with the servers. Without `--export`, a classifier of MiniLM's size with
random weights is made; without `--text`, the texts are the first words of film reviews.

Ratios are those within a round, batched ÷ not, and the median over all rounds: of the median
latency at 1 client below 1.05, and of requests per second at 64 clients above 1, are wanted.

With `--endpoints`, one server has a small embedder, a small language model and a `.tflite` of the
embedder, all with random weights, and clients ask each of its other endpoints in turn. Errors are
wanted to be none: answers other than 200, streams without their end, connections that break.
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

LETTERS = "abcdefghijklmnopqrstuvwxyz"
WORDS = 5  # of a text; some 25 tokens, as the vocabulary has letters only

# An endpoint → its path, and the request for a text; None is a GET.
COMPLETION = {"model": "writer", "max_tokens": 8}
ENDPOINTS = {
    "embeddings": ("/v1/embeddings", lambda text: {"model": "embedder", "input": text}),
    "completions": ("/v1/completions", lambda text: COMPLETION | {"prompt": text}),
    "completions, streamed": (
        "/v1/completions",
        lambda text: COMPLETION | {"prompt": text, "stream": True},
    ),
    "a .tflite": ("/v1/models/lite:predict", lambda text: {"inputs": {"text": [text]}}),
    "metrics": ("/metrics", None),
    "healthz": ("/healthz", None),
    "readyz": ("/readyz", None),
    "openapi.json": ("/openapi.json", None),
}


def make_export(folder):
    """Export a classifier of MiniLM's size: 6 layers, 384 wide."""
    from keras_lm.models import BertBackbone
    from keras_lm.tasks import TextClassifier
    from keras_lm.tokenizers import WordPieceTokenizer

    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS]
    vocabulary += [f"##{letter}" for letter in LETTERS]
    backbone = BertBackbone(len(vocabulary), 6, 12, 384, 1536, max_sequence_length=128)
    tokenizer = WordPieceTokenizer(vocabulary, lowercase=True)
    TextClassifier(backbone, class_names=["no", "yes"], tokenizer=tokenizer).export(folder)


def make_small_exports(folder):
    """Export an embedder, twice, and a language model of bytes; return their paths by name."""
    from keras_lm.models import BertBackbone, GPT2Backbone
    from keras_lm.tasks import CausalLM, FeatureExtractor
    from keras_lm.tokenizers import ByteTokenizer, WordPieceTokenizer

    size = {"num_layers": 2, "num_heads": 2, "hidden_dim": 64, "intermediate_dim": 128}
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{c}" for c in LETTERS)]
    backbone = BertBackbone(len(words), max_sequence_length=64, **size)
    embedder = FeatureExtractor(backbone, tokenizer=WordPieceTokenizer(words, lowercase=True))
    tokenizer = ByteTokenizer()
    network = GPT2Backbone(tokenizer.vocabulary_size, max_sequence_length=64, **size)
    writer = CausalLM(network, tokenizer=tokenizer)
    folders = {name: folder / name for name in ("embedder", "writer")}
    for task, place in zip((embedder, writer), folders.values(), strict=True):
        task.export(place)
    folders["lite"] = embedder.export(folder / "lite.tflite", format="litert")
    return folders


class Server:
    """`keras-lm serve` of folders by name, in a process of its own."""

    def __init__(self, folders):
        command = [Path(sys.executable).with_name("keras-lm"), "serve", *folders.values()]
        command += [part for name in folders for part in ("--name", name)]
        command += ["--engine", "embedded", "--rest-port", "0", "--grpc-port", "0"]
        self.process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True
        )
        for line in self.process.stdout:
            if line.startswith("REST:"):
                self.address = urlsplit(line.split()[1]).netloc
            if line.startswith("gRPC:"):
                self.grpc_address = line.split()[1]
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


def ask_endpoint(seconds, address, texts, number, endpoint):
    """Have clients ask an endpoint; return the latencies of the answers, and the errors."""
    latencies, errors, end = [], [], time.monotonic() + seconds
    texts = itertools.cycle(texts)
    path, request_for = ENDPOINTS[endpoint]

    def client():
        connection = http.client.HTTPConnection(address, timeout=120)
        while (start := time.monotonic()) < end:
            try:
                request = {} if request_for is None else request_for(next(texts))
                if request:
                    connection.request("POST", path, json.dumps(request))
                else:
                    connection.request("GET", path)
                response = connection.getresponse()
                answer = response.read()
                is_whole = b"[DONE]" in answer or not request.get("stream")
                if response.status != 200 or not is_whole:
                    errors.append(f"{response.status} {answer[-200:]}")
            except (OSError, http.client.HTTPException) as error:
                errors.append(f"{type(error).__name__}: {error}")
                connection.close()
            latencies.append(time.monotonic() - start)
        connection.close()

    threads = [threading.Thread(target=client) for _ in range(number)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return latencies, errors


def measure_endpoints(server, texts, arguments):
    print("endpoint                clients  requests  requests/s  median ms   99 % ms  errors")
    for endpoint in ENDPOINTS:
        for number in arguments.clients:
            start = time.monotonic()
            latencies, errors = ask_endpoint(
                arguments.seconds, server.address, texts, number, endpoint
            )
            rate, latencies = len(latencies) / (time.monotonic() - start), sorted(latencies)
            late = latencies[int(0.99 * (len(latencies) - 1))]
            print(
                f"{endpoint:24}{number:7} {len(latencies):9} {rate:11.1f} "
                f"{1000 * statistics.median(latencies):10.1f} {1000 * late:9.1f} {len(errors):7}",
                *dict.fromkeys(errors[:3]),
                flush=True,
            )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--clients", type=int, nargs="+", default=[1, 8, 64], help="how many")
    parser.add_argument("--export", type=Path, help="a folder of versions, of a task for one text")
    parser.add_argument("--text", help="a file with one text a line")
    parser.add_argument("--seconds", type=float, default=5, help="of each turn")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--endpoints", action="store_true", help="ask each of the other endpoints")
    arguments = parser.parse_args()

    texts = [" ".join(text.split()[:WORDS]) for text in read_texts(arguments.text)[:2000]]
    with tempfile.TemporaryDirectory() as temporary:
        if arguments.endpoints:
            server = Server(make_small_exports(Path(temporary)))
            try:
                return measure_endpoints(server, texts, arguments)
            finally:
                server.stop()
        folders = [Path(temporary, name) for name in ("batched", "alone")]
        if arguments.export:
            shutil.copytree(arguments.export, folders[0])
        else:
            make_export(folders[0])
        shutil.copytree(folders[0], folders[1])
        for file in folders[1].glob("*/batching_params.pbtxt"):
            file.unlink()
        servers = [Server({"model": folder}) for folder in folders]
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
