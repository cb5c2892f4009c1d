"""Makes tiny Model Garden checkpoints with expected outputs, with `pip install keras-lm[garden]`.

    python make.py FOLDER

Model Garden is legacy-Keras code, and a process can have only one Keras: hence a program of its
own. It writes `bert_model.ckpt-1.*`, `bert_config.json` and `expected.npz` (inputs `in.*`, outputs
`out.*`) into FOLDER/v1-encoder and so on; every weight is random, norm scales and biases too.
`-pretrainer` holds encoder, masked LM and next-sentence head together, as
`Checkpoint(model=BertPretrainerV2(...))`.
"""

import json
import os
import pathlib
import sys

os.environ["TF_USE_LEGACY_KERAS"] = "1"

import numpy as np
import tensorflow as tf
from official.modeling import tf_utils
from official.nlp.modeling import layers, models, networks

CONFIG = {
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 16,
    "initializer_range": 0.02,
    "intermediate_size": 32,
    "max_position_embeddings": 24,
    "num_attention_heads": 2,
    "num_hidden_layers": 2,
    "type_vocab_size": 2,
    "vocab_size": 50,
}


def main(folder):
    for encoder, form in [("v1", "encoder"), ("v2", "pretrainer"), ("v1", "pretrainer")]:
        make(folder / f"{encoder}-{form}", encoder, form)


def make(folder, version, form):
    folder.mkdir()
    arguments = {
        "vocab_size": CONFIG["vocab_size"],
        "hidden_size": CONFIG["hidden_size"],
        "num_layers": CONFIG["num_hidden_layers"],
        "num_attention_heads": CONFIG["num_attention_heads"],
        "max_sequence_length": CONFIG["max_position_embeddings"],
        "type_vocab_size": CONFIG["type_vocab_size"],
        "inner_dim": CONFIG["intermediate_size"],
        "inner_activation": tf_utils.get_activation(CONFIG["hidden_act"]),
    }
    if version == "v1":
        encoder = networks.BertEncoder(**arguments, dict_outputs=True)
    else:
        encoder = networks.BertEncoderV2(**arguments)
    head = layers.ClassificationHead(inner_dim=16, num_classes=2, name="next_sentence")
    pretrainer = models.BertPretrainerV2(
        encoder_network=encoder,
        mlm_activation=tf_utils.get_activation(CONFIG["hidden_act"]),
        classification_heads=[head],
    )

    generator = np.random.default_rng(11)
    real = np.arange(9) < np.array([[9], [6], [3]])  # (B, S)
    inputs = {
        "input_word_ids": generator.integers(1, CONFIG["vocab_size"], (3, 9)) * real,
        "input_mask": real,
        "input_type_ids": (np.arange(9) >= 4) * real,
        "masked_lm_positions": np.array([[1, 5], [2, 0], [1, 2]]),
    }
    inputs = {name: value.astype("int32") for name, value in inputs.items()}
    pretrainer(inputs)  # Makes the variables.
    for variable in pretrainer.variables:
        value = generator.normal(0, 0.3, variable.shape)
        variable.assign(value + 1 if "gamma" in variable.name else value)
    outputs = pretrainer(inputs)

    saved = {"model": pretrainer} if form == "pretrainer" else {form: encoder}
    tf.train.Checkpoint(**saved).save(str(folder / "bert_model.ckpt"))
    (folder / "bert_config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    np.savez(
        folder / "expected.npz",
        **{f"in.{name}": value for name, value in inputs.items()},
        **{f"out.{name}": value for name, value in outputs.items() if name != "encoder_outputs"},
        **{"out.encoder_outputs": np.stack(outputs["encoder_outputs"])},
    )


if __name__ == "__main__":
    main(pathlib.Path(sys.argv[1]))
