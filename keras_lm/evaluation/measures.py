"""How well a task does on the rows of a file."""

from collections.abc import Mapping
from typing import Any

import keras
import numpy as np

from keras_lm import data, metrics, prompting, tasks
from keras_lm.datasets.examples import Examples
from keras_lm.datasets.tag_schemes import marks_entities
from keras_lm.evaluation.embeddings import (
    evaluate_paraphrases,
    evaluate_retrieval,
    evaluate_similarity,
    evaluate_triplets,
)
from keras_lm.objectives import IGNORED
from keras_lm.prompting.zero_shot import first_word
from keras_lm.tasks.scored_answers import ScoredAnswers
from keras_lm.tasks.task import Task
from keras_lm.tensorflow import tf

NO_RELATION = ("no_relation", "NA")  # TACRED's class of none, and as thunlp/ERNIE has it
ENCODERS = (tasks.SentenceEncoder, tasks.SparseEncoder, tasks.MultiVectorEncoder)
ROUGE = ("rouge1", "rouge2", "rougeL", "rougeLsum")


def measure(task: Task, examples: Examples, batch_size: int) -> dict[str, Any]:
    """Return a dict of measures of a task, as `keras-lm evaluate` prints them.

    Args:
        task: any trained task with labels, or a language model.
        examples: `keras_lm.data.Examples`, as `keras_lm.data.read_examples` reads them.
        batch_size: int.
    """
    if isinstance(task, tasks.CausalLM) and examples.labels:
        return _measure_last_words(task, examples, batch_size)
    if isinstance(task, tasks.CausalLM):
        return _measure_language_model(task, examples.texts["text"], batch_size)
    results = {"texts": len(examples.lines)}
    if isinstance(task, tasks.MaskedLM):
        values = task.evaluate(examples.texts, batch_size=batch_size, verbose=0, return_dict=True)
        return results | {name: float(value) for name, value in values.items()}
    if isinstance(task, ENCODERS):
        return results | _measure_encoder(task, examples, batch_size)
    if isinstance(task, tasks.TextRegressor):
        y = task.labels.prepare(np.array(examples.targets()))
        scores = task.predict(examples.texts, batch_size=batch_size, verbose=0)
        return results | {
            metric.name: _value(metric, y, scores)
            for metric in (
                keras.metrics.MeanSquaredError(),
                keras.metrics.MeanAbsoluteError(),
                metrics.PearsonCorrelation(),
                metrics.SpearmanCorrelation(),
            )
        }
    if isinstance(task, (tasks.MultipleChoice, ScoredAnswers)):
        values = task.evaluate(
            examples.texts, examples.labels, batch_size=batch_size, verbose=0, return_dict=True
        )
        return results | {name: float(value) for name, value in values.items()}
    if isinstance(task, tasks.TokenClassifier):
        return results | _measure_tagger(task, examples, batch_size)
    names = task.class_names or [str(i) for i in range(task.num_classes)]
    y = examples.targets(names, task.multi_label)
    logits = task.predict(examples.texts, batch_size=batch_size, verbose=0)
    results["loss"] = float(task.default_loss()(y, logits))
    results |= {metric.name: _value(metric, y, logits) for metric in task.default_metrics()}
    if task.multi_label:
        loose = (metrics.LooseF1(), metrics.LooseF1("macro"))
        results |= {metric.name: _value(metric, y, logits) for metric in loose}
        answers = (logits >= 0).astype("float32")
    else:
        of_classes = (metrics.MatthewsCorrelation(len(names)), metrics.ExpectedCalibrationError())
        none = next((n for n, name in enumerate(names) if name in NO_RELATION), None)
        if none is not None:
            of_classes += (metrics.MicroF1(len(names), without=none),)
        results |= {metric.name: _value(metric, y, logits) for metric in of_classes}
        y, answers = (np.eye(len(names), dtype="float32")[x] for x in (y, logits.argmax(axis=-1)))
    return results | _by_class(names, y, answers, "texts")


