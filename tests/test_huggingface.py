"""`save_to_huggingface`: what transformers wrote comes back as it was; what we made loads again.

Folders in goldens/ were written by transformers: here are the names and values in its files.
benchmarks/huggingface_out.py asks transformers itself.
"""

import inspect
import json
import shutil
import sys
import tempfile
from pathlib import Path

import keras
import numpy as np
import pytest
import safetensors.numpy
import tiny

from keras_lm import models, presets, tasks, training
from keras_lm.converters import open_checkpoint
from keras_lm.converters.converter import ConfigTable
from keras_lm.tokenizers import (
    MarianTokenizer,
    Tokenizer,
    TransformerXLTokenizer,
    WordPieceTokenizer,
    train_vocabulary,
)
from keras_lm.utils.registry import BACKBONES

# A golden → the task whose head it has.
GOLDENS = {
    "bert": tasks.Pretrainer,
    "bert-tokencls": tasks.TokenClassifier,
    "roberta-seqcls": tasks.TextClassifier,
    "mpnet-seqcls": tasks.TextClassifier,
    "modernbert-seqcls": tasks.TextClassifier,
    "eurobert": tasks.MaskedLM,
    "nomic-bert": tasks.MaskedLM,
    "gte": tasks.MaskedLM,
    "albert": tasks.Pretrainer,
    "openai-gpt-double-heads": tasks.MultipleChoice,
    "gpt2": tasks.CausalLM,
    "t5-v1_1": tasks.Seq2SeqLM,
    "marian": tasks.Seq2SeqLM,
    "xlnet": tasks.MaskedLM,
    "reformer-mixed": tasks.CausalLM,
    "deberta-v2": tasks.TextClassifier,
    "transfo-xl": tasks.CausalLM,
}
MORE_GOLDENS = {
    "bert-qa": tasks.QuestionAnswerer,
    "bert-seqcls": tasks.TextClassifier,
    "bert-seqcls-multilabel": tasks.TextClassifier,
    "bert-seqcls-regression": tasks.TextRegressor,
    "bert-multiple-choice": tasks.MultipleChoice,
    "roberta": tasks.MaskedLM,
    "mpnet": tasks.MaskedLM,
    "mpnet-multiple-choice": tasks.MultipleChoice,
    "modernbert": tasks.MaskedLM,
    "modernbert-qa": tasks.QuestionAnswerer,
    "eurobert-seqcls": tasks.TextClassifier,
    "nomic-bert-seqcls": tasks.TextClassifier,
    "gte-seqcls": tasks.TextClassifier,
    "gte-tokencls": tasks.TokenClassifier,
    "nomic-bert-tokencls": tasks.TokenClassifier,
    "eurobert-tokencls": tasks.TokenClassifier,
    "distilbert": tasks.MaskedLM,
    "electra-discriminator": tasks.Pretrainer,
    "electra-generator": tasks.MaskedLM,
    "openai-gpt": tasks.CausalLM,
    "gpt-neo": tasks.CausalLM,
    "t5": tasks.Seq2SeqLM,
    "deberta-v3": tasks.MaskedLM,
    "deberta-unshared": tasks.QuestionAnswerer,
    "transfo-xl-clamp": tasks.CausalLM,
    "transfo-xl-pre_lnorm": tasks.CausalLM,
    "transfo-xl-seqcls": tasks.TextClassifier,
}
# The class that wrote a golden without naming itself, by the golden's README.
WRITTEN_BY = {
    "transfo-xl": ["TransfoXLLMHeadModel"],
    "transfo-xl-clamp": ["TransfoXLLMHeadModel"],
    "transfo-xl-pre_lnorm": ["TransfoXLLMHeadModel"],
}
# Arguments that are no part of a configuration.
OTHERS = {"self", "dtype", "name", "embeddings_of"}


def slow(case):
    """A case whose code a quicker one runs, too."""
    return pytest.param(case, marks=pytest.mark.slow)


# Entries that may say the same in another way, and, without a tokenizer, ids of tokens.
SPELLINGS = {"architectures", "attention_types", "dtype"}
SPELLINGS |= {f"{role}_token_id" for role in ("pad", "bos", "eos", "cls", "sep")}


@pytest.mark.eager
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    "name", [*GOLDENS, *(pytest.param(name, marks=pytest.mark.thorough) for name in MORE_GOLDENS)]
)
def test_what_transformers_wrote(name, goldens, tmp_path):
    golden = goldens(name)
    cls = (GOLDENS | MORE_GOLDENS)[name]
    task = cls.from_preset(golden, tokenizer=None)
    task.save_to_huggingface(tmp_path / "new")
    before, after = (open_checkpoint(folder) for folder in (golden, tmp_path / "new"))
    stated = before.config["architectures"] if name not in WRITTEN_BY else WRITTEN_BY[name]
    assert after.config["architectures"] == stated
    for key in after.config.keys() & before.config.keys() - SPELLINGS:
        assert after.config[key] == before.config[key], key
    # (Marian's sines, which it leaves out of files, and misses if the model has no head; a copy of
    # Reformer's bias, which later versions miss; and Transformer-XL's frequencies, with our bits.)
    beside = ("embed_positions.weight", "lm_head.decoder.bias", "pos_emb.inv_freq")
    common = [name for name in after.tensors if not name.endswith(beside)]
    assert set(before.tensors) >= set(common)
    for tensor in common:
        np.testing.assert_array_equal(after.tensors[tensor], before.tensors[tensor], tensor)
    # Nothing that is read is missing: there is no warning, nor an error.
    again = cls.from_preset(tmp_path / "new", tokenizer=None)
    assert {v.path for v in again.weights} == {v.path for v in task.weights}


