"""Transformer-XL's memory: segments read one after the other, beside the whole text at once.

The network is tiny and its weights are random, which makes no difference here.
"""

CLAIM = (
    "What was computed of a segment is kept for the next, so that context crosses its borders and "
    "nothing is computed twice; a Transformer without memory reads its window again for each "
    "token."
)
PUBLISHED = "1,800 times as fast in evaluation, for an attention length of 3,800 tokens"
SOURCE = "Dai et al. 2019, https://arxiv.org/abs/1901.02860, table 9"
NEEDS = ()
FOUND = (
    "Segments with memory give what the whole text gives, to rounding (1.2e-7); without memory "
    "they do not. A window read anew for each of 96 tokens computes 4,656 of them."
)
SHOWS = (
    "That the memory is exact as long as it holds the text, and how many tokens it saves. "
    "Seconds are in benchmarks/segment_memory.py: 84 to 703 times, for contexts of 100 to 1,600 "
    "tokens."
)


def run(quick=False):
    """Return a row for each way to read a text; the network is tiny, `quick` or not."""
    import keras
    import numpy as np

    import keras_lm

    keras.utils.set_random_seed(0)
    length, segment = 96, 24
    backbone = keras_lm.models.TransformerXLBackbone(
        50, 2, 2, 16, 32, memory_length=length, starts_empty=True, dropout=0.0
    )
    ids = np.random.default_rng(0).integers(0, 50, (1, length))

    def read(step, remember):
        """Return the vectors of all tokens, read `step` of them at a time."""
        outputs, memory = [], {}
        for start in range(0, length, step):
            output = backbone({"token_ids": ids[:, start : start + step], **memory})
            memory = {"memory": output["memory"]} if remember else {}
            outputs.append(np.array(output["sequence_output"]))
        return np.concatenate(outputs, axis=1)

    whole = read(length, False)
    rows = [{"way": "all at once", "largest difference": 0.0, "tokens computed": length}]
    for name, remember in (("segments with memory", True), ("segments without", False)):
        difference = float(abs(read(segment, remember) - whole).max())
        rows.append({"way": name, "largest difference": difference, "tokens computed": length})
    # A window that moves on by one token has to read each token as often as it is in a window.
    computed = sum(range(1, length + 1))
    last = np.array(backbone({"token_ids": ids})["sequence_output"])[:, -1]
    difference = float(abs(last - whole[:, -1]).max())
    name = "a window for each token"
    rows.append({"way": name, "largest difference": difference, "tokens computed": computed})
    return rows
