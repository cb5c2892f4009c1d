"""Reformer a token at a time: as if it read the whole text, where earlier tokens stay the same."""

import keras
import numpy as np
import pytest
import tensorflow as tf

from keras_lm.models import ReformerBackbone
from keras_lm.tasks import CausalLM

IDS = np.random.default_rng(1).integers(1, 40, (2, 30)).astype("int32")
SLOW = pytest.mark.slow
PADDED = np.array([3, 0])  # columns on the left of each row


def make(**arguments):
    keras.utils.set_random_seed(4)
    backbone = ReformerBackbone(
        **{
            "vocabulary_size": 40,
            "num_layers": 3,
            "num_heads": 2,
            "hidden_dim": 16,
            "intermediate_dim": 24,
            "local_chunk_length": 4,
            "lsh_chunk_length": 4,
            "max_sequence_length": 64,
        }
        | arguments
    )
    rng = np.random.default_rng(0)
    for weight in backbone.trainable_weights:
        weight.assign_add(rng.normal(size=weight.shape, scale=0.2))
    return backbone


def by_steps(backbone, prompt):
    """The outputs of all tokens after a prompt of this length, each read alone."""
    mask = (np.arange(IDS.shape[1]) >= PADDED[:, None]).astype("int32")
    first = {"token_ids": IDS[:, :prompt], "padding_mask": mask[:, :prompt]}
    room = backbone.initial_state(2, IDS.shape[1])
    state = backbone.forward(**first, cache=room, training=False)["cache"]
    state = backbone.decoding_state(state)
    step = tf.function(backbone.forward, autograph=False, reduce_retracing=True)
    results = []
    for i in range(prompt, IDS.shape[1]):
        new = tf.constant(IDS[:, i : i + 1])
        outputs = step(new, tf.ones_like(new), cache=state, training=False)
        state = outputs["cache"]
        results.append(outputs["sequence_output"][:, 0])
    return np.stack(results), mask


def by_whole_texts(backbone, prompt, mask):
    """The outputs of every third token: that of each place in a chunk of four."""
    return np.stack(
        [
            backbone({"token_ids": IDS[:, :n], "padding_mask": mask[:, :n]})["sequence_output"][
                :, -1
            ]
            for n in range(prompt + 1, IDS.shape[1] + 1, 3)
        ]
    )


@pytest.mark.parametrize(
    "arguments",
    [
        {"attention_layers": ["local"]},
        {"attention_layers": ["local"], "num_local_chunks_before": 2, "axial_shape": [8, 8]},
        # Nothing reads what tokens make of `"lsh"` in the last block.
        {"attention_layers": ["local", "local", "lsh"], "num_buckets": 4, "num_hashes": 3},
        # All of a text that is no longer than a chunk.
        {"attention_layers": ["lsh"], "lsh_chunk_length": 32, "num_hashes": 2},
        *(
            pytest.param({"attention_layers": ["local", "local", "lsh"], **x}, marks=SLOW)
            for x in ({"num_buckets": [2, 4]}, {"num_lsh_chunks_after": 1})
        ),
    ],
)
def test_equal_to_reading_the_whole_text(arguments):
    if "axial_shape" in arguments:
        arguments = arguments | {"axial_dims": [4, 12]}
    # In a ring of two chunks, a token that reads two before its own reads its own twice.
    prompt = 9 if arguments.get("num_local_chunks_before") else 5
    backbone = make(**arguments)
    actual, mask = by_steps(backbone, prompt)
    np.testing.assert_allclose(actual[::3], by_whole_texts(backbone, prompt, mask), atol=2e-5)


@pytest.mark.slow
def test_earlier_tokens_stay_after_hashing():
    """With `"lsh"` in an earlier block, outputs differ, as earlier tokens would be moved."""
    backbone = make(attention_layers=["lsh", "local"], num_buckets=4)
    actual, mask = by_steps(backbone, 5)
    whole = by_whole_texts(backbone, 5, mask)
    assert np.abs(actual[::3] - whole).max() > 1e-3
    np.testing.assert_allclose(actual[:1], whole[:1], atol=2e-5)  # just after the prompt


@pytest.mark.thorough
@pytest.mark.eager  # tests/models/test_reformer_folders.py exports it
@pytest.mark.parametrize("num_beams", [1, 2])
def test_generate(num_beams):
    task = CausalLM(make(attention_layers=["local", "local", "lsh"], num_hashes=2))
    (actual,) = task.generate({"token_ids": IDS[:1, :9]}, max_new_tokens=6, num_beams=num_beams)
    task.backbone.decoding_state = lambda state: state  # reads the whole text again
    task.forget_graphs()
    (again,) = task.generate({"token_ids": IDS[:1, :9]}, max_new_tokens=6, num_beams=num_beams)
    assert actual == again