# A model → tasks over it, in each run and in thorough ones.
MADE = {
    "BertBackbone": ["TokenClassifier"],
    "RobertaBackbone": ["TextClassifier"],
    "GPT2Backbone": ["CausalLM"],
    "T5EncoderBackbone": [],
    "XLNetBackbone": [],
}
ENCODER = ["TextClassifier", "TextRegressor", "MultipleChoice", "QuestionAnswerer", "MaskedLM"]
OF_TEXTS_AND_TOKENS = ["TextClassifier", "TextRegressor", "TokenClassifier", "MaskedLM"]
CAUSAL = ["CausalLM", "TextClassifier", "TextRegressor"]
MORE_MADE = {
    "BertBackbone": ENCODER,
    "SpanBertBackbone": ["TextClassifier", "MaskedLM"],
    "TinyBertBackbone": ["TokenClassifier"],
    "RobertaBackbone": [*ENCODER, "TokenClassifier"],
    "MPNetBackbone": [*ENCODER, "TokenClassifier"],
    "ModernBertBackbone": [*ENCODER, "TokenClassifier"],
    "NomicBertBackbone": OF_TEXTS_AND_TOKENS,
    "EuroBertBackbone": OF_TEXTS_AND_TOKENS,
    "DistilBertBackbone": [*ENCODER, "TokenClassifier"],
    "AlbertBackbone": [*ENCODER, "TokenClassifier"],
    "ElectraBackbone": [*ENCODER, "TokenClassifier"],
    "DebertaV3Backbone": [*ENCODER, "TokenClassifier"],
    "GPT2Backbone": [*CAUSAL, "MultipleChoice"],
    "GPTNeoBackbone": CAUSAL,
}


@pytest.mark.eager
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("name", "kinds"),
    [
        *MADE.items(),
        *(pytest.param(*each, marks=pytest.mark.thorough) for each in MORE_MADE.items()),
    ],
)
def test_loads_again(name, kinds, tokenizer_of, backbone_of, tmp_path):
    tokenizer, backbone = tokenizer_of(tiny.MODELS[name][0]), backbone_of(name)
    backbone.save_to_huggingface(tmp_path / "bare", tokenizer=tokenizer)
    ids = {"token_ids": np.array([[5, 9, 7, 3], [8, 6, 4, 2]])}
    again = models.Backbone.from_preset(tmp_path / "bare")
    np.testing.assert_array_equal(again(ids)["sequence_output"], backbone(ids)["sequence_output"])
    assert Tokenizer.from_preset(tmp_path / "bare").vocabulary == tokenizer.vocabulary
    settings = json.loads((tmp_path / "bare/tokenizer_config.json").read_text())
    segments = "segment_ids" in backbone.input_fields and backbone.config.get("num_segments", 2)
    assert ("token_type_ids" in settings["model_input_names"]) == (segments > 1)
    for kind in kinds:
        arguments, asked = tiny.TASKS[kind]
        task = getattr(tasks, kind)(backbone, tokenizer=tokenizer, **arguments)
        task.save_to_huggingface(tmp_path / kind)
        again = type(task).from_preset(tmp_path / kind)
        packed = task.preprocess(asked if kind != "CausalLM" else {"text": asked["prompt"]})
        first, second = task(packed), again(packed)
        keras.tree.map_structure(np.testing.assert_array_equal, first, second)
        assert getattr(again, "class_names", None) == getattr(task, "class_names", None)


# What a Transformer-XL may be, beside tables of words for each cluster.
TRANSFORMER_XLS = {
    "clusters": {"same_length": True, "clamp_length": 3, "dropout": 0.2, "attention_dropout": 0.3},
    "one_table": {"div_val": 1, "embedding_dim": 8, "tie_projections": [True, False, True]},
    "untied": {"tie_embeddings": False, "tie_projections": [False] * 3, "pre_norm": True},
    "plain": {"cutoffs": [], "memory_length": 0, "untie_biases": False, "starts_empty": True},
    "unlike": {"embedding_dim": 24, "project_all": False, "counts_itself": False, "head_dim": 6},
}


def _transformer_xl(**arguments):
    usual = {"cutoffs": [4, 9], "div_val": 2, "memory_length": 3}
    return models.TransformerXLBackbone(14, 2, **tiny.SIZE | usual | arguments)


