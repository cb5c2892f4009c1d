"""`finetune --seeds`: what is said of each, which is kept, how an interrupted run goes on."""

import re
import statistics

import pytest

from keras_lm import tasks
from keras_lm.models import GPT2Backbone
from keras_lm.tokenizers import train_vocabulary
from keras_lm.utils import files

pytestmark = pytest.mark.eager

CSV = "text,label\n" + "the film was good,good\nthe song was bad,bad\na loud song,bad\n" * 3


def weights(preset):
    return (preset / "model.safetensors").read_bytes()


@pytest.fixture
def arguments(write, tiny):
    held_out = write("held_out.csv", "text,label\na film,good\nloud,bad\nthe song,good\n")
    options = ["--epochs", 1, "--batch-size", 3, "--learning-rate", 0.02]
    return ["finetune", tiny, write("train.csv", CSV), "--validation", held_out, *options]


@pytest.mark.parametrize("where", ["", pytest.param("memory://", marks=pytest.mark.slow)])
def test_the_best_seed_is_kept(run, fail, arguments, tmp_path, monkeypatch, where):
    output = files.as_path(f"{where}{tmp_path}/several")
    several = [*arguments, "--seed", 4, "--seeds", 2, "--output", output]
    fit, seeds = tasks.Task.fit_packed, []

    def interrupted(self, *args, **options):
        seeds.append(len(seeds))
        if len(seeds) == 2:
            raise KeyboardInterrupt
        return fit(self, *args, **options)

    monkeypatch.setattr(tasks.Task, "fit_packed", interrupted)
    assert "The same command goes on" in fail(*several)
    assert not output.exists()
    assert "with another --batch-size" in fail(*several, "--batch-size", 2)
    said = run(*several)
    assert len(seeds) == 3  # the first is not trained again
    assert not output.with_name("several.unfinished").exists()

    losses = dict(re.findall(r"seed (\d) +accuracy [0-9.]+, loss ([0-9.]+)\n", said))
    assert [*losses] == ["4", "5"] and len(set(losses.values())) == 2
    best = min(losses, key=losses.get)
    assert f"kept    seed {best}" in said
    mean, deviation = re.search(r"mean .*loss ([0-9.]+) ± ([0-9.]+)\n", said).groups()
    values = [float(value) for value in losses.values()]
    assert float(mean) == pytest.approx(statistics.mean(values), abs=1e-4)
    assert float(deviation) == pytest.approx(statistics.stdev(values), abs=1e-4)
    assert "Epoch" not in said
    assert re.search(r"validation loss +([0-9.]+)\n", said)[1] == losses[best]

    run(*arguments, "--seed", best, "--output", tmp_path / "one")
    assert weights(tmp_path / "one") == weights(files.as_local(output))
    assert "seeds = 2" in (output / "run.toml").read_text()


@pytest.mark.slow
def test_seeds_of_a_language_model(run, write, tmp_path):
    tokenizer = train_vocabulary("byte_pair", 300, texts=["a good film", "a loud song"])
    backbone = GPT2Backbone(tokenizer.vocabulary_size, 1, 2, 8, 8, max_sequence_length=8)
    tasks.CausalLM(backbone, tokenizer=tokenizer).save_to_preset(tmp_path / "gpt2")
    corpus = write("corpus.txt", "the film was good\na loud song !\n" * 8)
    options = ["--validation-split", 0.25, "--epochs", 1, "--batch-size", 2, "--seeds", 2]
    said = run("finetune", tmp_path / "gpt2", corpus, "--output", tmp_path / "new", *options)
    assert said.count("perplexity") == 5  # of each seed, their mean, and training and validation
    assert sorted(path.name for path in tmp_path.iterdir()) == ["corpus.txt", "gpt2", "new"]


def test_what_is_refused(fail, arguments, tiny, write, tmp_path, monkeypatch):
    plain = ["finetune", tiny, write("train.csv", CSV), "--output", tmp_path / "new"]
    assert "give --validation FILE" in fail(*plain, "--seeds", 2)
    message = fail(*arguments, "--output", tmp_path / "new", "--seeds", 2, "--learning-rate", 1e38)
    assert "try a lower --learning-rate" in message
    assert not (tmp_path / "new.unfinished").exists()
