"""What `keras-lm evaluate` measures, by Keras's metrics. Importing this imports TensorFlow."""

import keras
import numpy as np
import tensorflow as tf

from keras_lm import data, tasks
from keras_lm.cli.runs import without_blank
from keras_lm.tasks.entities import entity_spans


def measure(task, examples, batch_size):
    """Return a dict of measures of a task on `keras_lm.cli.examples.Examples`."""
    if isinstance(task, tasks.CausalLM):
        return _measure_language_model(task, examples.texts["text"], batch_size)
    results = {"texts": len(examples.lines)}
    if isinstance(task, tasks.MaskedLM):
        values = task.evaluate(examples.texts, batch_size=batch_size, verbose=0, return_dict=True)
        return results | {name: float(value) for name, value in values.items()}
    if isinstance(task, tasks.TextRegressor):
        y = task.prepare_labels(np.array(examples.targets()))
        scores = task.predict(examples.texts, batch_size=batch_size, verbose=0)
        return results | {
            metric.name: _value(metric, y, scores)
            for metric in (
                keras.metrics.MeanSquaredError(),
                keras.metrics.MeanAbsoluteError(),
                keras.metrics.PearsonCorrelation(axis=0),
            )
        }
    if isinstance(task, tasks.MultipleChoice):
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
    return results | _by_class(names, y, logits, task.multi_label)


def _measure_language_model(task, texts, batch_size):
    """On windows of tokens as `finetune` and `pretrain` train on, with none left out."""
    texts = without_blank(texts)
    windows = data.token_windows(
        texts, task.tokenizer, task.packing["sequence_length"], drop_remainder=False
    )
    lengths = [len(window) - 1 for window in windows.as_numpy_iterator()]
    windows = windows.apply(tf.data.experimental.assert_cardinality(len(lengths)))
    tokens = sum(lengths)
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
        "tokens": tokens,
        "words": words,
    }


def _measure_tagger(task, examples, batch_size):
    """Over all words, also those after the longest sequence, which get no label."""
    names = task.class_names or [str(i) for i in range(task.num_classes)]
    y = examples.targets(names)
    loss = task.evaluate(examples.texts, y, batch_size=batch_size, verbose=0, return_dict=True)[
        "loss"
    ]
    found = task.tag(examples.texts, batch_size)["labels"]
    right = [[names[i] for i in row] for row in y]
    pairs = [pair for rows in zip(right, found, strict=True) for pair in zip(*rows, strict=True)]
    results = {
        "words": len(pairs),
        "loss": float(loss),
        "accuracy": sum(label == answer for label, answer in pairs) / len(pairs),
    }
    if any(entity_spans([name]) for name in names):
        counted = "entities"
        right, found = ({(i, *s) for i, row in enumerate(rows) for s in entity_spans(row)}
                        for rows in (right, found))  # fmt: skip
        kinds = {span: span[1] for span in right | found}
        results |= _scores(right, found)
    else:
        counted = "words"
        right, found = ({(i, pair[side]) for i, pair in enumerate(pairs)} for side in (0, 1))
        kinds = {item: item[1] for item in right | found}
    classes = {}
    for name in sorted(set(kinds.values()) - {""}):
        mine = [{item for item in items if kinds[item] == name} for items in (right, found)]
        classes[name] = _scores(*mine) | {counted: len(mine[0])}
    return results | {"classes": classes}


def _scores(right, found):
    """Return precision, recall and F1 of what was found, both sets."""
    both = len(right & found)
    return {
        "precision": both / len(found) if found else 0.0,
        "recall": both / len(right) if right else 0.0,
        "f1": 2 * both / (len(right) + len(found)) if right or found else 0.0,
    }


def _by_class(names, y, logits, multi_label):
    """Macro-averaged F1, and each class's precision, recall, F1 and number of texts."""
    if multi_label:
        answers = (logits >= 0).astype("float32")
    else:
        y = np.eye(len(names), dtype="float32")[y]
        answers = np.eye(len(names), dtype="float32")[logits.argmax(axis=-1)]
    metrics = keras.metrics
    f1 = _value(metrics.F1Score(average=None, threshold=0.5), y, answers)
    classes = {}
    for index, name in enumerate(names):
        classes[name] = {
            "precision": _value(metrics.Precision(class_id=index), y, answers),
            "recall": _value(metrics.Recall(class_id=index), y, answers),
            "f1": float(f1[index]),
            "texts": int(y[:, index].sum()),
        }
    return {"macro_f1": float(np.mean(f1)), "classes": classes}


def _value(metric, y, answers):
    metric.update_state(y, answers)
    value = np.asarray(metric.result())
    return value if value.ndim and value.size > 1 else float(value.reshape(()))