@pytest.mark.eager
@pytest.mark.parametrize(
    "case",
    [
        "clusters",
        "plain",
        *(
            pytest.param(case, marks=pytest.mark.thorough)
            for case in ("one_table", "untied", "unlike")
        ),
    ],
)
def test_transformer_xl_loads_again(case, tmp_path):
    words = ["<eos>", "<unk>", "the", "film", "was", "@-@", "good", *"abcdefg"]
    tokenizer = TransformerXLTokenizer(words, "<unk>", eos_token="<eos>", lowercase=True)
    backbone = _transformer_xl(**TRANSFORMER_XLS[case])
    tensors = {"": "transformer.", "causal_lm": "crit."}
    for name, kind in (("bare", ""), ("writer", "causal_lm"), ("classifier", "classification")):
        made, folder = backbone, tmp_path / name
        if kind == "causal_lm":
            made = tasks.CausalLM(backbone, tokenizer=tokenizer)
        elif kind:
            made = tasks.TextClassifier(backbone, tokenizer=tokenizer, class_names=["bad", "fine"])
            if "embedding_dim" in TRANSFORMER_XLS[case]:
                with pytest.raises(ValueError, match="not equally wide"):
                    made.save_to_huggingface(folder)
                continue
        if kind:
            made.save_to_huggingface(folder)
        else:
            made.save_to_huggingface(folder, tokenizer=tokenizer)
        again = (type(made) if kind else models.Backbone).from_preset(folder)
        ids = {"token_ids": np.array([[5, 9, 7, 3], [8, 6, 4, 13]]), "padding_mask": [[1] * 4] * 2}
        keras.tree.map_structure(np.testing.assert_array_equal, made(ids), again(ids))
        actual = getattr(again, "backbone", again).get_config()
        same = {"project_all": True, "counts_itself": True, "starts_empty": False}
        stated = backbone.get_config() | same | {"name": actual["name"]}
        for argument, value in actual.items():
            other = stated[argument]
            if argument in ("embedding_dim", "head_dim") and other is None:
                other = value
            assert value == other, argument
        read = Tokenizer.from_preset(folder)
        assert read.vocabulary == words and read.get_config() == tokenizer.get_config()
        kept = safetensors.numpy.load_file(folder / "model.safetensors")
        begins = tensors.get(kind, "score.")
        assert any(tensor.startswith(begins) for tensor in kept) == bool(kind)
        settings = json.loads((folder / "tokenizer_config.json").read_text())
        assert settings["model_input_names"] == ["input_ids"]  # its class takes no mask
        assert "| Versions of transformers | 4.35 to 4.37 |" in (folder / "README.md").read_text()
        assert {"vocab.txt", "tokenizer_config.json"} < {path.name for path in folder.iterdir()}


@pytest.mark.eager
def test_words_that_transformers_cannot_have(tmp_path):
    for wrong, arguments in {
        "rules='whitespace'": {"rules": "whitespace"},
        "unknown_token=None": {"unknown_token": None},
        "takes '<UNK>'": {"vocabulary": ["<UNK>", "<unk>", "b c"]},
        "white space, such as 'b c'": {"vocabulary": ["<unk>", "b c"]},
        "has eos_token=None": {"vocabulary": ["<unk>", "<eos>", "word"]},
    }.items():
        words = {"vocabulary": ["<unk>", "two", "words"], "unknown_token": "<unk>"}
        tokenizer = TransformerXLTokenizer(**words | arguments)
        backbone = models.TransformerXLBackbone(3, 1, **tiny.SIZE)
        with pytest.raises(ValueError) as caught:
            backbone.save_to_huggingface(tmp_path / "new", tokenizer=tokenizer)
        assert wrong in str(caught.value)
    assert not list(tmp_path.iterdir())


def spiece(goldens):
    return (goldens("tokenizers/sentencepiece-t5") / "spiece.model").read_bytes()


@pytest.mark.eager
def test_translator_with_two_vocabularies(goldens, tmp_path):
    model = spiece(goldens)
    entries = ["</s>", "<unk>", *"▁abcdefgh", "<pad>"]
    tokenizer = MarianTokenizer(model, model, entries, [*entries[:-1], "i", "<pad>"])
    backbone = models.MarianBackbone(12, 1, **tiny.SIZE, decoder_vocabulary_size=13)
    task = tasks.Seq2SeqLM(backbone, tokenizer=tokenizer, num_beams=3, target_length=9)
    task.save_to_huggingface(tmp_path / "new")
    again = tasks.Seq2SeqLM.from_preset(tmp_path / "new")
    assert again.tokenizer.target.vocabulary == tokenizer.target.vocabulary
    for one, other in zip(task.weights, again.weights, strict=True):
        np.testing.assert_array_equal(one, other)
    stated = json.loads((tmp_path / "new/generation_config.json").read_text())
    assert stated == {
        "eos_token_id": 0,
        "pad_token_id": 11,
        "decoder_start_token_id": 12,
        "num_beams": 3,
        "length_penalty": 1.0,
        "max_length": 10,  # with the token that the decoder starts with
        "target_length": 9,
        "bad_words_ids": [[12]],
        "do_sample": False,
    }
    assert (again.num_beams, again.target_length, again.limits.max_new_tokens) == (3, 9, 9)


