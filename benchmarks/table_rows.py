"""Peak memory of `keras-lm predict in.parquet --output out.parquet`, by the number of rows.

    python benchmarks/table_rows.py [--rows 100000 1000000]

The model is a BERT of one layer with random weights, which answers fast. Each run is a process of
its own; its peak is VmHWM, as the system counts it. It also checks the rows that come out.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

WORDS = ["a", "the", "film", "song", "was", "good", "bad", "loud", "long", "dull", "joy", "end"]
PARTS = 10  # row groups


def make_preset(folder):
    """Write a preset of a small classifier."""
    from keras_lm import models, tasks
    from keras_lm.tokenizers import WordPieceTokenizer

    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS]
    backbone = models.BertBackbone(len(vocabulary), 1, 2, 16, 32, max_sequence_length=24)
    tokenizer = WordPieceTokenizer(vocabulary, lowercase=True)
    tasks.TextClassifier(backbone, tokenizer=tokenizer, num_classes=2).save_to_preset(folder)


def write_rows(path, number):
    """Write a table of ids and texts, with a dictionary of its own in each part."""
    writer = None
    for part in range(PARTS):
        ids = range(part * number // PARTS, (part + 1) * number // PARTS)
        texts = [" ".join(WORDS[(i * k) % len(WORDS)] for k in range(1, 8)) for i in ids]
        table = pa.table({"id": pa.array(ids), "text": pa.array(texts).dictionary_encode()})
        writer = writer or pq.ParquetWriter(path, table.schema)
        writer.write_table(table)
    writer.close()


def measure(preset, source, target):
    """Return the peak memory in MB and the processor seconds of the command."""
    command = [Path(sys.executable).with_name("keras-lm"), "predict", preset, source]
    start = time.perf_counter()
    process = subprocess.Popen([*map(str, command), "--output", target, "--batch-size", "256"])
    _, status, usage = os.wait4(process.pid, 0)
    assert status == 0, f"the command ended with {status}"
    seconds = usage.ru_utime + usage.ru_stime
    return usage.ru_maxrss / 1024, seconds, time.perf_counter() - start


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--rows", type=int, nargs="+", default=[100_000, 1_000_000])
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        make_preset(folder / "preset")
        for number in parser.parse_args().rows:
            source, target = folder / f"{number}.parquet", folder / f"{number}-answers.parquet"
            write_rows(source, number)
            memory, seconds, wall = measure(folder / "preset", source, target)
            ids = pq.read_table(target, columns=["id"]).column("id")
            assert ids.equals(pq.read_table(source, columns=["id"]).column("id"))
            print(f"{number:>9,} rows: {memory:,.0f} MB, {seconds:.0f} s of a core, {wall:.0f} s")


if __name__ == "__main__":
    main()
