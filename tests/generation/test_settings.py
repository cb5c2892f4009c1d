"""What generation_config.json states is followed as transformers 5.24 follows it, or named."""

import json
import shutil
from pathlib import Path

import numpy as np
import pytest
import tensorflow as tf

from keras_lm import models, tasks
from keras_lm.converters import CheckpointError
from keras_lm.converters.checked_files import HUGGINGFACE
from keras_lm.generation.logits import Rules
from keras_lm.generation.options import Sampling
from keras_lm.generation.settings import FILE, GENERATION, checked, read_settings, written
from keras_lm.tokenizers import WordPieceTokenizer

GOLDENS = Path(__file__).parents[1] / "goldens"
# `settings.json` of these folders: what transformers 5.24.0 writes with each of some settings.
CAUSAL, PAIRED = (json.loads((GOLDENS / n / "settings.json").read_text()) for n in ("gpt2", "t5"))
QUICK = ("several", "start", "forced end")


def names_of(cases):
    slow = pytest.mark.slow
    names = [each["name"] for each in cases["cases"]]
    return [pytest.param(name, marks=[] if name in QUICK else slow, id=name) for name in names]


# What transformers 4.57.6 and 5.24.0 write if everything is at its default.
DEFAULTS = {
    **{"max_length": 20, "min_length": 0, "early_stopping": False, "do_sample": False},
    **{"num_beams": 1, "use_cache": True, "temperature": 1.0, "top_k": 50, "top_p": 1.0},
    **{"typical_p": 1.0, "epsilon_cutoff": 0.0, "eta_cutoff": 0.0, "repetition_penalty": 1.0},
    **{"encoder_repetition_penalty": 1.0, "length_penalty": 1.0, "no_repeat_ngram_size": 0},
    **{"renormalize_logits": False, "remove_invalid_values": False, "token_healing": False},
    **{"num_return_sequences": 1, "output_attentions": False, "output_hidden_states": False},
    **{"output_scores": False, "return_dict_in_generate": False, "is_assistant": False},
    **{"encoder_no_repeat_ngram_size": 0, "num_assistant_tokens": 20, "assistant_lookbehind": 10},
    **{"num_assistant_tokens_schedule": "constant", "assistant_confidence_threshold": 0.4},
    **{"target_lookbehind": 10, "disable_compile": False, "diversity_penalty": 0.0},
    **{"num_beam_groups": 1, "transformers_version": "5.24.0", "_from_model_config": True},
}
OTHERS = """
max_new_tokens min_new_tokens max_time stop_strings use_mtp cache_implementation cache_config
max_cache_len return_legacy_cache prefill_chunk_size min_p top_h bad_words_ids
forced_bos_token_id forced_eos_token_id exponential_decay_length_penalty suppress_tokens
begin_suppress_tokens sequence_bias guidance_scale watermarking_config output_logits
pad_token_id bos_token_id eos_token_id decoder_start_token_id prompt_lookup_num_tokens
max_matching_ngram_size assistant_early_exit assistant_ensemble_weight speculation_type
compile_config low_memory continuous_batching_config penalty_alpha dola_layers constraints
force_words_ids
"""


def stating(folder, tmp_path, **settings):
    copy = Path(shutil.copytree(GOLDENS / folder, tmp_path / "model"))
    (copy / FILE).write_text(json.dumps(settings))
    return copy


def case(cases, name):
    return next(each for each in cases["cases"] if each["name"] == name)


@pytest.mark.eager
@pytest.mark.parametrize("name", names_of(CAUSAL))
def test_prompts_are_continued_as_stated(name, tmp_path):
    golden = case(CAUSAL, name)
    folder = stating("gpt2", tmp_path, **golden["settings"])
    task = tasks.CausalLM.from_preset(folder, tokenizer=None)
    for prompt, ids in zip(CAUSAL["prompts"], golden["ids"], strict=True):
        assert task.generate({"token_ids": [prompt]}) == [ids]


def test_a_batch_is_continued_as_each_prompt(tmp_path):
    golden = case(CAUSAL, "several")
    task = tasks.CausalLM.from_preset(
        stating("gpt2", tmp_path, **golden["settings"]), tokenizer=None
    )
    width = max(map(len, CAUSAL["prompts"]))
    ids, mask = np.zeros((2, len(CAUSAL["prompts"]), width), "int32")
    for row, prompt in enumerate(CAUSAL["prompts"]):
        ids[row, : len(prompt)], mask[row, : len(prompt)] = prompt, 1
    assert task.generate({"token_ids": ids, "padding_mask": mask}) == golden["ids"]


@pytest.mark.eager
def test_an_end_that_is_banned_stays_so(tmp_path):
    """A text that is too short does not end, though the end becomes likelier with each token."""
    stated = {"min_new_tokens": 4, "max_new_tokens": 5, "eos_token_id": 9}
    stated["exponential_decay_length_penalty"] = [0, 5.0]
    task = tasks.CausalLM.from_preset(stating("gpt2", tmp_path, **stated), tokenizer=None)
    (actual,) = task.generate({"token_ids": [CAUSAL["prompts"][0]]})
    assert len(actual) == 4