@pytest.mark.eager
def test_a_translator_without_a_tokenizer_keeps_its_tokens(goldens, tmp_path):
    source, stated = tmp_path / "source", {"pad_token_id": 1, "eos_token_id": 2}
    stated["decoder_start_token_id"] = 0
    shutil.copytree(goldens("t5"), source)
    config = json.loads((source / "config.json").read_text())
    (source / "config.json").write_text(json.dumps(config | stated))
    (source / "generation_config.json").unlink()

    def written(model):
        folder = Path(tempfile.mkdtemp(dir=tmp_path)) / "new"
        model.save_to_huggingface(folder)
        config = json.loads((folder / "config.json").read_text())
        return {name: config[name] for name in stated}

    backbone = models.Backbone.from_preset(source)
    assert written(backbone) == written(tasks.Seq2SeqLM(backbone, tokenizer=None)) == stated
    assert written(tasks.Seq2SeqLM.from_preset(source, tokenizer=None)) == stated
    backbone.save_to_preset(tmp_path / "preset")  # which has no place for them
    with pytest.warns(UserWarning, match="no tokenizer, .*pad_token_id=0, eos_token_id=1"):
        written(models.Backbone.from_preset(tmp_path / "preset"))


@pytest.mark.eager
@pytest.mark.parametrize("kind", ["unigram", "byte_pair", "wordpiece"])
def test_a_vocabulary_of_ones_own(kind, tmp_path):
    texts = ["the cat sat on the mat", "a dog saw the cat", "the dog ran and it sat"] * 30
    tokenizer = train_vocabulary(kind, {"unigram": 22, "byte_pair": 270}.get(kind, 60), texts=texts)
    backbone = models.T5Backbone(tokenizer.vocabulary_size, 1, **tiny.SIZE)
    task = tasks.Seq2SeqLM(backbone, tokenizer=tokenizer, target_length=8)
    task.save_to_huggingface(tmp_path / "new")
    again = tasks.Seq2SeqLM.from_preset(tmp_path / "new")
    assert again.tokenizer.vocabulary == tokenizer.vocabulary
    assert again.tokenizer.special_tokens == tokenizer.special_tokens
    assert (again.limits, again.packer.start_id) == (task.limits, task.packer.start_id)
    assert again.tokenizer(texts[:3]).to_list() == tokenizer(texts[:3]).to_list()


OF_BERT = {"pad": "[PAD]", "unknown": "[UNK]", "cls": "[CLS]", "sep": "[SEP]", "mask": "[MASK]"}
OF_ALBERT = {**OF_BERT, "pad": "<pad>", "unknown": "<unk>"}
OF_ROBERTA = {"cls": "<s>", "pad": "<pad>", "sep": "</s>", "unknown": "<unk>", "mask": "<mask>"}
OF_XLNET = {"unknown": "<unk>", "cls": "<cls>", "sep": "<sep>", "pad": "<pad>", "mask": "<mask>"}
OWN = [
    ("AlbertBackbone", "unigram", OF_ALBERT),
    ("AlbertBackbone", "unigram", OF_ALBERT | {"bos": "<s>", "eos": "</s>"}),
    ("AlbertBackbone", "byte_pair", OF_ALBERT),
    ("DebertaV3Backbone", "unigram", OF_BERT),
    ("DebertaV3Backbone", "unigram", OF_ROBERTA),
    (
        "DebertaV3Backbone",
        "unigram",
        {"pad": "<p>", "eos": "</s>", "unknown": "<unk>", "bos": "<s>"},
    ),
    ("DebertaV3Backbone", "wordpiece", OF_BERT),
    ("XLNetBackbone", "unigram", OF_XLNET),
    ("XLNetBackbone", "byte_pair", OF_XLNET),
    ("RobertaBackbone", "unigram", OF_ROBERTA),
    ("RobertaBackbone", "byte_pair", OF_ROBERTA),
    ("MPNetBackbone", "byte_pair", OF_ROBERTA),
    ("ReformerBackbone", "unigram", OF_ALBERT),
    ("GPT2Backbone", "byte_pair", OF_BERT),
    ("GPT2Backbone", "byte_pair", None),
]


@pytest.mark.eager
@pytest.mark.parametrize(("name", "kind", "special"), OWN)
def test_special_tokens_of_ones_own(name, kind, special, tmp_path):
    """Readers took the family's for roles without one, and ALBERT's own steps around its model."""
    texts = ["the cat sat on the mat", "a ``dog'' saw 12, and it sat", "Émile ran"]
    size = {"unigram": 32, "byte_pair": 270}.get(kind, 70)
    tokenizer = train_vocabulary(kind, size, texts=texts * 30, special_tokens=special)
    backbone = tiny.make_backbone(name, tokenizer.vocabulary_size)
    backbone.save_to_huggingface(tmp_path / "new", tokenizer=tokenizer)
    again = Tokenizer.from_preset(tmp_path / "new")
    assert again.get_config() | {"template": None} == tokenizer.get_config() | {"template": None}
    assert again(texts).to_list() == tokenizer(texts).to_list()
    config = json.loads((tmp_path / "new" / "tokenizer_config.json").read_text())
    if config["tokenizer_class"] == "PreTrainedTokenizerFast":  # the others have usual tokens
        lacking = {*tokenizer.ROLES} - {*tokenizer.special_tokens} - {"unknown"}
        assert all(config[f"{role}_token"] is None for role in lacking)
    else:
        assert special is None


