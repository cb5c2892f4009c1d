"""What `keras-lm evaluate` measures, by Keras's metrics. Importing this imports TensorFlow."""

import keras
import numpy as np

from keras_lm import tasks


def measure(task, examples, batch_size):
    """Return a dict of measures.

    Args:
        task: a `TextClassifier`, `TextRegressor` or `MaskedLM`.
        examples: `keras_lm.cli.examples.Examples`.
        batch_size: int.
    """
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
    names = task.class_names or [str(i) for i in range(task.num_classes)]
    y = examples.targets(names, task.multi_label)
    logits = task.predict(examples.texts, batch_size=batch_size, verbose=0)
    results["loss"] = float(task.default_loss()(y, logits))
    results |= {metric.name: _value(metric, y, logits) for metric in task.default_metrics()}
    return results | _by_class(names, y, logits, task.multi_label)


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
