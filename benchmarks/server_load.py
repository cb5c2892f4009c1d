"""What must hold under load: 64 clients of the development server, some of whom leave.

    python benchmarks/server_load.py [--minutes 4] [--warm-up 40]

A server of its own process has a small classifier and a small language model, with random weights.
Clients ask both over REST and gRPC, and read streams; some leave streams before the first piece or
in the middle, some have deadlines that pass, and each second one sends as large a request as the
limits allow, half of which do not wait for the answer. All answers are compared with those of an
idle server. It ends with status 1 unless

- no answer is wrong: other numbers or texts, another status than 200, a stream without its end. A
  request of the largest size may hear 429, as two run at a time;
- the server has not ended, and `/healthz` always answered;
- its memory at the end is at most 1.1 times that after the warm-up, which is the same load.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import argparse
import collections
import http.client
import json
import random
import sys
import tempfile
import threading
import time
from pathlib import Path

import grpc
import numpy as np
import psutil
import tensorflow as tf
from server_clients import LETTERS, Server
from tensorflow_serving.apis import predict_pb2, prediction_service_pb2_grpc

TEXTS = ["a pleasure", "what a waste", "never a dull moment " * 20, "", "so it is \U0001f600"]
PROMPTS = ["once", "the film", "a b c d"]
NEW = 12  # tokens of a usual text
MOST = {"prompt": ["a"] * 64, "max_tokens": 1000}  # with the prompts, just within the bound
SHARES = {  # of the clients, out of 64
    "classify over REST": 20,
    "classify over gRPC": 12,
    "complete over REST": 12,
    "stream": 8,
    "leave a stream": 6,
    "leave a queue": 2,
    "deadline": 4,
}


def make_exports(folder):
    from keras_lm.models import BertBackbone, GPT2Backbone
    from keras_lm.tasks import CausalLM, TextClassifier
    from keras_lm.tokenizers import ByteTokenizer, WordPieceTokenizer

    size = {"num_layers": 2, "num_heads": 2, "hidden_dim": 64, "intermediate_dim": 128}
    words = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *LETTERS, *(f"##{c}" for c in LETTERS)]
    backbone = BertBackbone(len(words), max_sequence_length=64, **size)
    tokenizer = WordPieceTokenizer(words, lowercase=True)
    critic = TextClassifier(backbone, tokenizer=tokenizer, class_names=["no", "yes"])
    tokenizer = ByteTokenizer()
    network = GPT2Backbone(tokenizer.vocabulary_size, max_sequence_length=1024, **size)
    tasks = {"critic": critic, "writer": CausalLM(network, tokenizer=tokenizer)}
    for name, task in tasks.items():
        task.export(folder / name)
    return {name: folder / name for name in tasks}


class Asked:
    """The ways to ask a server; each returns what it was answered."""

    def __init__(self, server):
        self.address = server.address
        self.channel = grpc.insecure_channel(server.grpc_address)
        self.stub = prediction_service_pb2_grpc.PredictionServiceStub(self.channel)

    def rest(self, path, body=None, timeout=120, read=True):
        connection = http.client.HTTPConnection(self.address, timeout=timeout)
        try:
            connection.request("GET" if body is None else "POST", path, body and json.dumps(body))
            response = connection.getresponse()
            return response.status, (response.read() if read else response.read(1)).decode()
        finally:
            connection.close()

    def classify(self, text):
        status, body = self.rest("/v1/models/critic:predict", {"inputs": {"text": [text]}})
        return status, json.loads(body).get("outputs")

    def classify_over_grpc(self, text):
        request = predict_pb2.PredictRequest()
        request.model_spec.name = "critic"
        request.inputs["text"].CopyFrom(tf.make_tensor_proto([text.encode()]))
        outputs = self.stub.Predict(request, timeout=120).outputs
        return [label.decode() for label in outputs["labels"].string_val]

    def complete(self, prompt):
        body = {"model": "writer", "prompt": prompt, "max_tokens": NEW, "temperature": 0}
        status, body = self.rest("/v1/completions", body)
        return status, json.loads(body).get("choices")

    def stream(self, prompt, number=NEW, **how):
        body = {"prompt": prompt, "max_new_tokens": number}
        return self.rest("/v1/models/writer:stream", body, **how)

    def generate_over_grpc(self, prompt, number, seconds):
        request = predict_pb2.PredictRequest()
        request.model_spec.name, request.model_spec.signature_name = "writer", "generate"
        request.inputs["prompt"].CopyFrom(tf.make_tensor_proto([prompt.encode()]))
        request.inputs["max_new_tokens"].CopyFrom(tf.make_tensor_proto([number], tf.int32))
        return self.stub.Predict(request, timeout=seconds).outputs["text"].string_val[0]


class Load:
    """Clients that ask until `end`, and what they counted."""

    def __init__(self, server):
        self.server, self.asked = server, Asked(server)
        self.counts, self.lock = collections.Counter(), threading.Lock()
        self.faults = []
        self.labels = {text: self.asked.classify(text) for text in TEXTS}
        self.texts = {prompt: self.asked.complete(prompt) for prompt in PROMPTS}
        self.long = self.asked.generate_over_grpc("a", 200, 120)
        self.memory, self.sizes = psutil.Process(server.process.pid).memory_info, []
        self.slowest_health = 0

    def count(self, what, is_right=True, results=None):
        with self.lock:
            self.counts[what if is_right else f"WRONG: {what}"] += 1
            if not is_right:
                self.faults.append(f"{what}: {str(results)[:300]}")

    def ask(self, kind, source):
        """Ask once; return whether the answer is right, and the answer."""
        text, prompt = source.choice(TEXTS), source.choice(PROMPTS)
        if kind == "classify over REST":
            results = self.asked.classify(text)
            return is_close(results, self.labels[text]), results
        if kind == "classify over gRPC":
            results = self.asked.classify_over_grpc(text)
            return results == self.labels[text][1]["labels"], results
        if kind == "complete over REST":
            results = self.asked.complete(prompt)
            return results == self.texts[prompt], results
        if kind == "stream":
            status, body = self.asked.stream(prompt)
            events = [json.loads(line[6:]) for line in body.split("\n") if line]
            written = "".join(event.get("text", "") for event in events)
            is_whole = bool(events) and events[-1].get("done")
            return is_whole and written == self.texts[prompt][1][0]["text"], (status, body)
        if kind == "leave a stream":  # after a piece
            return self.asked.stream("a", 1000, read=False)[0] == 200, None
        if kind == "leave a queue":  # most often before one
            try:
                return self.asked.stream("a", 1000, timeout=0.05, read=False)[0] == 200, None
            except TimeoutError:
                return True, None
        try:
            results = self.asked.generate_over_grpc("a", 200, source.choice([0.05, 0.2, 1]))
            return results == self.long, results
        except grpc.RpcError as error:
            return error.code() is grpc.StatusCode.DEADLINE_EXCEEDED, error

    def client(self, kind, number):
        source = random.Random(number)
        while time.monotonic() < self.end:
            try:
                self.count(kind, *self.ask(kind, source))
            except Exception as error:  # whatever it is, it is no right answer
                self.count(kind, False, repr(error))

    def largest(self, is_waiting):
        timeout = 300 if is_waiting else 2
        try:
            status, body = self.asked.rest(
                "/v1/completions", {"model": "writer"} | MOST, timeout=timeout
            )
            self.count(f"largest: {status}", status in (200, 429), body)
        except TimeoutError:
            self.count("largest: left", not is_waiting)

    def run(self, seconds):
        """Ask for so long, and wait for the last answers."""
        self.end = time.monotonic() + seconds
        kinds = [kind for kind, share in SHARES.items() for _ in range(share)]
        threads = [
            threading.Thread(target=self.client, args=[kind, number])
            for number, kind in enumerate(kinds)
        ]
        for thread in threads:
            thread.start()
        while time.monotonic() < self.end:
            self.sizes.append(self.memory().rss)
            threads.append(threading.Thread(target=self.largest, args=[len(threads) % 2]))
            threads[-1].start()
            start = time.monotonic()
            self.count("health", self.asked.rest("/healthz")[0] == 200)
            self.slowest_health = max(self.slowest_health, time.monotonic() - start)
            time.sleep(max(start + 1 - time.monotonic(), 0))
        for thread in threads:
            thread.join()


def is_close(results, expected):
    if results[0] != 200 or results[1]["labels"] != expected[1]["labels"]:
        return False
    return np.allclose(results[1]["scores"], expected[1]["scores"], atol=1e-4)


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--minutes", type=float, default=4)
    parser.add_argument("--warm-up", type=float, default=40, help="seconds")
    arguments = parser.parse_args()
    with tempfile.TemporaryDirectory() as temporary:
        server = Server(make_exports(Path(temporary)))
        load = Load(server)
        start = load.memory().rss
        load.run(arguments.warm_up)
        warm, number, before = load.memory().rss, sum(load.counts.values()), len(load.sizes)
        load.run(60 * arguments.minutes)
        end = load.memory().rss
        has_ended = server.process.poll() is not None
        server.stop()
    for what, count in sorted(load.counts.items()):
        print(f"{what:28} {count:7}")
    print(f"{sum(load.counts.values()) - number} answers after the warm-up")
    print(*dict.fromkeys(load.faults[:10]), sep="\n")
    print(f"/healthz took {load.slowest_health:.2f} s at most")
    sizes = [f"{size / 2**20:.0f}" for size in (start, warm, end)]
    print(f"MiB at the start, after the warm-up, at the end: {', '.join(sizes)}")
    each = [f"{size / 2**20:.0f}" for size in load.sizes[before::20]]
    print(f"Every 20 s between: {', '.join(each)}")
    print(f"{end / warm:.2f} times the memory; the server has {'' if has_ended else 'not '}ended")
    sys.exit(bool(load.faults) or has_ended or end > 1.1 * warm)


if __name__ == "__main__":
    main()