@pytest.mark.eager
@pytest.mark.parametrize("special", [OF_BERT, None])
def test_an_entry_that_transformers_takes_for_padding(special, tmp_path):
    """It counts RoBERTa's positions without the id 1, be it padding or a letter."""
    texts = ["the cat sat on the mat"]
    tokenizer = train_vocabulary("byte_pair", 270, texts=texts, special_tokens=special)
    backbone = tiny.make_backbone("RobertaBackbone", tokenizer.vocabulary_size)
    pad = r"'\[PAD\]'" if special else None
    with pytest.raises(ValueError, match=rf"has pad_token={pad}, .* the id 1, as first_position"):
        backbone.save_to_huggingface(tmp_path / "new", tokenizer=tokenizer)
    if special:
        first = models.RobertaBackbone(270, **tiny.TRANSFORMER, first_position=1)
        first.save_to_huggingface(tmp_path / "new", tokenizer=tokenizer)


@pytest.mark.eager
def test_words_without_all_of_berts_tokens(tmp_path):
    entries = ["[UNK]", "[PAD]", "[SEP]", "a", "b", "##b"]
    tokenizer = WordPieceTokenizer(entries, False, cls_token=None, mask_token=None)
    task = tasks.Seq2SeqLM(models.T5Backbone(6, 1, **tiny.SIZE), tokenizer=tokenizer)
    task.save_to_huggingface(tmp_path / "new")
    again = tasks.Seq2SeqLM.from_preset(tmp_path / "new").tokenizer
    assert again.vocabulary == entries
    assert again.special_tokens == tokenizer.special_tokens


