"""Every entry that transformers writes into a configuration has a word, in every family."""

import json

import pytest

from keras_lm.converters import open_checkpoint
from keras_lm.converters.checked_files import HARMLESS, IMPLIED, READ, REFUSED
from keras_lm.converters.converter import read
from keras_lm.models.ernie_checkpoints import WORDS as ERNIE
from keras_lm.utils.registry import BACKBONES

GOLDEN = "huggingface_entries.json"  # of benchmarks/huggingface_in.py
TYPES = {"xlm-roberta": "roberta", "mt5": "t5"}
FOLDERS = {"electra": "electra-discriminator", "gpt_neo": "gpt-neo", "reformer": "reformer-mixed"}
FOLDERS |= {"nomic_bert": "nomic-bert"}
TABLES = {}
for backbone in BACKBONES.values():
    converter = vars(backbone).get("CONVERTERS", {}).get("huggingface")
    model_type = getattr(getattr(converter, "config", None), "model_type", None)
    if model_type is not None:
        TABLES.setdefault(model_type, converter.config)


@pytest.fixture(scope="module")
def written(goldens):
    return json.loads((goldens("") / GOLDEN).read_text())


def test_two_versions_and_all_families_are_compared(written):
    assert {version.split(".")[0] for version in written} == {"4", "5"}
    families = {TYPES.get(name, name) for actual in written.values() for name in actual}
    assert families == {*TABLES}


@pytest.mark.parametrize("version", ["4", "5"])
def test_each_entry_has_a_word_and_its_default_passes(written, version):
    for family, config in next(v for k, v in written.items() if k.startswith(version)).items():
        table = TABLES[TYPES.get(family, family)]
        assert table.words.unknown(config | {"_name_or_path": "x"}) == [], family
        needed = {"is_decoder": True} if family == "reformer" else {}
        table.words.check(config | needed, family, "ours")  # raises, or warns, which is an error


@pytest.mark.parametrize("family", sorted(TABLES))
def test_what_rules_read_is_said_to_be_read(family, goldens):
    """A configuration that notes who asks for what is read by the table."""
    checkpoint = open_checkpoint(goldens(FOLDERS.get(family, family)))
    asked = set()

    class Noting(dict):
        def __getitem__(self, key):
            asked.add(key)
            return super().__getitem__(key)

        def get(self, key, default=None):
            asked.add(key)
            return super().get(key, default)

    config, table = Noting(checkpoint.config), TABLES[family]
    read(table.rules, config, checkpoint.weights)
    others = {name for name in asked if table.words.word(name) not in (READ, REFUSED)}
    assert not others
    assert len(asked) > 8


@pytest.mark.parametrize("family", sorted(TABLES))
def test_every_refused_entry_is_an_error_with_another_value(family):
    words = TABLES[family].words
    for name in words.refused:
        with pytest.raises(ValueError, match=f"{name}='other'"):
            words.check({name: "other"}, family, "ours")
    assert {words.word(name) for name in ("use_cache", "label2id", "model_type")} == {
        HARMLESS,
        IMPLIED,
        READ,
    }


def test_what_thu_ernie_adds_to_bert():
    words = [ERNIE.word(name) for name in ("layer_types", "hidden_size", "is_decoder")]
    assert words == [READ, READ, REFUSED]
