"""What a graph of concepts adds to a text: a made-up world, and CommonsenseQA.

    python benchmarks/graph_choice.py [--seeds 3]
    python benchmarks/graph_choice.py --store STORE --source MINILM --data FOLDER [--seeds 3]

The first needs nothing but this repository. In the made-up world, each town lies in a region, and
each region makes one drink and forbids three: which drink a town serves is two edges away, and the
towns and regions that are asked for in the test are not those of the training. A text alone cannot
know; and as all four drinks are two edges away, it does not help either that there is some path.

The second asks the questions of FOLDER/commonsenseqa with the graph of STORE (`keras-lm
knowledge`). Both train `MultipleChoice` and `GraphChoice` over the same model, with the same seeds.
"""

import argparse
import random
import statistics
import tempfile
import time
from pathlib import Path

import keras

from keras_lm import tasks
from keras_lm.data import read_published
from keras_lm.knowledge import ConceptStore, SchemaGraphs, TransE
from keras_lm.models import BertBackbone
from keras_lm.objectives import MarginRanking
from keras_lm.tokenizers import WordPieceTokenizer
from keras_lm.training import AdamW

RELATIONS = ["LiesIn", "Makes", "Forbids"]
QUESTION = "which drink do they serve in {} ?"
TRAINED, TESTED = 240, 160  # towns, each in a region of its own
DRINKS = 12


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--epochs", type=int)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--source")
    parser.add_argument("--store", type=Path)
    parser.add_argument(
        "--rows", type=int, default=1000, help="questions of CommonsenseQA to learn"
    )
    options = parser.parse_args()
    results = {"without": [], "with": []}
    for seed in range(options.seeds):
        for kind in results:
            keras.utils.set_random_seed(seed)
            start = time.time()
            if options.data is None:
                accuracy = made_up(seed, kind == "with", options.epochs or 12)
            else:
                accuracy = commonsense(options, kind == "with")
            results[kind].append(accuracy)
            seconds = time.time() - start
            print(f"seed {seed}, {kind} a graph: {accuracy:.3f} ({seconds:.0f} s)", flush=True)
    for kind, values in results.items():
        spread = f", {min(values):.3f} to {max(values):.3f}"
        print(f"{kind} a graph: {statistics.mean(values):.3f}{spread}")


# === A made-up world ===


def made_up(seed, has_graph, epochs):
    """Return the accuracy on towns of unseen regions; chance is 0.25."""
    draws = random.Random(seed)
    names = set()
    while len(names) < 2 * (TRAINED + TESTED) + DRINKS:
        names.add("".join(draws.choice(pair) for pair in ["bdgkmnprtvz", "aou"] * 3) + "x")
    names = sorted(names)
    draws.shuffle(names)
    drinks, names = names[:DRINKS], names[DRINKS:]
    edges, asked = [], []
    for _ in range(TRAINED + TESTED):
        town, region = names.pop(), names.pop()
        right, *wrong = draws.sample(drinks, 4)
        edges += [(town, 1, region, 1.0), (region, 2, right, 1.0)]
        edges += [(region, 3, drink, 1.0) for drink in wrong]
        choices = draws.sample([right, *wrong], 4)
        asked.append((QUESTION.format(town), choices, choices.index(right)))
    words = {word for text, choices, _ in asked for word in [*text.split(), *choices]}
    tokenizer = WordPieceTokenizer(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *sorted(words)], lowercase=True
    )
    backbone = BertBackbone(tokenizer.vocabulary_size, 1, 2, 32, 64, max_sequence_length=16)
    with tempfile.TemporaryDirectory() as folder:
        if has_graph:
            store = ConceptStore.build(edges, Path(folder) / "store", RELATIONS)
            graphs = SchemaGraphs(store, max_hops=2)
            sizes = dict.fromkeys(("concept_dim", "relation_dim", "pair_dim", "path_dim"), 32)
            task = tasks.GraphChoice(backbone, graphs, tokenizer=tokenizer, **sizes)
        else:
            task = tasks.MultipleChoice(backbone, tokenizer=tokenizer)
        task.compile(optimizer=AdamW(3e-3), loss=MarginRanking())
        train, test = columns(asked[:TRAINED]), columns(asked[TRAINED:])
        task.fit(*train, epochs=epochs, verbose=0)
        return task.evaluate(*test, verbose=0, return_dict=True)["accuracy"]


def columns(rows):
    texts, choices, labels = zip(*rows, strict=True)
    return {"text": list(texts), "choices": list(choices)}, list(labels)


# === CommonsenseQA ===


def commonsense(options, has_graph):
    """Return the accuracy on the dev set after some of the training set; chance is 0.2."""
    train, test = (
        read_published(options.data / f"commonsenseqa/{split}.jsonl", "commonsenseqa")
        for split in ("train", "valid")
    )
    x = {name: values[: options.rows] for name, values in train.x.items()}
    if has_graph:
        vectors = Path(f"{options.store}-trans-e")
        graphs = SchemaGraphs(
            options.store,
            TransE.load(vectors) if vectors.is_dir() else None,
            cache=f"{options.store}-paths.sqlite",
            max_hops=3,
            max_paths=30,
        )
        task = tasks.GraphChoice.from_preset(options.source, graphs=graphs, sequence_length=64)
    else:
        task = tasks.MultipleChoice.from_preset(options.source, sequence_length=64)
    task.compile(optimizer=AdamW(2e-4), loss=MarginRanking())
    task.fit(x, train.labels[: options.rows], epochs=options.epochs or 2, verbose=0)
    return task.evaluate(test.x, test.labels, verbose=0, return_dict=True)["accuracy"]


if __name__ == "__main__":
    main()
