"""Networks with another family's tokenizer: ids, special tokens, presets and exports."""

import json
import shutil

import keras
import numpy as np
import pytest

from keras_lm import tasks
from keras_lm.converters import open_checkpoint
from keras_lm.models import GPT2Backbone, RobertaBackbone
from keras_lm.tokenizers import Tokenizer, WordPieceTokenizer

TEXTS, PAIR = ["the film", "a"], ["a joy", "the end"]
SPECIAL = {
    "BertTokenizer": ("[CLS]", "[SEP]", 1, 1),
    "RobertaTokenizer": ("<s>", "</s>", 2, 0),
    "XLMRobertaTokenizer": ("<s>", "</s>", 2, 0),
    "T5Tokenizer": (None, "</s>", 1, 0),
}
VOCABULARIES = {
    "BertTokenizer": "wordpiece-uncased",
    "RobertaTokenizer": "bytebpe-roberta",
    "XLMRobertaTokenizer": "xlm-roberta",
    "T5Tokenizer": "sentencepiece-t5",
}


@pytest.fixture
def folder(goldens, xlm_roberta_model, variant):
    """`folder("bert-seqcls", "T5Tokenizer")`: a network's folder with another's tokenizer."""

    def make(network, name):
        vocabulary = VOCABULARIES[name]
        tensors = open_checkpoint(goldens(network)).tensors
        tables = ("word_embeddings.weight", "wte.weight", "shared.weight")
        table = next(name for name in tensors if name.endswith(tables))
        shape = (1300, tensors.shape(table)[1])
        rows = np.random.default_rng(0).normal(size=shape).astype("float32")
        more = {table: rows}
        for bias in ("cls.predictions.bias", "lm_head.bias"):
            more |= {bias: rows[:, 0]} if bias in tensors else {}
        made = variant(network, {"vocab_size": 1300}, more=more)
        if vocabulary == "xlm-roberta":
            (made / "sentencepiece.bpe.model").write_bytes(xlm_roberta_model)
            (made / "tokenizer_config.json").write_text(json.dumps({"tokenizer_class": name}))
        else:
            for path in (goldens("tokenizers") / vocabulary).iterdir():
                if path.name != "expected.jsonl":
                    shutil.copy(path, made)
            config = json.loads((made / "tokenizer_config.json").read_text())
            config["tokenizer_class"] = name
            (made / "tokenizer_config.json").write_text(json.dumps(config))
        return made

    return make


def around(name, tokenizer, first, second=None):
    """The ids and segments of one text or two, by the rules of a class of Hugging Face's."""
    begin, end, number, segment = SPECIAL[name]
    begin = [] if begin is None else [tokenizer.token_to_id(begin)]
    end = [tokenizer.token_to_id(end)]
    ids = begin + first + end
    segments = [0] * len(ids)
    if second is not None:
        between = end * (number - 1)
        ids += between + second + end
        segments += [segment] * (len(between) + len(second) + 1)
    return ids, segments


@pytest.mark.parametrize(
    "network, name",
    [
        ("bert-seqcls", "XLMRobertaTokenizer"),
        ("bert-seqcls", "RobertaTokenizer"),
        ("bert-seqcls", "T5Tokenizer"),
        ("roberta-seqcls", "BertTokenizer"),
        ("distilbert", "T5Tokenizer"),
        ("albert-seqcls", "BertTokenizer"),
        ("gpt2", "BertTokenizer"),
        ("gpt2", "T5Tokenizer"),
        ("t5", "RobertaTokenizer"),
    ],
)
@pytest.mark.eager
@pytest.mark.filterwarnings("ignore:.*(new and random|entries, the embedding)")
def test_ids_and_special_tokens(folder, network, name, tmp_path):
    made = folder(network, name)
    task = tasks.TextClassifier.from_preset(made, num_classes=2, lm_loss_weight=0)
    tokenizer = Tokenizer.from_preset(made)
    assert type(task.tokenizer) is type(tokenizer)
    first, second = (tokenizer(texts).to_list() for texts in (TEXTS, PAIR))
    explicit = tasks.TextClassifier(task.backbone, tokenizer=tokenizer, num_classes=2)
    task.save_to_preset(tmp_path / "preset")
    again = tasks.Task.from_preset(tmp_path / "preset")
    last = max(task.backbone.config.get("num_segments", 2) - 1, 0)
    for one in (task, explicit, again):
        for x, expected in (
            (TEXTS, [around(name, tokenizer, a) for a in first]),
            ((TEXTS, PAIR), [around(name, tokenizer, a, b) for a, b in zip(first, second)]),
        ):
            packed = one.preprocess(x)
            for row, (ids, segments) in enumerate(expected):
                real = packed["padding_mask"][row] > 0
                assert packed["token_ids"][row][real].numpy().tolist() == ids
                if "segment_ids" in task.backbone.input_fields:
                    actual = packed["segment_ids"][row][real].numpy().tolist()
                    assert actual == np.minimum(segments, last).tolist()
    packed = task.preprocess((TEXTS, PAIR))
    np.testing.assert_allclose(again(packed), task(packed), atol=1e-6)


