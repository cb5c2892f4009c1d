"""Ask a `.tflite` classifier, by the interpreter that phones have and TensorFlow Text's ops.

python ask_tflite.py classifier.tflite "first text" "second text"
"""

import json
import sys

import numpy as np
from ai_edge_litert.interpreter import InterpreterWithCustomOps
from tensorflow_text.core.pybinds.tflite_registrar import SELECT_TFTEXT_OPS


def ask(path, texts):
    """One dict a text: `text`, `label`, `scores`."""
    if not texts:
        return []  # the interpreter does not survive a batch of none
    interpreter = InterpreterWithCustomOps(model_path=path, custom_op_registerers=SELECT_TFTEXT_OPS)
    serve = interpreter.get_signature_runner("serving_default")
    answer = serve(text=np.array([text.encode() for text in texts]))
    return [
        {"text": text, "label": label.decode(), "scores": row.tolist()}
        for text, label, row in zip(texts, answer["labels"], answer["scores"])
    ]


if __name__ == "__main__":
    for answer in ask(sys.argv[1], sys.argv[2:]):
        print(json.dumps(answer, ensure_ascii=False))