@pytest.mark.eager
def test_byte_pairs_of_sentencepiece_are_not_written(tmp_path):
    tokenizer = train_vocabulary("sentencepiece_bpe", 30, texts=["the cat sat on the mat"] * 30)
    backbone = models.T5Backbone(30, 1, **tiny.SIZE)
    with pytest.raises(ValueError, match=r"byte pairs, which is not written .* Save a preset"):
        tasks.Seq2SeqLM(backbone, tokenizer=tokenizer).save_to_huggingface(tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.eager
def test_what_our_model_does_without(backbone_of, tmp_path):
    sizes = {"vocabulary_size": 20, **tiny.TRANSFORMER}
    for backbone in (
        models.RobertaBackbone(**sizes, num_segments=0),
        models.AlbertBackbone(**sizes, embedding_dim=16),
        models.GPT3Backbone(**sizes, attention_windows=[None]),
    ):
        folder = tmp_path / backbone.name
        backbone.save_to_huggingface(folder)
        ids = {"token_ids": [[5, 9, 7, 3]]}
        again = models.Backbone.from_preset(folder)
        np.testing.assert_allclose(
            again(ids)["sequence_output"], backbone(ids)["sequence_output"], atol=1e-6
        )


@pytest.mark.eager
def test_shards(backbone_of, tmp_path):
    backbone = backbone_of("BertBackbone")
    backbone.save_to_huggingface(tmp_path / "new", max_shard_bytes=5_000)
    index = json.loads((tmp_path / "new/model.safetensors.index.json").read_text())
    shards = set(index["weight_map"].values())
    assert len(shards) > 2
    read = [safetensors.numpy.load_file(tmp_path / "new" / name) for name in shards]
    assert index["metadata"]["total_size"] == sum(a.nbytes for each in read for a in each.values())
    again = models.Backbone.from_preset(tmp_path / "new")
    for one, other in zip(backbone.weights, again.weights, strict=True):
        np.testing.assert_array_equal(one, other)


@pytest.mark.eager
def test_features_go_to_sentence_transformers(tokenizer_of, backbone_of, tmp_path):
    task = tasks.FeatureExtractor(
        backbone_of("BertBackbone"),
        tokenizer=tokenizer_of("wordpiece"),
        pooling=["first", "mean"],
        normalize=True,
        projections=[
            {"output_dim": 6, "activation": "tanh", "use_bias": True},
            {"output_dim": 4, "activation": "linear", "use_bias": False},
        ],
        prompt="query: ",
        sequence_length=20,
    )
    task.save_to_huggingface(tmp_path / "new")
    modules = json.loads((tmp_path / "new/modules.json").read_text())
    names = ["", "1_Pooling", "2_Dense", "3_Dense", "4_Normalize"]
    assert [module["path"] for module in modules] == names
    again = tasks.FeatureExtractor.from_preset(tmp_path / "new")
    # (The folder's tokenizer cuts pairs so, in both libraries.)
    assert again.get_arguments() == task.get_arguments() | {"truncation": "halves"}
    np.testing.assert_array_equal(again.predict(tiny.GOOD), task.predict(tiny.GOOD))


@pytest.mark.eager
@pytest.mark.parametrize(
    ("name", "special"),
    [
        ("BertBackbone", 1),
        pytest.param("XLNetBackbone", 1, marks=pytest.mark.slow),
        pytest.param("T5EncoderBackbone", 0, marks=pytest.mark.slow),
    ],
)
def test_a_prompt_that_is_left_out(name, special, tokenizer_of, backbone_of, tmp_path):
    """As many tokens as the prompt has as a text, without the special one at its end."""
    tokenizer = tokenizer_of(tiny.MODELS[name][0])
    number = special + len(tokenizer(["query: "]).to_list()[0])
    task = tasks.FeatureExtractor(
        backbone_of(name), tokenizer=tokenizer, prompt="query: ", skipped_tokens=number
    )
    task.save_to_huggingface(tmp_path / "new")
    stated = json.loads((tmp_path / "new/1_Pooling/config.json").read_text())
    assert stated["include_prompt"] is False
    again = tasks.FeatureExtractor.from_preset(tmp_path / "new")
    assert again.features.skipped_tokens == number
    np.testing.assert_array_equal(again.predict(tiny.GOOD), task.predict(tiny.GOOD))


@pytest.mark.eager
@pytest.mark.parametrize("name", ["BertBackbone", *map(slow, ["RobertaBackbone", "GPT2Backbone"])])
@pytest.mark.parametrize("activation", [None, "sigmoid"])
def test_regressors_go_to_sentence_transformers(
    name, activation, tokenizer_of, backbone_of, tmp_path
):
    """A CrossEncoder with one output has a sigmoid, unless its configuration names another."""
    tokenizer = tokenizer_of(tiny.MODELS[name][0])
    task = tasks.TextRegressor(backbone_of(name), tokenizer=tokenizer, activation=activation)
    task.save_to_huggingface(tmp_path / "new")
    config = json.loads((tmp_path / "new/config.json").read_text())
    kind = "activation.Sigmoid" if activation else "linear.Identity"
    assert config["sentence_transformers"]["activation_fn"] == f"torch.nn.modules.{kind}"
    # Pipelines of transformers do the same: a sigmoid, unless it is a regression.
    assert config.get("problem_type") == (None if activation else "regression")
    again = tasks.TextRegressor.from_preset(tmp_path / "new")
    assert again.activation == activation
    texts = (tiny.GOOD, tiny.BAD)
    np.testing.assert_array_equal(again.predict(texts), task.predict(texts))


def test_no_other_format_has_an_activation(tmp_path):
    for way in ("google", "keras_hub"):
        task = tasks.TextRegressor(_bert(), activation="sigmoid")
        with pytest.raises(ValueError, match=r"activation='sigmoid'.* only activation=None"):
            getattr(task, f"save_to_{way}")(tmp_path / way)


@pytest.mark.eager
@pytest.mark.parametrize("name", [*map(slow, ["GPTBackbone", "GPTNeoBackbone"]), "GPT2Backbone"])
def test_classifiers_beside_a_language_model(name, tokenizer_of, backbone_of, tmp_path):
    """What is around texts, and how many tokens are kept, is the classifier's."""
    task = tasks.TextClassifier(
        backbone_of(name) if name != "GPTBackbone" else _gpt(),
        num_classes=2,
        tokenizer=tokenizer_of(tiny.MODELS[name][0]),
        sequence_length=6,
        lm_loss_weight=0.5,
        truncation_side="left",
    )
    task.save_to_huggingface(tmp_path / "new")
    stated = json.loads((tmp_path / "new/tokenizer_config.json").read_text())
    assert (stated["model_max_length"], stated["truncation_side"]) == (6, "left")
    again = tasks.TextClassifier.from_preset(tmp_path / "new", lm_loss_weight=0.5)
    texts = ["the film was good, and so were the cast and the story", "a word"]
    np.testing.assert_array_equal(again.predict(texts), task.predict(texts))


@pytest.mark.eager
@pytest.mark.parametrize(
    ("options", "stated"),
    [
        ({}, {"max_new_tokens": 16, "do_sample": False}),
        ({"max_new_tokens": 20}, {"max_new_tokens": 20, "do_sample": False}),
        ({"max_length": 9, "num_beams": 2}, {"max_length": 9, "num_beams": 2, "do_sample": False}),
        ({"temperature": 0.7}, {"max_new_tokens": 16, "temperature": 0.7, "top_k": 0}),
    ],
)
@pytest.mark.parametrize("name", ["GPT2Backbone", slow("GPTNeoBackbone")])
def test_lengths_of_continuations(name, options, stated, tokenizer_of, backbone_of, tmp_path):
    tokenizer = tokenizer_of(tiny.MODELS[name][0])
    task = tasks.CausalLM(backbone_of(name), tokenizer=tokenizer, generation=options)
    task.save_to_huggingface(tmp_path / "new")
    message = json.loads((tmp_path / "new/generation_config.json").read_text())
    assert message.items() >= stated.items()
    assert ("max_length" in message) != ("max_new_tokens" in message)
    again = tasks.CausalLM.from_preset(tmp_path / "new")
    assert (again.limits.usual_number, again.limits.rules) == (
        task.limits.usual_number,
        task.limits.rules,
    )


@pytest.mark.eager
@pytest.mark.parametrize("name", ["T5Backbone", "MarianBackbone"])
@pytest.mark.parametrize(
    ("options", "most"), [({"max_length": 6}, 6), ({"max_new_tokens": 50}, 51), ({}, 9)]
)
def test_lengths_of_targets(name, options, most, goldens, tmp_path):
    folder = goldens({"T5Backbone": "t5", "MarianBackbone": "marian"}[name])
    backbone = models.Backbone.from_preset(folder)
    options = options | {"eos_token_id": 0}
    task = tasks.Seq2SeqLM(backbone, tokenizer=_words(), target_length=8, generation=options)
    task.save_to_huggingface(tmp_path / "new")
    message = json.loads((tmp_path / "new/generation_config.json").read_text())
    window = backbone.max_sequence_length
    assert message["max_length"] == (most if window is None else min(most, window))


@pytest.mark.eager
def test_cards(tmp_path):
    task = tasks.TextClassifier(_bert(), class_names=["bad", "good"])
    for made, words in (
        (task, ["pipeline_tag: text-classification", "`bad`, `good`", "32 tokens"]),
        (_features(), ["library_name: sentence-transformers", "SentenceTransformer("]),
        (_bert(), ["pipeline_tag: feature-extraction", "`BertModel`"]),
    ):
        folder = tmp_path / made.name
        made.save_to_huggingface(folder)
        card = (folder / "README.md").read_text()
        assert card.startswith("---\nlibrary_name: ")
        assert all(word in card for word in words), card


class _Hub:
    """Stands for huggingface_hub's client, and records its calls."""

    told = []

    def create_repo(self, name, **options):
        self.told.append((name, options))

    def upload_folder(self, **options):
        self.told.append(options)


def test_upload(monkeypatch, tmp_path):
    monkeypatch.setattr("huggingface_hub.HfApi", _Hub)
    presets.upload(tmp_path, "hf://me/mine@draft")
    assert _Hub.told == [
        ("me/mine", {"private": True, "exist_ok": True}),
        {"repo_id": "me/mine", "folder_path": str(tmp_path), "revision": "draft"},
    ]
    with pytest.raises(FileNotFoundError, match="save a model there first"):
        presets.upload(tmp_path / "none", "hf://me/mine")
    for wrong in ("me/mine", "hf://mine", "hf://me/../mine"):
        with pytest.raises(ValueError, match="is not the name of a repository"):
            presets.upload(tmp_path, wrong)
    monkeypatch.setattr(_Hub, "upload_folder", lambda self, **_: 1 / 0)
    with pytest.raises(ValueError, match=r"ZeroDivisionError.*HF_TOKEN"):
        presets.upload(tmp_path, "hf://me/mine")


def _features(**arguments):
    return tasks.FeatureExtractor(_bert(), **arguments)


def _words():
    tokens = ["[PAD]", "[SEP]", "[UNK]", *(f"w{i}" for i in range(20))]
    return WordPieceTokenizer(tokens, lowercase=False, mask_token=None, cls_token=None)


def _gpt():
    rows = tiny.TOKENIZERS["bpe-gpt1"]().vocabulary_size
    return models.GPTBackbone(rows, **tiny.TRANSFORMER | {"intermediate_dim": 64})


def _bert(**arguments):
    return models.BertBackbone(20, **tiny.TRANSFORMER | arguments)


def _with_adapters():
    backbone = _bert()
    backbone.add_adapters(2)
    return backbone


def _with_lora():
    task = tasks.TextClassifier(_bert(), num_classes=2)
    training.enable_lora(task, rank=2)
    return task


SMALL = {"vocabulary_size": 20, **tiny.TRANSFORMER}
REFUSED = {
    "ElmoBackbone has no counterpart": tiny.elmo,
    "MarianEncoderBackbone has no counterpart": tiny.PARTS["MarianEncoderBackbone"],
    "activation='elu'": lambda: _bert(activation="elu"),
    "sharing='none'": lambda: models.AlbertBackbone(**SMALL, embedding_dim=8, sharing="none"),
    "attention_windows": lambda: models.GPT3Backbone(**SMALL),
    "attention_windows=": lambda: models.GPTNeoBackbone(
        **SMALL | {"num_layers": 2}, attention_windows=[2, 3]
    ),
    "intermediate_dim=24": lambda: models.GPTBackbone(**SMALL),
    "activation='gelu'": lambda: models.T5Backbone(
        20, 1, gated=True, activation="gelu", **tiny.SIZE
    ),
    "layer_norm_epsilon=0.1": lambda: models.MarianBackbone(
        20, 1, layer_norm_epsilon=0.1, **tiny.SIZE
    ),
    "head_dim=4": lambda: models.XLNetBackbone(20, 1, head_dim=4, **tiny.SIZE),
    "attention_dropout=0.1": lambda: models.XLNetBackbone(20, 1, **tiny.SIZE),
    "its classifier reads the first token of a causal network": lambda: tasks.TextClassifier(
        models.ReformerBackbone(20, 1, **tiny.SIZE, max_sequence_length=32), num_classes=2
    ),
    "starts_empty=True": lambda: _transformer_xl(starts_empty=True),
    "counts_itself=False": lambda: _transformer_xl(same_length=True, counts_itself=False),
    "project_all=False": lambda: _transformer_xl(project_all=False),
    "1 or more with same_length=True": lambda: _transformer_xl(memory_length=0, same_length=True),
    "FeatureExtractor has layers='first'": lambda: _features(layers="first"),
    "pooling='none'": lambda: _features(pooling="none"),
    "the 32 of ReformerBackbone's sequence_output": lambda: tasks.FeatureExtractor(
        models.ReformerBackbone(20, 1, **tiny.SIZE, max_sequence_length=32)
    ),
    "projections with activation='gelu_tanh'": lambda: _features(
        projections=[{"output_dim": 4, "activation": "gelu_tanh"}]
    ),
    "has adapters of 2 units": _with_adapters,
    "has LoRA": _with_lora,
    "TextClassifier over TinyBertBackbone has the head 'classification'": lambda: (
        tasks.TextClassifier(models.TinyBertBackbone(**SMALL), num_classes=2)
    ),
    "ConstituencyParser is not a task": lambda: tasks.ConstituencyParser(
        _bert(), class_names=["NP"], hidden_dim=8
    ),
    "leaves out all 3 tokens before a text": lambda: _features(
        tokenizer=WordPieceTokenizer(
            ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "query", ":"], True, mask_token=None
        ),
        prompt="query:",
        skipped_tokens=2,
    ),
    "weights that transformers has no place for": lambda: tasks.TokenClassifier(
        _bert(), class_names=["O", "B-X"], crf=True
    ),
}