@pytest.mark.filterwarnings("ignore:.*(new and random|entries, the embedding)")
def test_an_encoder_decoder_writes_what_its_tokenizer_ends(folder):
    made = folder("t5", "RobertaTokenizer")
    config = json.loads((made / "config.json").read_text())
    start = config.pop("decoder_start_token_id")
    assert tasks.Seq2SeqLM.from_preset(made).limits.end_ids == [config.pop("eos_token_id")]
    (made / "config.json").write_text(json.dumps(config))  # now the tokenizer alone says it
    (made / "generation_config.json").unlink(missing_ok=True)
    task = tasks.Seq2SeqLM.from_preset(made)
    begin, end = (task.tokenizer.token_to_id(token) for token in ("<s>", "</s>"))
    ids = task.preprocess(["the film"])["encoder_token_ids"][0].numpy().tolist()
    assert (ids[0], ids[-1]) == (begin, end)
    assert task.limits.end_ids == [end]
    inputs, labels = task.packer.targets(np.array(["a joy"]))
    assert labels[0, 0] == begin and labels[0, -1] == end
    assert inputs["decoder_token_ids"][0, 0] == task.tokenizer.special_id("pad") != start


@pytest.mark.eager
@pytest.mark.filterwarnings("ignore:.*entries, the embedding")
def test_a_language_model_with_berts_vocabulary(folder):
    with pytest.warns(UserWarning, match=r"eos_token_id=\[50256\] is stated, and there are"):
        task = tasks.CausalLM.from_preset(folder("gpt2", "BertTokenizer"))
    tokenizer = task.tokenizer
    ids = task.preprocess(["the film"])["token_ids"][0].numpy().tolist()
    assert ids == around("BertTokenizer", tokenizer, tokenizer("the film").numpy().tolist())[0]
    # What texts begin and end with in training, they do in generation and in scores, too.
    begin = tokenizer.special_id("cls")
    assert task.prompt_ids(["the film"]).to_list() == [[begin, *tokenizer("the film").numpy()]]
    assert task.limits.end_ids == [tokenizer.special_id("sep")]
    assert task.prompt_ids([""]).to_list() == [[tokenizer.special_id("cls")]]
    number = task.score(["the film"])["num_tokens"].tolist()
    assert number == [len(tokenizer("the film"))]  # the first is scored after [CLS]
    assert tokenizer.special_id("sep") in task.tokenize(["the film[SEP]"]).values


def test_tokens_of_the_same_role_by_hand():
    tokenizer = WordPieceTokenizer(
        ["<pad>", "[UNK]", "<s>", "</s>", "the", "film"],
        lowercase=True,
        cls_token="<s>",
        sep_token="</s>",
        pad_token="<pad>",
        mask_token=None,
    )
    keras.utils.set_random_seed(0)
    size = {"vocabulary_size": 6, "num_layers": 1, "num_heads": 1, "hidden_dim": 8}
    roberta = RobertaBackbone(**size, intermediate_dim=8, max_sequence_length=16)
    task = tasks.TextClassifier(roberta, tokenizer=tokenizer, num_classes=2)
    assert task.preprocess(["the film"])["token_ids"].numpy().tolist() == [[2, 4, 5, 3]]
    gpt2 = GPT2Backbone(**size, intermediate_dim=8, max_sequence_length=16)
    task = tasks.TextClassifier(gpt2, tokenizer=tokenizer, num_classes=2)
    assert task.preprocess(["the film"])["token_ids"].numpy().tolist() == [[4, 5]]


def test_without_the_tokens_that_a_model_needs():
    tokenizer = WordPieceTokenizer(
        ["[UNK]", "the"],
        lowercase=True,
        **dict.fromkeys(("cls_token", "sep_token", "pad_token", "mask_token")),
    )
    backbone = RobertaBackbone(2, 1, 1, hidden_dim=8, intermediate_dim=8, max_sequence_length=16)
    says = r"puts '<s>' around texts, .* names no cls_token or bos_token\. .* template=\('\$A:0'"
    with pytest.raises(ValueError, match=says):
        tasks.TextClassifier(backbone, tokenizer=tokenizer, num_classes=2)


@pytest.mark.filterwarnings("ignore:.*entries, the embedding")
def test_fairseqs_dictionary_beside_hugging_faces_vocabulary(folder):
    """RoBERTa's folders keep it, and have its ids already."""
    made = folder("roberta", "RobertaTokenizer")
    expected = tasks.MaskedLM.from_preset(made)
    (made / "dict.txt").write_text("13 850\n262 800\n")
    text = ["the film <mask> a joy"]
    np.testing.assert_array_equal(
        tasks.MaskedLM.from_preset(made).tokenize(text).values, expected.tokenize(text).values
    )
