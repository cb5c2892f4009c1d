"""Entries under the other names by which Hugging Face's code takes them."""

import json
import shutil

import pytest

from keras_lm.converters import CheckpointError
from keras_lm.models import Backbone
from keras_lm.presets import Source

ALIASES = {
    "distilbert": {
        "dim": "hidden_size",
        "n_heads": "num_attention_heads",
        "n_layers": "num_hidden_layers",
    },
    "gpt2": {
        "n_embd": "hidden_size",
        "n_positions": "max_position_embeddings",
        "n_head": "num_attention_heads",
        "n_layer": "num_hidden_layers",
    },
    "openai-gpt": {
        "n_embd": "hidden_size",
        "n_positions": "max_position_embeddings",
        "n_head": "num_attention_heads",
        "n_layer": "num_hidden_layers",
    },
    "gpt-neo": {"num_heads": "num_attention_heads", "num_layers": "num_hidden_layers"},
    "t5": {
        "d_kv": "head_dim",
        "d_model": "hidden_size",
        "num_heads": "num_attention_heads",
        "num_layers": "num_hidden_layers",
    },
    "marian": {"d_model": "hidden_size", "encoder_attention_heads": "num_attention_heads"},
    "xlnet": {
        "d_model": "hidden_size",
        "n_head": "num_attention_heads",
        "n_layer": "num_hidden_layers",
        "vocab_size": "n_token",
    },
    "transfo-xl": {
        "d_model": "hidden_size",
        "n_head": "num_attention_heads",
        "n_layer": "num_hidden_layers",
        "vocab_size": "n_token",
    },
}


@pytest.fixture
def change(goldens, tmp_path):
    def change(name, edit):
        folder = tmp_path / name
        shutil.copytree(goldens(name), folder)
        path = folder / "config.json"
        config = json.loads(path.read_text())
        path.write_text(json.dumps(edit(config)))
        return folder

    return change


@pytest.mark.parametrize("name", ALIASES)
def test_an_alias_is_read(name, change, goldens, recwarn):
    aliases = ALIASES[name]
    folder = change(name, lambda config: {aliases.get(key, key): config[key] for key in config})
    expected = Source.open(goldens(name)).arguments()
    recwarn.clear()
    assert Source.open(folder).arguments() == expected
    assert not [each for each in recwarn if "does not know" in str(each.message)]


def test_an_alias_counts_more(change):
    folder = change("gpt2", lambda config: config | {"num_hidden_layers": 1})
    assert Source.open(folder).arguments()["num_layers"] == 1
    folder = change("distilbert", lambda config: config | {"hidden_size": 7})
    with pytest.raises(CheckpointError, match="width 7"):
        Backbone.from_preset(folder)


@pytest.mark.parametrize("name", ["gpt2", "gpt-neo", "openai-gpt", "marian", "transfo-xl"])
def test_a_model_that_its_tensors_do_not_tell_needs_its_type(name, change):
    def drop(config):
        return {key: value for key, value in config.items() if key != "model_type"}

    with pytest.raises(CheckpointError, match="add the model_type of the model to its config"):
        Backbone.from_preset(change(name, drop))