@pytest.mark.eager
@pytest.mark.parametrize("words", REFUSED)
def test_refused_by_name(words, tmp_path):
    with pytest.raises(ValueError) as caught:
        REFUSED[words]().save_to_huggingface(tmp_path / "new")
    assert words in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.eager
def test_tokenizers_without_a_counterpart(tokenizer_of, backbone_of, monkeypatch, tmp_path):
    backbone, new = backbone_of("BertBackbone"), tmp_path / "new"
    with pytest.raises(ValueError, match="CharacterTokenizer has no counterpart"):
        backbone.save_to_huggingface(new, tokenizer=tokenizer_of("characters"))
    grown = tokenizer_of("bytebpe-gpt2").with_words(["remdesivir"])
    with pytest.raises(ValueError, match="whole_words="):
        backbone_of("GPT2Backbone").save_to_huggingface(new, tokenizer=grown)
    task = tasks.FeatureExtractor(
        backbone_of("GPT2Backbone"), tokenizer=tokenizer_of("bytebpe-gpt2")
    )
    with pytest.raises(ValueError, match="no pad_token"):
        task.save_to_huggingface(new)
    roberta = models.RobertaBackbone(
        tokenizer_of("bytebpe-roberta").vocabulary_size, **tiny.TRANSFORMER, first_position=5
    )
    with pytest.raises(ValueError, match="first_position"):
        roberta.save_to_huggingface(new, tokenizer=tokenizer_of("bytebpe-roberta"))
    monkeypatch.setitem(sys.modules, "tokenizers", None)
    with pytest.raises(ImportError, match=r"keras-lm\[vocab\]"):
        backbone.save_to_huggingface(new, tokenizer=tokenizer_of("wordpiece"))
    assert not list(tmp_path.iterdir())


