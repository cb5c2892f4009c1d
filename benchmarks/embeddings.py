"""Embeddings that learn, beside sentence-transformers: what a search finds before and after.

    python benchmarks/embeddings.py SOURCE dev-v2.0.json --train 2000 --seeds 3 > rows.jsonl
    python benchmarks/embeddings.py SOURCE dev-v2.0.json --peer PYTHON >> rows.jsonl
    python benchmarks/embeddings.py SOURCE dev-v2.0.json --steps 32 256 [--peer PYTHON]

Questions of SQuAD learn to find the sentence that holds their answer, among all sentences of the
articles that were held out. A line of output is one run: recall@1 and NDCG@10 before and after, or
with `--steps` the seconds of the processor that a step of this many pairs takes. PYTHON is the
interpreter of an environment with sentence-transformers, which gets the same pairs in the same
order, at the same rate. One thread each.
"""

import argparse
import json
import os
import random
import re
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

THREADS = ("TF_NUM_INTRAOP_THREADS", "TF_NUM_INTEROP_THREADS", "OMP_NUM_THREADS")
RATE, BATCH, LENGTH, CALLS = 2e-5, 32, 128, 5

# What the peer's interpreter runs: SOURCE and a file of pairs in, vectors and seconds out.
PEER = """
import json, sys, time
import numpy as np
import torch
from sentence_transformers import SentenceTransformer, losses

torch.set_num_threads(1)
job = json.load(open(sys.argv[1]))
torch.manual_seed(job["seed"])
model = SentenceTransformer(job["source"], device="cpu")
model.max_seq_length = job["length"]
loss = losses.MultipleNegativesRankingLoss(model)
optimizer = torch.optim.AdamW(model.parameters(), job["rate"], weight_decay=0.01, eps=1e-6)


def step(pairs):
    features = [model.preprocess([pair[i] for pair in pairs]) for i in (0, 1)]
    model.train()
    optimizer.zero_grad()
    loss(features, None).backward()
    optimizer.step()


seconds = []
for pairs in job["batches"]:
    start = time.process_time()
    step(pairs)
    seconds.append(time.process_time() - start)
model.eval()
vectors = {name: model.encode(texts, batch_size=32) for name, texts in job["texts"].items()}
np.savez(sys.argv[2], seconds=seconds, **vectors)
"""


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source")
    parser.add_argument("squad", type=Path)
    parser.add_argument("--train", type=int, default=2000, help="pairs")
    parser.add_argument("--test", type=int, default=500, help="questions")
    parser.add_argument("--seeds", type=int, default=1)
    parser.add_argument("--peer", metavar="PYTHON")
    parser.add_argument("--steps", type=int, nargs="+", metavar="PAIRS")
    parser.add_argument("--micro-batch-size", type=int, help="of keras_lm: cache gradients")
    options = parser.parse_args()
    os.environ.update(dict.fromkeys(THREADS, "1"))  # before TensorFlow is loaded
    learned, asked, sentences = read_pairs(options.squad, options.train, options.test)
    run = run_peer if options.peer else run_ours
    if options.steps:
        for size in options.steps:
            batches = [learned[i * size : (i + 1) * size] for i in range(CALLS + 1)]
            seconds, _ = run(options, batches, {}, 0)
            say(options, pairs=size, seconds=round(min(seconds[1:]), 3), megabytes=peak_memory())
        return
    texts = {"queries": [question for question, _ in asked], "documents": sentences}
    relevant = [sentences.index(sentence) for _, sentence in asked]
    _, vectors = run(options, [], texts, 0)
    say(options, seed=None, pairs=0, **measured(texts, vectors, relevant))
    for seed in range(options.seeds):
        random.Random(seed).shuffle(learned)
        batches = [learned[i : i + BATCH] for i in range(0, len(learned), BATCH)]
        _, vectors = run(options, batches, texts, seed)
        say(options, seed=seed, pairs=len(learned), **measured(texts, vectors, relevant))


def say(options, **row):
    print(json.dumps({"who": "peer" if options.peer else "keras_lm"} | row), flush=True)


def peak_memory():
    """Return the most memory of this process, or of the peer's, in MB."""
    who = (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    return max(resource.getrusage(each).ru_maxrss for each in who) // 1024


def read_pairs(path, train, test):
    """Return pairs (question, sentence) to learn from, others, and all sentences of the others."""
    articles = json.loads(path.read_text(encoding="utf-8"))["data"]
    random.Random(0).shuffle(articles)
    learned, asked, sentences = [], [], {}
    for article in articles:
        for paragraph in article["paragraphs"]:
            parts = [part for part in re.split(r"(?<=[.!?])\s+", paragraph["context"]) if part]
            pairs = [
                (question["question"].strip(), part)
                for question in paragraph["qas"]
                if question["answers"]
                for part in parts
                if question["answers"][0]["text"] in part
            ]
            pairs = list(dict(reversed(pairs)).items())  # the first sentence of each question
            if len(learned) < train:
                learned += pairs
            else:
                asked += pairs
                sentences |= dict.fromkeys(parts)
        if len(asked) >= test:
            break
    return learned[:train], asked[:test], list(sentences)


def measured(texts, vectors, relevant):
    """Return recall@1 and NDCG@10 of vectors by the names of their texts."""
    from keras_lm.evaluation import evaluate_retrieval

    class Known:
        prompts = {}

        def embed(self, texts_of, *_, **__):
            name = "queries" if texts_of[0] == texts["queries"][0] else "documents"
            return {"embedding": vectors[name]}

    scores = evaluate_retrieval(Known(), texts["queries"], texts["documents"], relevant)
    return {name: round(scores[name], 4) for name in ("recall@1", "ndcg@10")}


def run_ours(options, batches, texts, seed):
    """Return the seconds of each step, and the vectors of texts afterwards."""
    import keras

    import keras_lm

    keras.utils.set_random_seed(seed)
    encoder = keras_lm.tasks.SentenceEncoder.from_preset(options.source, sequence_length=LENGTH)
    encoder.compile(
        optimizer=keras_lm.training.AdamW(RATE, weight_decay=0.01),
        micro_batch_size=options.micro_batch_size,
    )
    seconds = []
    for pairs in batches:
        start = time.process_time()
        encoder.train_on_batch(tuple(zip(*pairs, strict=True)))
        seconds.append(time.process_time() - start)
    vectors = {name: encoder.embed(values, verbose=0) for name, values in texts.items()}
    return seconds, {name: value["embedding"] for name, value in vectors.items()}


def run_peer(options, batches, texts, seed):
    """The same of sentence-transformers."""
    import numpy as np

    with tempfile.TemporaryDirectory() as folder:
        job = {"source": options.source, "rate": RATE, "length": LENGTH, "seed": seed}
        Path(folder, "job.json").write_text(json.dumps(job | {"batches": batches, "texts": texts}))
        command = [options.peer, "-c", PEER, f"{folder}/job.json", f"{folder}/vectors.npz"]
        subprocess.run(command, check=True, stdout=sys.stderr)
        vectors = dict(np.load(f"{folder}/vectors.npz"))
    return vectors.pop("seconds"), vectors


if __name__ == "__main__":
    main()