@pytest.mark.parametrize(
    ("stated", "number"),
    [
        ({"max_new_tokens": 12}, 12),  # more than half of the window
        ({"max_new_tokens": 5, "max_length": 4}, 5),
        ({"max_new_tokens": 99}, 8),  # beside which no prompt has room
        ({}, 8),
    ],
)
def test_a_stated_number_of_tokens_is_not_halved(stated, number):
    backbone = models.GPT2Backbone(20, 1, 2, 8, 16, max_sequence_length=16)
    task = tasks.CausalLM(backbone, generation=stated)
    assert (task.limits.max_new_tokens, task.limits.rules.max_length) == (number, None)


def test_what_is_usual_for_prompts_is_stated_for_sources():
    """50 tokens are the default of a `CausalLM`, and not of a `Seq2SeqLM`."""
    backbone = models.T5Backbone(20, 1, 2, 8, 16)
    task = tasks.Seq2SeqLM(backbone, generation={"max_new_tokens": 50})
    assert task.limits.max_new_tokens == 50


def words():
    """A vocabulary in which w7 is the token 7, and 0 and 1 are padding and the end."""
    tokens = ["[PAD]", "[SEP]", "[UNK]", "[CLS]", *(f"w{i}" for i in range(4, 180))]
    return WordPieceTokenizer(tokens, lowercase=False, mask_token=None)


@pytest.mark.eager
@pytest.mark.filterwarnings("ignore:.*has decoder_start_token_id")
@pytest.mark.parametrize("name", names_of(PAIRED))
def test_targets_are_written_as_stated(name, tmp_path):
    golden = case(PAIRED, name)
    folder = stating("t5", tmp_path, **golden["settings"])
    task = tasks.Seq2SeqLM.from_preset(folder, tokenizer=words())
    texts = [" ".join(f"w{id}" for id in ids[:-1]) for ids in PAIRED["prompts"]]
    special = (0, 1, 2)
    expected = [" ".join(f"w{id}" for id in ids if id not in special) for ids in golden["ids"]]
    assert [task.generate([text])[0] for text in texts] == [
        t.replace("w3", "[CLS]") for t in expected
    ]


# === What a file says, and what a call says ===


def read(tmp_path, config=None, has_source=False, **stated):
    for name, values in ((FILE, stated), ("config.json", config)):
        if values:
            (tmp_path / name).write_text(json.dumps(values))
    return read_settings(tmp_path, "CausalLM", has_source)


def test_configurations_may_have_every_entry():
    """Where there is no other file, they are read from config.json: none is called unknown."""
    assert not HUGGINGFACE.unknown(dict.fromkeys((*DEFAULTS, *OTHERS.split()), 1))


def test_every_entry_of_transformers_has_a_word(tmp_path):
    assert not GENERATION.unknown(dict.fromkeys((*DEFAULTS, *OTHERS.split()), 1))
    assert read(tmp_path, **DEFAULTS | {"max_length": None}) == {"top_k": 50}  # if one samples


@pytest.mark.parametrize(
    "stated",
    [
        {"num_beam_groups": 2},
        {"guidance_scale": 1.5},
        {"penalty_alpha": 0.6},
        {"constraints": [1]},
        {"stop_strings": ["x"]},
        {"do_sample": True, "num_beams": 4},
        {"early_stopping": "soon"},
        {"min_p": 3},
        {"temperature": -1, "do_sample": True},
    ],
)
def test_what_is_not_followed_is_an_error(stated, tmp_path):
    with pytest.raises(CheckpointError, match=rf"{next(iter(stated))}=.*generation=\{{\}}"):
        read(tmp_path, **stated)
    folder = stating("gpt2", tmp_path, **stated)
    assert tasks.CausalLM.from_preset(folder, tokenizer=None, generation={}).generation is None


def test_an_unknown_entry_is_named(tmp_path):
    with pytest.warns(UserWarning, match="generation_config.json has entries .* frobnicate"):
        assert read(tmp_path, frobnicate=3, top_p=0.5) == {"top_p": 0.5}


def test_without_the_file_config_json_counts(tmp_path):
    config = {"num_beams": 3, "max_length": 20, "n_embd": 8, "eos_token_id": [4, 5]}
    assert read(tmp_path, config) == {"num_beams": 3, "eos_token_id": [4, 5]}
    assert read(tmp_path, config | {"max_length": 21})["max_length"] == 21
    assert read(tmp_path, config, top_p=0.5) == {"top_p": 0.5, "eos_token_id": [4, 5]}


