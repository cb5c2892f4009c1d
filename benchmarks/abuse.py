"""What must hold under abuse, tried at length.

    python benchmarks/abuse.py strings FOLDER [--lines 1000000]    a vocabulary, random bytes
    python benchmarks/abuse.py pieces MODEL [--lines 1000000]      sentencepiece's ids, valid text
    python benchmarks/abuse.py kills [--times 100]                 processes killed while they save
    python benchmarks/abuse.py clients EXPORT [--minutes 10]       64 clients, some with bad rows

Each prints what it counted, and ends with status 1 if something did not hold.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "2")

import argparse
import collections
import contextlib
import http.client
import json
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

from server_clients import Server

LINES_AT_ONCE = 2000
LETTERS = "abcdefghijklmnopqrstuvwxyzABCDE0123456789 .,'-"
SAVE = """
import sys
import keras_lm
from keras_lm.tokenizers import WordPieceTokenizer
vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abc"]
size = {"num_layers": 2, "num_heads": 2, "hidden_dim": 256, "intermediate_dim": 1024}
backbone = keras_lm.models.BertBackbone(20000, **size)
tokenizer = WordPieceTokenizer(vocabulary + [f"w{i}" for i in range(20000 - 8)], lowercase=True)
task = keras_lm.tasks.TextRegressor(backbone, tokenizer=tokenizer)
print("ready", flush=True)
while True:
    task.save_to_preset(sys.argv[1])
