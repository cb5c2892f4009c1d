"""MPNet against transformers' outputs, its vocabulary, and what its folders may not say."""

import json

import numpy as np
import pytest

from keras_lm import tasks
from keras_lm.models import Backbone, MPNetBackbone
from keras_lm.models.sizes import estimate
from keras_lm.tokenizers import Tokenizer

# As published: BERT's entries, [CLS] among them, between four of MPNet's own and the mask.
OWN = ["<s>", "<pad>", "</s>", "<unk>"]
BERT = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
VOCABULARY = [*OWN, *BERT, "a", "film", "##s", ".", "<mask>"]


@pytest.mark.eager
@pytest.mark.parametrize(
    "folder, cls",
    [
        ("mpnet", tasks.MaskedLM),
        ("mpnet-seqcls", tasks.TextClassifier),
        ("mpnet-multiple-choice", tasks.MultipleChoice),
    ],
)
def test_huggingface(folder, cls, goldens, assert_equal, hidden_states):
    """In the goldens, one row has padding on the right, and one on the left."""
    arrays = np.load(goldens(folder) / "expected.npz")
    inputs = {
        "token_ids": arrays["in.input_ids"].astype("int32"),
        "padding_mask": arrays["in.attention_mask"].astype("int32"),
    }
    task = cls.from_preset(goldens(folder), tokenizer=None)
    assert_equal(task(inputs), arrays["out.logits"])
    metrics = task.evaluate(inputs, arrays["in.labels"], verbose=0, return_dict=True)
    assert_equal(metrics["loss"], arrays["out.loss"])
    rows = {name: x.reshape(-1, x.shape[-1]) for name, x in inputs.items()}
    assert_equal(hidden_states(task.backbone, rows), arrays["out.hidden_states"])
    assert_equal(task.backbone.attention_probabilities(rows), arrays["out.attentions"])


@pytest.mark.eager
@pytest.mark.parametrize("config", [{}, {"tokenizer_class": "MPNetTokenizer"}])
def test_the_vocabulary_shows_the_special_tokens(config, goldens, variant):
    folder = variant("mpnet")
    words = [*VOCABULARY[:-1], *(f"[unused{i}]" for i in range(76)), "<mask>"]
    (folder / "vocab.txt").write_text("\n".join(words) + "\n")
    (folder / "tokenizer_config.json").write_text(json.dumps(config))
    task = tasks.MaskedLM.from_preset(folder)
    # What transformers' MPNetTokenizer finds.
    assert task.preprocess({"text": ["A films x."]})["token_ids"][0].numpy().tolist() == [
        *(0, 9, 10, 11, 5, 12, 2)
    ]
    pair = task.preprocess({"text": ["A film"], "text_pair": ["x"]})
    assert pair["token_ids"][0].numpy().tolist() == [0, 9, 10, 2, 2, 5, 2]
    assert task.tokenizer(["a <mask> ."], parse_special=True).to_list() == [[9, 89, 12]]
    assert task.fill_mask(["a <mask>"])["tokens"].shape == (1, 1, 5)


def test_a_vocabulary_like_berts_stays_so(tmp_path):
    (tmp_path / "vocab.txt").write_text("\n".join([*OWN, *BERT, "a"]) + "\n")  # without <mask>
    assert Tokenizer.from_preset(tmp_path).special_tokens["cls"] == "[CLS]"


@pytest.mark.parametrize("key, value", [("relative_attention_num_buckets", 16)])
def test_what_the_model_does_not_know_is_an_error(variant, key, value):
    with pytest.raises(ValueError, match=f"{key}={value}"):
        Backbone.from_preset(variant("mpnet", {key: value}))


def test_transformers_would_count_positions_by_another_padding(backbone_of, tokenizer_of, tmp_path):
    with pytest.raises(ValueError, match="transformers counts positions without the id 1"):
        backbone_of("MPNetBackbone").save_to_huggingface(tmp_path / "x", tokenizer_of("wordpiece"))


def test_size():
    """As transformers counts it, without a pooler."""
    size = MPNetBackbone.SIZES["mpnet_base_en_uncased"]
    assert estimate(MPNetBackbone, **size, use_pooler=False)["parameters"] == 108_895_872