def _measure_encoder(task, examples, batch_size):
    """By search among all positives, scores, triplets or classes, as the file has them."""
    if "anchor" not in examples.texts and examples.labels is not None:
        return evaluate_paraphrases(
            task, examples.texts["text"], examples.labels, batch_size=batch_size
        )
    if "anchor" not in examples.texts:
        raise ValueError(
            f"{examples.rows.name} has single texts: a {type(task).__name__} is measured by pairs, "
            "with the columns anchor and positive, or by texts with a label."
        )
    first, second = examples.texts["anchor"], examples.texts["positive"]
    if examples.labels is not None:
        return evaluate_similarity(task, first, second, examples.labels, batch_size)
    documents = [*dict.fromkeys(second)]
    place = {text: row for row, text in enumerate(documents)}
    relevant = {}
    for anchor, positive in zip(first, second, strict=True):
        relevant.setdefault(anchor, set()).add(place[positive])
    measures = evaluate_retrieval(
        task, [*relevant], documents, [*relevant.values()], batch_size=batch_size
    )
    negatives = examples.texts.get("negative", [])
    triplets = [(a, p, n) for a, p, row in zip(first, second, negatives) for n in row]
    if len(triplets) > 1:
        accuracy = evaluate_triplets(task, *zip(*triplets, strict=True), batch_size)["accuracy"]
        measures["triplet_accuracy"] = accuracy
    return measures


def _measure_language_model(task, texts, batch_size):
    """On windows of tokens as `finetune` and `pretrain` train on, all of them."""
    texts = [text for text in texts if text.strip()]
    windows = data.token_windows(
        texts, task.tokenizer, task.packing["sequence_length"], drop_remainder=False
    )
    number, tokens = windows.reduce(
        np.zeros(2, "int64"), lambda sums, window: sums + [1, tf.size(window, tf.int64) - 1]
    ).numpy()
    windows = windows.apply(tf.data.experimental.assert_cardinality(number))
    words = sum(len(text.split()) for text in texts)
    batches = data.window_batches(windows, batch_size)
    values = task.evaluate(batches, verbose=0, return_dict=True)
    # Keras's own mean of the loss is over rows, of which the last may have fewer tokens.
    loss = float(np.log(values["perplexity"]))
    return {
        "texts": len(texts),
        "loss": loss,
        "perplexity": float(values["perplexity"]),
        "accuracy": float(values["accuracy"]),
        "word_perplexity": float(np.exp(loss * tokens / max(words, 1))),
        "tokens": int(tokens),
        "words": words,
    }


def _measure_last_words(task, examples, batch_size):
    """How often the word that a model writes is the last one of a passage, and its perplexity."""
    texts, words = examples.texts["text"], examples.labels
    answers = prompting.predict_last_words(task, texts)
    choices = [[f" {word}"] for word in words]
    scores = task.score_continuations(texts, choices, batch_size=batch_size)["scores"]
    right = [first_word(word) == answer for word, answer in zip(words, answers, strict=True)]
    return {
        "texts": len(texts),
        "last_word_accuracy": float(np.mean(right)),
        "last_word_perplexity": float(np.exp(-np.mean(scores, dtype="float64"))),
    }


def _measure_tagger(task, examples, batch_size):
    """Over all words, also those after the longest sequence, which get no label."""
    names = task.class_names or [str(i) for i in range(task.num_classes)]
    y = examples.targets(names)
    loss = task.evaluate(examples.texts, y, batch_size=batch_size, verbose=0, return_dict=True)[
        "loss"
    ]
    numbers = {name: number for number, name in enumerate([*names, ""])}
    predictions = [
        [numbers[name] for name in row] for row in task.tag(examples.texts, batch_size)["labels"]
    ]
    flat = [np.concatenate(rows) for rows in (y, predictions)]
    results = {
        "words": len(flat[0]),
        "loss": float(loss),
        "accuracy": float(np.mean(flat[0] == flat[1])),
    }
    one_hot = np.eye(len(numbers), dtype="float32")
    if not marks_entities(names):
        return results | _by_class(names, *(one_hot[x][:, :-1] for x in flat), "words")
    metric = metrics.EntityF1(numbers)
    for start in range(0, len(y), batch_size):
        right, answers = (
            keras.utils.pad_sequences(rows[start : start + batch_size], padding="post", value=value)
            for rows, value in ((y, IGNORED), (predictions, 0))
        )
        metric.update_state(right, one_hot[answers])
    return results | metric.scores()