"""


# === Strings ===


def random_line(source):
    """Return bytes: valid text of all planes, repeated pieces, and garbage."""
    parts = []
    for _ in range(source.randrange(12)):
        kind = source.randrange(6)
        if kind == 0:
            parts.append(source.randbytes(source.randrange(1, 5)))
        elif kind == 1:
            parts.append(source.choice([b"the ", b"[SEP]", b"</s>", b"<unk>", b" ", b"\x85"]))
        elif kind == 2:
            parts.append(chr(source.randrange(0xD800)).encode() * source.randrange(1, 9))
        elif kind == 3:
            parts.append(chr(source.randrange(0xE000, 0x110000)).encode())
        else:
            parts.append("".join(source.choices(LETTERS, k=8)).encode())
    return b"".join(parts)


def strings(arguments):
    """Tokenize random lines; ids and offsets must be in range, and lines independent of others."""
    import numpy as np

    from keras_lm.tokenizers import Tokenizer

    tokenizer = Tokenizer.from_preset(arguments.folder)
    source, failures, done = random.Random(arguments.seed), 0, 0
    while done < arguments.lines:
        lines = [random_line(source) for _ in range(LINES_AT_ONCE)]
        ids = tokenizer(lines)
        flat = ids.flat_values.numpy()
        failures += not (ids.nrows() == len(lines) and (flat >= 0).all())
        failures += int((flat >= tokenizer.vocabulary_size).sum())
        tokenizer.detokenize(ids)
        some = source.randrange(LINES_AT_ONCE - 10)
        alone = tokenizer(lines[some : some + 10])
        failures += alone.to_list() != ids[some : some + 10].to_list()
        with contextlib.suppress(NotImplementedError):  # not every tokenizer has offsets
            _, starts, ends = tokenizer.tokenize_with_offsets(lines)
            lengths = np.repeat([len(line) for line in lines], starts.row_lengths().numpy())
            starts, ends = starts.flat_values.numpy(), ends.flat_values.numpy()
            failures += int(((starts < 0) | (starts > ends) | (ends > lengths)).sum())
        done += len(lines)
    print(f"{type(tokenizer).__name__}: {done:,} lines, {failures} failures")
    return failures


def pieces(arguments):
    """Tokenize lines of pieces and of repeated letters, which have equally good ways to part."""
    import sentencepiece

    from keras_lm.tokenizers import SentencePieceTokenizer
    from keras_lm.tokenizers import sentence_piece_model as files

    tokenizer = SentencePieceTokenizer(arguments.model)
    reference = sentencepiece.SentencePieceProcessor(model_file=arguments.model)
    vocabulary = [piece.replace("▁", " ") for piece in tokenizer.vocabulary]
    model = files.parse_model(files.read_model(arguments.model))
    kept = [piece.piece for piece in model.pieces if piece.type == files.USER_DEFINED] or [" "]
    source, failures, done = random.Random(arguments.seed), 0, 0
    makers = (
        lambda: random_line(source).decode(errors="ignore"),
        lambda: source.choice(vocabulary),
        lambda: source.choice(kept),
        lambda: source.choice(LETTERS) * source.randrange(1, 9),
    )
    while done < arguments.lines:
        lines = [
            "".join(make() for make in source.choices(makers, (1, 4, 4, 4), k=source.randrange(9)))
            for _ in range(LINES_AT_ONCE)
        ]
        for line, ours, theirs in zip(lines, tokenizer(lines).to_list(), reference.encode(lines)):
            if ours != theirs:
                failures += 1
                print(repr(line), reference.id_to_piece(ours), reference.id_to_piece(theirs))
        done += len(lines)
    print(f"{arguments.model}: {done:,} lines, {failures} differ")
    return failures


# === Kills ===


def kills(arguments):
    """Kill a process that saves over a preset; it must be whole, and only one folder left over."""
    import keras_lm

    source, failures = random.Random(arguments.seed), 0
    with tempfile.TemporaryDirectory() as folder:
        preset = Path(folder, "preset")
        for number in range(arguments.times):
            process = subprocess.Popen(
                [sys.executable, "-c", SAVE, preset], stdout=subprocess.PIPE, text=True
            )
            process.stdout.readline()  # "ready"
            while number == 0 and not preset.exists():
                time.sleep(0.1)
            time.sleep(source.uniform(0, 1))
            process.send_signal(signal.SIGKILL)
            process.communicate()
            try:
                keras_lm.tasks.Task.from_preset(preset)
            except (OSError, ValueError) as error:
                print(f"kill {number}: {error}")
                failures += 1
            left = [path.name for path in Path(folder).iterdir() if path != preset]
            failures += len(left) > 1
    print(f"{arguments.times} kills, {failures} failures; left over by the last: {left}")
    return failures


# === Clients ===


def clients(arguments):
    """Ask a server from many clients; every good row gets the same answer, every bad one a 400."""
    server = Server(arguments.export)
    texts = ["a pleasure", "what a waste", "never a dull moment " * 20, "", "\0 \U0001f600"]
    expected = [ask(http.client.HTTPConnection(server.address), [text]) for text in texts]
    counts, end = collections.Counter(), time.monotonic() + 60 * arguments.minutes

    def client(number):
        source = random.Random(number)
        connection = http.client.HTTPConnection(server.address, timeout=120)
        while time.monotonic() < end:
            if source.random() < 0.05:
                status, _ = ask(connection, [source.choice([1, None, {"x": []}])])
                counts["bad rows refused" if status == 400 else "bad rows answered"] += 1
                continue
            place = source.randrange(len(texts))
            is_right = is_close(ask(connection, [texts[place]]), expected[place])
            counts["right" if is_right else "wrong"] += 1

    threads = [threading.Thread(target=client, args=[n]) for n in range(arguments.clients)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    server.stop()
    print(f"{arguments.clients} clients, {arguments.minutes} minutes: {dict(counts)}")
    return counts["wrong"] + counts["bad rows answered"] + (counts["right"] == 0)


def ask(connection, texts):
    """Return (status, answer)."""
    connection.request("POST", "/v1/models/model:predict", json.dumps({"inputs": {"text": texts}}))
    response = connection.getresponse()
    return response.status, json.loads(response.read())


def is_close(results, expected):
    """Whether two answers are the same, except for rounding."""
    if isinstance(results, dict) and isinstance(expected, dict):
        return results.keys() == expected.keys() and all(
            is_close(results[name], expected[name]) for name in results
        )
    if isinstance(results, (list, tuple)) and isinstance(expected, (list, tuple)):
        return len(results) == len(expected) and all(map(is_close, results, expected))
    if isinstance(results, float) and isinstance(expected, float):
        return abs(results - expected) < 1e-4
    return results == expected


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    kinds = parser.add_subparsers(required=True)
    kind = kinds.add_parser("strings")
    kind.add_argument("folder")
    kind.add_argument("--lines", type=int, default=1_000_000)
    kind.add_argument("--seed", type=int, default=0)
    kind.set_defaults(function=strings)
    kind = kinds.add_parser("pieces")
    kind.add_argument("model", help="a spiece.model")
    kind.add_argument("--lines", type=int, default=1_000_000)
    kind.add_argument("--seed", type=int, default=0)
    kind.set_defaults(function=pieces)
    kind = kinds.add_parser("kills")
    kind.add_argument("--times", type=int, default=100)
    kind.add_argument("--seed", type=int, default=0)
    kind.set_defaults(function=kills)
    kind = kinds.add_parser("clients")
    kind.add_argument("export")
    kind.add_argument("--clients", type=int, default=64)
    kind.add_argument("--minutes", type=float, default=10)
    kind.set_defaults(function=clients)
    arguments = parser.parse_args()
    sys.exit(1 if arguments.function(arguments) else 0)


if __name__ == "__main__":
    main()
