"""`save_to_huggingface`: what transformers wrote comes back as it was; what we made loads again.

Folders in goldens/ were written by transformers: here are the names and values in its files.
benchmarks/huggingface_out.py asks transformers itself.
"""

import inspect
import json
import sys

import keras
import numpy as np
import pytest
import safetensors.numpy
import tiny

from keras_lm import models, presets, tasks, training
from keras_lm.converters import open_checkpoint
from keras_lm.converters.converter import ConfigTable
from keras_lm.registry import BACKBONES
from keras_lm.tokenizers import MarianTokenizer, Tokenizer, WordPieceTokenizer

# A golden → the task whose head it has.
GOLDENS = {
    "bert": tasks.Pretrainer,
    "bert-tokencls": tasks.TokenClassifier,
    "roberta-seqcls": tasks.TextClassifier,
    "mpnet-seqcls": tasks.TextClassifier,
    "modernbert-seqcls": tasks.TextClassifier,
    "albert": tasks.Pretrainer,
    "openai-gpt-double-heads": tasks.MultipleChoice,
    "gpt2": tasks.CausalLM,
    "t5-v1_1": tasks.Seq2SeqLM,
    "marian": tasks.Seq2SeqLM,
    "xlnet": tasks.MaskedLM,
    "reformer-mixed": tasks.CausalLM,
    "deberta-v2": tasks.TextClassifier,
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
    "distilbert": tasks.MaskedLM,
    "electra-discriminator": tasks.Pretrainer,
    "electra-generator": tasks.MaskedLM,
    "openai-gpt": tasks.CausalLM,
    "gpt-neo": tasks.CausalLM,
    "t5": tasks.Seq2SeqLM,
    "deberta-v3": tasks.MaskedLM,
    "deberta-unshared": tasks.QuestionAnswerer,
}
# Arguments that are no part of a configuration.
OTHERS = {"self", "dtype", "name", "embeddings_of"}
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
    assert after.config["architectures"] == before.config["architectures"]
    for key in after.config.keys() & before.config.keys() - SPELLINGS:
        assert after.config[key] == before.config[key], key
    # (Marian's sines, which it leaves out of files, and misses if the model has no head; and a
    # copy of Reformer's bias, which later versions miss.)
    beside = ("embed_positions.weight", "lm_head.decoder.bias")
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
CAUSAL = ["CausalLM", "TextClassifier", "TextRegressor"]
MORE_MADE = {
    "BertBackbone": ENCODER,
    "SpanBertBackbone": ["TextClassifier", "MaskedLM"],
    "TinyBertBackbone": ["TokenClassifier"],
    "RobertaBackbone": [*ENCODER, "TokenClassifier"],
    "MPNetBackbone": [*ENCODER, "TokenClassifier"],
    "ModernBertBackbone": [*ENCODER, "TokenClassifier"],
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
        "max_length": 9,
        "bad_words_ids": [[12]],
        "forced_eos_token_id": 0,
    }


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
    assert again.get_arguments() == task.get_arguments()
    np.testing.assert_array_equal(again.predict(tiny.GOOD), task.predict(tiny.GOOD))


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
    """Stands for huggingface_hub's client, and keeps what it is told."""

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
    "FeatureExtractor has layers='first'": lambda: _features(layers="first"),
    "pooling='none'": lambda: _features(pooling="none"),
    "the 32 of ReformerBackbone's sequence_output": lambda: tasks.FeatureExtractor(
        models.ReformerBackbone(20, 1, **tiny.SIZE, max_sequence_length=32)
    ),
    "projections with activation='elu'": lambda: _features(
        projections=[{"output_dim": 4, "activation": "elu"}]
    ),
    "has adapters of 2 units": _with_adapters,
    "has LoRA": _with_lora,
    "TextClassifier over TinyBertBackbone has the head 'classification'": lambda: (
        tasks.TextClassifier(models.TinyBertBackbone(**SMALL), num_classes=2)
    ),
    "ConstituencyParser is not a task": lambda: tasks.ConstituencyParser(
        _bert(), class_names=["NP"], hidden_dim=8
    ),
    "activation='sigmoid'": lambda: tasks.TextRegressor(_bert(), activation="sigmoid"),
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