@pytest.mark.eager
def test_the_class_of_a_tokenizer(tokenizer_of, tmp_path):
    """The model's own, if transformers 5 makes all steps of tokenizer.json in it."""
    pytest.importorskip("tokenizers", reason="needs: pip install 'keras-lm[vocab]'")
    bert = tokenizer_of("wordpiece")
    short = WordPieceTokenizer(bert.vocabulary, lowercase=True, max_word_length=9)
    kinds = [
        (models.BertBackbone, bert, "BertTokenizer"),
        (models.BertBackbone, short, None),
        (models.RobertaBackbone, tokenizer_of("bytebpe-modernbert"), None),  # in the form NFC
        (models.T5EncoderBackbone, tokenizer_of("sentencepiece-t5"), None),
    ]
    for i, (cls, tokenizer, expected) in enumerate(kinds):
        folder, usual = tmp_path / str(i), cls.CONVERTERS["huggingface"].tokenizer
        folder.mkdir()
        tokenizer.save_huggingface(folder, cls.TEMPLATE.for_tokenizer(tokenizer), usual, 9, True)
        config = json.loads((folder / "tokenizer_config.json").read_text())
        assert config["tokenizer_class"] == (expected or "PreTrainedTokenizerFast")


@pytest.mark.eager
def test_a_folder_is_not_replaced(backbone_of, tmp_path):
    (tmp_path / "config.json").write_text("{}")
    with pytest.raises(FileExistsError, match="is not empty"):
        backbone_of("BertBackbone").save_to_huggingface(tmp_path)


def test_tables_have_all_arguments():
    """None is lost in silence: each argument of a model's constructor has a rule."""
    written = 0
    for backbone in BACKBONES.values():
        converter = backbone.CONVERTERS.get("huggingface")
        if converter is not None and isinstance(converter.config, ConfigTable):
            arguments = set(inspect.signature(backbone.__init__).parameters)
            assert set(converter.config.rules) == arguments - OTHERS, backbone
            written += 1
    assert written > 10