def test_sampling_is_that_of_transformers(tmp_path):
    assert read(tmp_path, do_sample=True) == {"temperature": 1.0, "top_k": 50}
    stated = {"do_sample": True, "temperature": 0.6, "top_p": 0.9, "top_k": 0, "min_p": 0.1}
    assert read(tmp_path, **stated) == {"temperature": 0.6, "top_p": 0.9, "min_p": 0.1}
    assert read(tmp_path, temperature=0.6, top_k=20) == {"top_k": 20}


def test_starts_of_a_decoder(tmp_path):
    assert read(tmp_path, {"decoder_start_token_id": 3}, True, num_beams=2) == {
        "decoder_start_token_id": 3,
        "num_beams": 2,
    }
    assert read(tmp_path, {"x": 1}, True, bos_token_id=5)["decoder_start_token_id"] == 5
    with pytest.warns(UserWarning, match="decoder_start_token_id=4, and config.json 3"):
        settings = read(tmp_path, {"decoder_start_token_id": 3}, True, decoder_start_token_id=4)
    assert settings == {"decoder_start_token_id": 4}
    assert read(tmp_path, {"x": 1}, True, max_length=12) == {"max_new_tokens": 11}


def test_settings_are_written_as_they_are_read(tmp_path):
    for settings in (
        {"temperature": 0.5, "top_p": 0.9},
        {"temperature": 1.0, "top_k": 50, "typical_p": 0.8},
        {"num_beams": 3, "early_stopping": "never", "eos_token_id": [3, 4]},
        {"eos_token_id": [3], "forced_eos_token_id": [7], "max_length": 30},
    ):
        (tmp_path / FILE).write_text(json.dumps(written(settings)))
        assert read_settings(tmp_path, "CausalLM", False) == settings


def test_what_is_not_sampled_is_said():
    """Pipelines of transformers sample where a folder does not say that they shall not."""
    assert written({"num_beams": 3}) == {"do_sample": False, "num_beams": 3}
    assert written({"temperature": 0.5})["do_sample"] is True


def test_a_call_counts_more_than_the_task():
    stated = {"temperature": 0.7, "top_p": 0.9}
    assert Sampling.of(None, {}, stated) == Sampling(temperature=0.7, top_p=0.9)
    assert Sampling.of(None, {"temperature": 0}, stated) == Sampling(temperature=0)
    assert Sampling.of(None, {"temperature": None}, stated) == Sampling()
    assert Sampling.of(None, {"num_beams": 3}, stated) == Sampling(num_beams=3)
    assert Sampling.of(None, {"top_k": 3}, stated) == Sampling(temperature=0.7, top_p=0.9, top_k=3)
    stated = {"num_beams": 4, "length_penalty": 0.5, "top_k": 9, "repetition_penalty": 1.1}
    beams = {"num_beams": 4, "length_penalty": 0.5, "repetition_penalty": 1.1}
    assert Sampling.of(5, {}, stated) == Sampling(5, **beams)
    actual = Sampling.of(None, {"temperature": 1.0}, stated)
    assert actual == Sampling(temperature=1.0, top_k=9, repetition_penalty=1.1)
    assert Sampling.of(None, {"num_beams": None}, stated).num_beams == 4


def test_unknown_settings_are_refused():
    with pytest.raises(ValueError, match=r"generation has num_beam, .*Did you mean num_beams"):
        checked({"num_beam": 3})
    assert checked({"num_beams": 1, "eos_token_id": 3, "top_p": None}) == {"eos_token_id": [3]}


# === Sampling from fewer tokens ===


def filtered(probabilities, **rules):
    values = tf.constant([sorted(probabilities, reverse=True)], tf.float32)
    return (Rules(**rules).kept(values).numpy()[0] > 0).tolist()


def test_tokens_are_kept_by_their_probability():
    chances = [0.5, 0.3, 0.15, 0.05]
    assert filtered(chances, min_p=0.4) == [True, True, False, False]
    assert filtered(chances, epsilon_cutoff=0.1) == [True, True, True, False]
    assert filtered(chances, epsilon_cutoff=0.9) == [True, False, False, False]
    # The entropy is 1.14, so 0.3, whose surprise is 1.20, is the most typical.
    assert filtered(chances, typical_p=0.2) == [False, True, False, False]
    assert filtered(chances, typical_p=0.6) == [True, True, False, False]
    # At 0.3: sqrt(0.3) · exp(-1.14) = 0.175.
    assert filtered(chances, eta_cutoff=0.3) == [True, True, False, False]


@pytest.mark.slow
def test_samples_obey_the_rules(tmp_path):
    settings = {"do_sample": True, "top_k": 0, "max_new_tokens": 6, "min_p": 1.0}
    task = tasks.CausalLM.from_preset(stating("gpt2", tmp_path, **settings), tokenizer=None)
    prompt = {"token_ids": [[5, 6, 7]]}
    assert task.generate(prompt, seed=3) == task.generate(prompt, temperature=0)
    task.generation = {"temperature": 5.0}
    assert task.generate(prompt, 6, seed=3) != task.generate(prompt, 6, temperature=0)