def _by_class(names, y, answers, counted):
    """Macro-averaged F1, and each class's precision, recall, F1 and number, of (N, C) 0 and 1."""
    f1 = _value(keras.metrics.F1Score(average=None, threshold=0.5), y, answers)
    classes = {}
    for index, name in enumerate(names):
        classes[name] = {
            "precision": _value(keras.metrics.Precision(class_id=index), y, answers),
            "recall": _value(keras.metrics.Recall(class_id=index), y, answers),
            "f1": float(f1[index]),
            counted: int(y[:, index].sum()),
        }
    return {"macro_f1": float(np.mean(f1)), "classes": classes}


def _value(metric, y, answers):
    metric.update_state(y, answers)
    value = np.asarray(metric.result())
    return value if value.ndim and value.size > 1 else float(value.reshape(()))


# === Texts that a Seq2SeqLM writes ===


def make_metrics(names: Any, bleu_tokenizer: str) -> list[keras.metrics.Metric]:
    """Return metrics of written texts, for `measure_written`.

    Args:
        names: list of `"bleu"`, `"chrf"` and `"rouge"`.
        bleu_tokenizer: str, how sacreBLEU splits words, such as `"13a"`.
    """
    chosen = {
        "bleu": lambda: [metrics.Bleu(bleu_tokenizer)],
        "chrf": lambda: [metrics.ChrF()],
        "rouge": lambda: [metrics.Rouge(kind) for kind in ROUGE],
    }
    return [metric for name in dict.fromkeys(names) for metric in chosen[name]()]


def measure_written(
    task: Task,
    examples: Examples,
    batch_size: int,
    chosen: Mapping[str, Any],
    search: Mapping[str, Any],
) -> dict[str, Any]:
    """Return a dict of measures of a `Seq2SeqLM`, by metrics of what it writes.

    Args:
        task: `Seq2SeqLM`.
        examples: `keras_lm.data.Examples`.
        batch_size: int.
        chosen: list of metrics, of `make_metrics`.
        search: dict of arguments of `generate`.

    With ROUGE there is `lead3_…`, too: the scores of the
    first three sentences of each source, which summaries of news hardly surpass (Nallapati et al.
    2017, https://arxiv.org/abs/1611.04230, section 4).
    """
    texts, targets = examples.texts, examples.labels
    values = task.evaluate(texts, targets, batch_size=batch_size, verbose=0, return_dict=True)
    results = {"texts": len(targets)} | {name: float(value) for name, value in values.items()}
    written = task.generate(texts, batch_size=batch_size, **search)
    for metric in chosen:
        if isinstance(metric, metrics.Rouge):
            continue
        results[metric.name] = _score(metric, targets, written)
        results[f"{metric.name}_signature"] = metric.signature
    rouge = [metric for metric in chosen if isinstance(metric, metrics.Rouge)]
    if not rouge:
        return results
    # Each sentence on a line, as rougeLsum has it; the others take a line's end for a space.
    targets, written, sources = map(_sentences, (targets, written, texts["text"]))
    lead = ["\n".join(text.split("\n")[:3]) for text in sources]
    for prefix, summaries in (("", written), ("lead3_", lead)):
        results |= {prefix + metric.name: _score(metric, targets, summaries) for metric in rouge}
    return results


def _score(metric, targets, written):
    metric.reset_state()
    metric.update_state(targets, written)
    return float(metric.result())


def _sentences(texts):
    return [
        text.decode("utf-8", "replace") for text in data.split_sentences(texts).as_numpy_iterator()
    ]
