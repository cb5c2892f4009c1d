"""What `save_to_keras_hub` writes, beside what KerasHub makes of it.

    python benchmarks/keras_hub_out.py write FOLDER
    PYTHON_WITH_KERAS_HUB benchmarks/keras_hub_out.py compare FOLDER

`write` loads the presets that KerasHub wrote in tests/goldens and saves each again. `compare` needs
keras_hub, and not keras_lm: it loads each folder, compares its weights with those of the golden,
and prints the largest difference from the golden's outputs, of strings where it has a classifier.
"""

import pathlib
import sys

import numpy as np

GOLDENS = pathlib.Path(__file__).parent.parent / "tests" / "goldens"
# A golden, its folder, the task here, and KerasHub's class.
CASES = [
    ("bert", "classifier", "TextClassifier", "BertTextClassifier"),
    ("distilbert", "classifier", "TextClassifier", "DistilBertTextClassifier"),
    ("roberta", "classifier", "TextClassifier", "RobertaTextClassifier"),
    ("roberta", "masked_lm", "MaskedLM", "RobertaMaskedLM"),
    ("deberta", "classifier", "TextClassifier", "DebertaV3TextClassifier"),
    ("gpt2", "", "CausalLM", "GPT2CausalLM"),
]


def write(folder):
    import keras_lm

    for name, part, task, cls in CASES:
        golden = GOLDENS / f"{name}-keras-hub" / part
        getattr(keras_lm.tasks, task).from_preset(golden).save_to_keras_hub(folder / cls)
        print(f"{cls}: written")


def compare(folder):
    import keras_hub

    for name, part, _, cls in CASES:
        golden = GOLDENS / f"{name}-keras-hub"
        old = getattr(keras_hub.models, cls).from_preset(str(golden / part))
        new = getattr(keras_hub.models, cls).from_preset(str(folder / cls))
        is_same = all(
            np.array_equal(np.asarray(one), np.asarray(other))
            for one, other in zip(old.weights, new.weights, strict=True)
        )
        stored = np.load(golden / "expected.npz")
        inputs = ("token_ids", "segment_ids", "padding_mask")
        results = new.backbone({n: stored[f"in.{n}"] for n in inputs if f"in.{n}" in stored})
        results = results["sequence_output"] if isinstance(results, dict) else results
        theirs = stored[f"{part or 'out'}.sequence_output"]
        line = (
            f"{cls}: {'same' if is_same else 'OTHER'} weights, outputs {_largest(results, theirs)}"
        )
        if "Classifier" in cls:
            logits = new.predict([str(text) for text in stored["text.text"]], verbose=0)
            line += f", of strings {_largest(logits, stored['text.logits'])}"
        print(line)


def _largest(one, other):
    return f"{np.abs(np.asarray(one) - other).max():.1e}"


if __name__ == "__main__":
    {"write": write, "compare": compare}[sys.argv[1]](pathlib.Path(sys.argv[2]))
