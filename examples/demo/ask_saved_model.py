"""Ask an exported classifier: of TensorFlow's world this needs the two imports below, no more.

python ask_saved_model.py saved_model/1 "first text" "second text"
"""

import json
import sys

import tensorflow as tf
import tensorflow_text  # noqa: F401  (registers the ops of the tokenizer inside)


def ask(folder, texts):
    """One dict a text: `text`, `label`, `scores`."""
    serve = tf.saved_model.load(folder).signatures["serving_default"]
    answer = serve(text=tf.constant(texts))
    labels, scores = answer["labels"].numpy(), answer["scores"].numpy()
    return [
        {"text": text, "label": label.decode(), "scores": row.tolist()}
        for text, label, row in zip(texts, labels, scores)
    ]


if __name__ == "__main__":
    for answer in ask(sys.argv[1], sys.argv[2:]):
        print(json.dumps(answer, ensure_ascii=False))
