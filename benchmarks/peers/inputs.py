"""What every peer gets: the same sizes, ids and texts; and times of fresh processes."""

import json
import resource
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
from protocol import timed

VOCABULARY_SIZE, NUM_LAYERS, NUM_HEADS, HIDDEN_DIM, INTERMEDIATE_DIM = 30522, 12, 12, 768, 3072
GPT2_VOCABULARY_SIZE = 50257
T5_VOCABULARY_SIZE, TRANSFORMER_VOCABULARY_SIZE = 32128, 37000
# Pretraining: the mask's id, the share of tokens it masks, the width of ELECTRA-small's generator.
MASK_ID, MASKED, GENERATOR = 103, 0.15, 1 / 4


def packed_batch(batch, length):
    """Return (token_ids, segment_ids, padding_mask), each (B, S) int32.

    Rows are padded, the last by half, so that nobody can leave the mask out.
    """
    token_ids = np.random.default_rng(0).integers(1000, 30000, (batch, length), dtype="int32")
    real = np.linspace(length, length // 2, batch).astype("int32")
    padding_mask = (np.arange(length) < real[:, None]).astype("int32")
    return token_ids * padding_mask, np.zeros_like(token_ids), padding_mask


def source_and_target(batch, length):
    """Return (ids, mask) of sources, and of targets, each (B, S) int32, padded as above."""
    source, _, mask = packed_batch(batch, length)
    target = np.random.default_rng(1).integers(1000, 30000, (batch, length), dtype="int32")
    target_mask = mask[::-1].copy()  # a long source may have a short target
    return (source, mask), (target * target_mask, target_mask)


def at_points(functions, calls):
    """Return a round that times a function of each point, (batch, length), under its own name."""

    def run_round():
        times = {}
        for point, function in functions.items():
            function()  # others had the caches
            times["×".join(map(str, point))] = timed(function, calls)()["seconds"]
        return times

    return run_round


def sources(batch, length):
    """Return the ids of sources with an end of theirs to come, (B, S - 1) int32."""
    return np.random.default_rng(0).integers(1000, 30000, (batch, length - 1), dtype="int32")


def prompts(batch, length):
    """Return the token ids of prompts without padding, (B, S) int32."""
    return np.random.default_rng(0).integers(0, 50000, (batch, length), dtype="int32")


def generating(generate, new_tokens, calls):
    """Return a round that takes the time of generating, and of a first token alone.

    Args:
        generate: callable that takes the number of new tokens, and returns how many each row got.
        new_tokens: int.
        calls: int.
    """

    def seconds(number):
        start = time.perf_counter()
        reached = generate(number)
        taken = time.perf_counter() - start
        if reached != number:
            raise ValueError(f"{reached} new tokens instead of {number}")
        return taken

    first_call = seconds(new_tokens)

    def run_round():
        numbers = {"prefill": [], "seconds": []}
        for _ in range(calls):
            numbers["prefill"].append(seconds(1))
            numbers["seconds"].append(seconds(new_tokens))
        kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return numbers | {"first_call": [first_call], "memory": [kilobytes * 1024]}

    return run_round


def writing(write, new_tokens, threads, calls):
    """Return a round that takes the time of writing, by the clock and of all cores together.

    With one thread, its `seconds` are those of the core: other programs may take turns with it.
    Other arguments are those of `generating`.
    """

    def run_round():
        numbers = {"clock": [], "processor": []}
        for _ in range(calls):
            start, of_process = time.perf_counter(), time.process_time()
            reached = write(new_tokens)
            numbers["processor"].append(time.process_time() - of_process)
            numbers["clock"].append(time.perf_counter() - start)
            if reached != new_tokens:
                raise ValueError(f"{reached} new tokens instead of {new_tokens}")
        return numbers | {"seconds": numbers["processor" if threads == 1 else "clock"]}

    return run_round


def epochs(train):
    """Return a round that trains for an epoch: its seconds of the processor, and the memory so far.

    Args:
        train: callable without arguments. Its first call warms up, so that rounds are later epochs.
    """

    def run_round():
        start = time.process_time()
        train()
        seconds = time.process_time() - start
        kilobytes = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return {"seconds": [seconds], "memory": [kilobytes * 1024]}

    return run_round


def classes(number):
    """Return a class of four for each of `number` texts, a list of int."""
    return np.random.default_rng(0).integers(4, size=number).tolist()


def labels(batch):
    """Return (B,) int32 of two classes."""
    return np.arange(batch, dtype="int32") % 2


def read_texts(path):
    """Return the texts of a JSON file."""
    return json.loads(Path(path).read_text(encoding="utf-8"))


def text_batches(path, size, limit=None):
    """Return the texts of a JSON file as lists of `size` texts each, at most `limit` of them."""
    texts = read_texts(path)
    starts = range(0, len(texts) - size + 1, size)
    return [texts[start : start + size] for start in starts][:limit]


def per_word(run_round, sentences):
    """Return a round whose times are for one word; `sentences` are lists of words."""
    number = sum(map(len, sentences))
    return lambda: {"seconds": [seconds / number for seconds in run_round()["seconds"]]}


def fresh_process(program, *arguments):
    """Run a Python program given as text in this interpreter; return the JSON it prints last."""
    done = subprocess.run(
        [sys.executable, "-c", program, *arguments], capture_output=True, text=True
    )
    if done.returncode:
        raise RuntimeError(done.stderr[-1000:])
    return json.loads(done.stdout.splitlines()[-1])


def importing(statement):
    """Return a round that takes the time of an import in a process of its own."""
    program = (
        f"import json, time; start = time.perf_counter()\n{statement}\n"
        "print(json.dumps({'seconds': [time.perf_counter() - start]}))"
    )
    return lambda: fresh_process(program)


# Beyond the imports: the memory is the most that the process ever had, so far and after them.
LOADING = """
import json, os, pathlib, re, sys, time
{imports}
def status(name):
    text = pathlib.Path("/proc/self/status").read_text()
    return int(re.search(name + r":\\s+(\\d+)", text)[1]) * 1024
pathlib.Path("/proc/self/clear_refs").write_text("5")
memory, start = status("VmRSS"), time.process_time()
{load}
loaded = time.process_time()
{read}
end = time.process_time()
size = pathlib.Path(folder, "model.safetensors").stat().st_size
numbers = {{"seconds": end - start, "load": loaded - start}}
numbers["peak"] = (status("VmHWM") - memory) / size
print(json.dumps({{name: [number] for name, number in numbers.items()}}))
"""


def loading(folder, imports, load, read):
    """Return a round that loads a folder in a process of its own, and reads each weight once.

    Args:
        folder: str.
        imports, load, read: str, lines of Python; `folder` is defined for the second.
    """
    imports += f"\nfolder = {folder!r}"
    program = LOADING.format(imports=imports, load=load, read=read)
    return lambda: fresh_process(program)


def folder_size(folder):
    """Return the bytes of all files in a folder."""
    return sum(file.stat().st_size for file in Path(folder).rglob("*") if file.is_file())
