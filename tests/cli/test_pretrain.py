"""`keras-lm pretrain`, and `finetune --task causal-lm`: runs on packed windows."""

import gzip
import json
import warnings

import keras
import numpy as np
import pytest
from safetensors.numpy import load_file

from keras_lm import data, models, presets, tasks, training
from keras_lm.cli.command import RECIPES, tomllib
from keras_lm.cli.objective_options import ObjectiveOptions, default_objectives
from keras_lm.tokenizers import BytePairTokenizer, ByteTokenizer, EntityTokenizer, Tokenizer
from keras_lm.tokenizers.sentence_piece_model import BYTES
from keras_lm.utils import files

END = "<|endoftext|>"
CORPUS = "the film was good\nthe song was loud\n\nbad film , good song\n" * 4
TINY = ["--num-layers", 1, "--hidden-dim", 8, "--num-heads", 2, "--sequence-length", 16]

pytestmark = pytest.mark.eager


@pytest.fixture(scope="module")
def vocabulary(tmp_path_factory):
    folder = tmp_path_factory.mktemp("vocabulary") / "bytes"
    tokenizer = BytePairTokenizer([END, *BYTES.values()], [], bos_token=END, eos_token=END)
    presets.save(folder, None, tokenizer=tokenizer)
    return folder


@pytest.fixture(scope="module")
def corpus(tmp_path_factory):
    file = tmp_path_factory.mktemp("corpus") / "corpus.txt"
    file.write_text(CORPUS, encoding="utf-8")
    return file


@pytest.fixture
def pretrain(vocabulary, corpus):
    """`pretrain(output, …)` are the arguments of a small run of seven steps."""

    def arguments(output, *more):
        options = ["--vocabulary", vocabulary, "--output", output, "--batch-size", 2]
        return ["pretrain", corpus, *options, "--save-every", 0, *TINY, *more]

    return arguments


@pytest.fixture
def interrupt(monkeypatch):
    """`interrupt(step)` has Ctrl-C come before a step of the next runs; None lets them be."""

    def at(step):
        class Interrupt(keras.callbacks.Callback):
            def on_train_batch_begin(self, batch, logs=None):
                if batch == step:
                    raise KeyboardInterrupt

        monkeypatch.setattr(keras.callbacks, "TerminateOnNaN", Interrupt)

    yield at
    monkeypatch.undo()


def weights(folder):
    return (folder / "model.safetensors").read_bytes()


@pytest.mark.slow
@pytest.mark.parametrize("where", ["", "memory://"])
def test_pretrain_interrupted_and_not(run, fail, pretrain, interrupt, corpus, tmp_path, where):
    whole, parts = tmp_path / "whole", files.as_path(f"{where}{tmp_path}/parts")
    shown = run(*pretrain(whole, "--dropout", 0.1, "--validation", corpus))
    assert "GPT2Backbone" in shown and "validation perplexity" in shown

    interrupt(4)
    arguments = pretrain(parts, "--dropout", 0.1, "--validation", corpus)
    assert "The same command goes on" in fail(*arguments)
    assert not parts.exists()
    # Neither another run nor another preset gets into its way.
    assert "another --batch-size" in fail(*arguments, "--batch-size", 4)
    assert "another text" in fail(*[arguments[0], __file__, *arguments[2:]])
    interrupt(None)
    assert "Going on with the run" in run(*arguments)
    assert weights(files.as_local(parts)) == weights(whole)
    there = sorted(path.name for path in files.as_path(f"{where}{tmp_path}").iterdir())
    assert there == (["parts"] if where else ["parts", "whole"])


def test_what_it_trains_is_a_task(run, pretrain, corpus, tmp_path, answers):
    preset = tmp_path / "preset"
    run(*pretrain(preset, "--dropout", 0, "--batch-size", 4, "--steps", 1))
    task = tasks.Task.from_preset(preset)
    assert type(task) is tasks.CausalLM
    assert task.backbone.config["intermediate_dim"] == 32
    assert task.backbone.config["max_sequence_length"] == 16

    [actual] = answers(run("evaluate", preset, corpus, "--json"))
    documents = [line for line in CORPUS.splitlines() if line]
    assert actual["tokens"] == sum(len(document) + 1 for document in documents)
    assert actual["words"] == sum(len(document.split()) for document in documents)
    assert actual["texts"] == len(documents)
    windows = data.token_windows(documents, task.tokenizer, 16, drop_remainder=False)
    scores = []
    for window in windows.as_numpy_iterator():
        logits = np.asarray(task({"token_ids": window[None, :-1]}))[0].astype("float64")
        shares = logits - np.log(np.exp(logits).sum(axis=-1, keepdims=True))
        scores += shares[np.arange(len(window) - 1), window[1:]].tolist()
    assert len(scores) == actual["tokens"]
    assert actual["loss"] == pytest.approx(-np.mean(scores), rel=1e-5)
    assert actual["perplexity"] == pytest.approx(np.exp(-np.mean(scores)), rel=1e-5)
    assert actual["word_perplexity"] == pytest.approx(
        np.exp(-np.sum(scores) / actual["words"]), rel=1e-4
    )


@pytest.mark.slow
def test_finetune_goes_on_where_it_was_interrupted(
    run, fail, pretrain, interrupt, corpus, tmp_path
):
    preset = tmp_path / "preset"
    run(*pretrain(preset))
    common = ["--task", "causal_lm", "--batch-size", 2, "--validation-split", 0.25]
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    arguments = ["finetune", preset, corpus, *common, "--epochs", 2]
    shown = run(*arguments, "--output", whole)
    assert "tokens: " in shown and "validation perplexity" in shown
    assert json.loads((whole / "keras_lm.json").read_text())["task"]["class"] == "CausalLM"
    assert weights(whole) != weights(preset)

    # Nothing is saved within five minutes but at the end of an epoch: so stop in the second.

    class Interrupt(keras.callbacks.Callback):
        def on_epoch_begin(self, epoch, logs=None):
            if epoch == 1:
                raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(keras.callbacks, "TerminateOnNaN", Interrupt)
        assert "The same command goes on" in fail(*arguments, "--output", parts)
    run(*arguments, "--output", parts)
    assert weights(parts) == weights(whole)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["parts", "preset", "whole"]


def test_mistakes_leave_nothing(fail, pretrain, tiny, corpus, tmp_path):
    new = tmp_path / "new"
    assert "or bert_base_en" in fail(*pretrain(new, "--size", "bert_base"))
    assert "in the role of mask" in fail(*pretrain(new, "--size", "bert_base_en"))
    assert "otherwise train it from Python" in fail(*pretrain(new, "--size", "elmo_small_en"))
    message = fail(*pretrain(new, "--sequence-length", 9999))
    assert "0 windows of 9999 tokens: pass more text, or lower --sequence-length." in message
    assert "in the role of eos" in fail(*pretrain(new, "--vocabulary", tiny))
    assert "no such file" in fail(*pretrain(new, "--validation", tmp_path / "absent.txt"))
    assert "lower --batch-size" in fail(*pretrain(new, "--batch-size", 999))
    assert "try a lower --learning-rate" in fail(
        *pretrain(new, "--learning-rate", 1e30, "--batch-size", 4)
    )
    (tmp_path / "new.unfinished").mkdir()
    assert "is not an unfinished run" in fail(*pretrain(new))
    (tmp_path / "new.unfinished").rmdir()
    assert not list(tmp_path.iterdir())


# === Encoders, and going on ===

SENTENCES = "the film was good\na bad song\nis it loud ?\n\nthe song was loud\ngood film !\n\n" * 3


@pytest.fixture
def going_on(tiny, write):
    """`going_on(output, …)` are the arguments of a run that goes on from a tiny BERT."""

    def arguments(output, *more):
        source = ["--from", tiny, "--output", output, "--batch-size", 2]
        return ["pretrain", write("texts.txt", SENTENCES), *source, *more]

    return arguments


def test_texts_that_are_not_utf8(fail, going_on, write, tmp_path):
    arguments = going_on(tmp_path / "preset")
    write("texts.txt", b"\xef\xbb\xbfthe film\nwas caf\xe9\n")
    assert "texts.txt, line 2: not UTF-8" in fail(*arguments)
    words = write("words.txt", b"Loudsong\ncaf\xe9\n")
    arguments = going_on(tmp_path / "preset", "--add-words", words)
    assert "words.txt, line 2: not UTF-8" in fail(*arguments)


def stored(folder):
    return tomllib.loads((folder / "run.toml").read_text(encoding="utf-8"))


def test_going_on_with_further_words(run, going_on, tiny, write, tmp_path):
    preset = tmp_path / "preset"
    words = write("words.txt", "\ufeffLoudsong\n\nfilm\n")
    shown = run(
        *going_on(preset, "--add-words", words, "--objective", "masked-lm", "--mask-rate", 0.3)
    )
    assert "1 entries more, for 2 words" in shown
    assert "objective  masked-lm" in shown
    task = tasks.Task.from_preset(preset)
    assert type(task) is tasks.MaskedLM
    before = tasks.MaskedLM.from_preset(tiny)
    assert task.tokenizer(["a loudsong"]).to_list() == [[5, before.tokenizer.vocabulary_size]]
    # It went on from those weights, a little.
    rows = [np.asarray(one.backbone.token_embedding.embeddings)[:17] for one in (before, task)]
    assert 0 < np.abs(rows[1] - rows[0]).max() < 0.01
    assert stored(preset)["learning-rate"] == before.backbone.learning_rate
    assert stored(preset)["form"] == "full-sentences"


@pytest.mark.parametrize(
    "cls, of_lines, of_blocks",
    [
        (models.ReformerBackbone, ["masked-lm"], ["masked-lm"]),
        (models.BertBackbone, ["masked-lm"], ["masked-lm", "next-sentence"]),
        (models.RobertaBackbone, ["masked-lm"], ["masked-lm"]),
        (models.AlbertBackbone, ["n-grams"], ["n-grams", "sentence-order"]),
        (models.GPT2Backbone, ["causal-lm"], ["causal-lm"]),
        (models.SpanBertBackbone, ["spans", "span-boundary"], ["spans", "span-boundary"]),
        (models.ElectraBackbone, ["replaced-tokens"], ["replaced-tokens"]),
        (models.ElectraGeneratorBackbone, ["masked-lm"], ["masked-lm"]),
        (models.T5Backbone, ["span-corruption"], ["span-corruption"]),
        (models.XLNetBackbone, ["permutation-lm"], ["permutation-lm"]),
    ],
)
def test_default_objectives(cls, of_lines, of_blocks):
    for document, names in (("line", of_lines), ("block", of_blocks)):
        options = ObjectiveOptions(document=document)
        assert list(default_objectives(cls, cls.is_causal is True, options)) == names


def test_what_does_not_go_together(fail, going_on, tiny, tmp_path, monkeypatch):
    new = tmp_path / "new"
    for options, message in (
        (["--num-layers", 1], "--num-layers is not for --from"),
        (["--vocabulary", tiny], "--vocabulary is not for --from"),
        (["--objective", "causal-lm"], "reads in both directions"),
        (["--objective", "span-corruption"], "reads in both directions: --objective span-corr"),
        (["--mean-span", 2, "--objective", "spans"], "--mean-span is for --objective span-corr"),
        (["--own-shards"], "--own-shards is for a folder of shards, and FILES are texts"),
        (["--optimizer", "adafactor", "--warmup", 0.2], "--warmup is not for --optimizer adafac"),
        (["--objective", "next-sentence"], "add --split-sentences, or --document block"),
        (["--objective", "spans", "--whole-words"], "--whole-words is for --objective masked-lm"),
        (["--objective", "sentence-order", "--document", "block"], "no head for kind"),
        (["--objective", "replaced-tokens"], "BertBackbone has no head"),
        (["--objective", "permutation-lm"], "BertBackbone has no second stream"),
        (["--sequence-length", 99], "positions for 24"),
        (["--steps", 3, "--epochs", 3], "--steps and --epochs both say how long"),
        (["--objective", "distillation"], "learns from a --teacher: give one"),
        (["--teacher", tiny, "--objective", "masked-lm"], "--teacher is for --objective distil"),
        (["--teacher", tiny, "--add-words", __file__], "--add-words is not for --teacher"),
        (["--teacher", tiny], "has no head that predicts masked tokens"),
    ):
        assert message in fail(*going_on(new, *options)), options
    long = tmp_path / "long.txt.gz"
    long.write_bytes(gzip.compress(b"a film\n" + b"x" * 101))
    monkeypatch.setattr(
        "keras_lm.utils.input_files.LONGEST_LINE", 100
    )  # raised while tf.data iterates
    message = f"Error: {long}, line 2: longer than 100 bytes. Add line breaks, or remove the line."
    assert fail("pretrain", long, "--from", tiny, "--output", new).endswith(message)
    assert "Say what to train" in fail("pretrain", __file__, "--output", new)
    assert not new.exists()


HEADS = {
    "bert-base": {"token_head", "next_sentence_head"},
    "albert-base": {"token_head", "sentence_order_head"},
    "electra-small": {"replaced_head"},
    "span-bert-large": {"token_head", "span_boundary_head"},
    "roberta-base": {"token_head"},
    "gpt3-small": {"position_embedding"},
    "xlnet-large": {"target_embedding", "token_head"},
    "transformer-xl-enwik8": {"token_head"},
}


@pytest.mark.parametrize(
    "recipe, shown",
    [
        ("bert-base", "masked-lm, next-sentence"),
        pytest.param("albert-base", "n-grams, sentence-order", marks=pytest.mark.thorough),
        pytest.param("electra-small", "replaced-tokens", marks=pytest.mark.slow),
        pytest.param("span-bert-large", "spans, span-boundary", marks=pytest.mark.thorough),
        pytest.param("roberta-base", "masked-lm", marks=pytest.mark.thorough),
        pytest.param("gpt3-small", "causal-lm", marks=pytest.mark.thorough),
        pytest.param("xlnet-large", "permutation-lm", marks=pytest.mark.slow),
        pytest.param("transformer-xl-enwik8", "causal-lm", marks=pytest.mark.slow),
    ],
)
def test_a_recipe_scaled_down_trains(run, tiny, write, tmp_path, monkeypatch, recipe, shown):
    corrected, make = set(), training.AdamW.__init__

    def spy(self, *args, **kwargs):
        corrected.update({kwargs["bias_correction"]} if "bias_correction" in kwargs else {})
        make(self, *args, **kwargs)

    monkeypatch.setattr(training.AdamW, "__init__", spy)
    preset, texts = tmp_path / "preset", write("texts.txt", SENTENCES)
    vocabulary = tiny
    if recipe in ("roberta-base", "gpt3-small"):
        vocabulary = tmp_path / "vocabulary"
        like = ["--special-tokens", "roberta"] if recipe == "roberta-base" else []
        options = ["--kind", "byte-pair", "--size", 300, *like]
        run("vocab", texts, *options, "--output", vocabulary)
    if recipe == "transformer-xl-enwik8":
        vocabulary = tmp_path / "vocabulary"
        presets.save(vocabulary, backbone=None, tokenizer=ByteTokenizer())
    small = ["--num-layers", 1, "--hidden-dim", 16, "--num-heads", 4, "--sequence-length", 16]
    parts = [] if recipe == "electra-small" else ["--micro-batch-size", 2]
    run_size = ["--batch-size", 4, *parts, "--epochs", 1, "--document", "block"]
    line = ["--config", recipe, "--vocabulary", vocabulary, *small, *run_size]
    said = run("pretrain", texts, "--output", preset, *line)
    assert f"objective  {shown}" in said
    assert stored(preset)["hidden-dim"] == 16
    its = tomllib.loads((RECIPES / f"{recipe}.toml").read_text(encoding="utf-8"))
    for name in ("weight-decay", "learning-rate", "beta-2", "epsilon"):
        assert stored(preset)[name] == its[name]
    assert corrected == {its.get("bias-correction", True)}
    if its.get("streams"):
        memory = tasks.Task.from_preset(preset).backbone.config["memory_length"]
        assert memory == (12 if recipe == "xlnet-large" else 16)
    names = {name.split("/")[0] for name in load_file(preset / "model.safetensors")}
    assert names >= {"token_embedding"} | HEADS[recipe]
    if recipe == "electra-small":  # with its generator, it goes on, too
        again = ["--from", preset, "--output", tmp_path / "again", "--batch-size", 4]
        run("pretrain", texts, *again)
        assert stored(tmp_path / "again")["generator"] == str(preset / "generator")
        before, after = (
            tasks.MaskedLM.from_preset(folder / "generator").head.bias.numpy()
            for folder in (preset, tmp_path / "again")
        )
        assert 0 < np.abs(after - before).max() < 0.01
        assert type(tasks.Task.from_preset(preset / "generator")) is tasks.MaskedLM


# === Streams ===


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["memory", "states", "both directions"])
def test_streams_interrupted_and_not(run, pretrain, interrupt, fail, tiny, write, tmp_path, kind):
    whole, parts = tmp_path / "whole", tmp_path / "parts"
    length = ["--sequence-length", 16 if kind == "both directions" else 8]
    if kind == "both directions":
        texts, size = write("texts.txt", SENTENCES), ["--size", "xlnet_base_en", "--dropout", 0.1]
        start = ["pretrain", texts, "--vocabulary", tiny, "--save-every", 0, "--batch-size", 4]
        small = ["--num-layers", 1, "--hidden-dim", 8, "--num-heads", 2]
        memory = {"memory_length": 12, "reuse_length": 8}
        small += ["--document", "block"]
    else:
        start, memory = pretrain(whole)[: -len(TINY)], {}
        start = [*start[:4], *start[6:]]  # without the output
        small = ["--num-layers", 1, "--hidden-dim", 8]
        size = ["--size", "awd_lstm_base_en"]
        if kind == "memory":
            size, memory = ["--size", "transformer_xl_12_layers_enwik8"], {"memory_length": 8}
            small += ["--num-heads", 2]
    line = [*start, *size, *small, *length, "--streams", "--steps", 5]
    assert "loss" in run(*line, "--output", whole)
    task = tasks.Task.from_preset(whole)
    assert type(task) is (tasks.Pretrainer if len(memory) == 2 else tasks.CausalLM)
    assert {name: task.backbone.config[name] for name in memory} == memory
    interrupt(2)
    assert "The same command goes on" in fail(*line, "--output", parts)
    interrupt(None)
    run(*line, "--output", parts)
    assert weights(parts) == weights(whole)
    again = ["--from", whole, "--output", tmp_path / "again", "--streams", *length]
    assert "loss" in run("pretrain", start[1], *again, "--batch-size", 2)


def test_what_has_no_streams(fail, pretrain, going_on, tmp_path):
    new = tmp_path / "new"
    assert "--streams carries a state along, and BertB" in fail(*going_on(new, "--streams"))
    assert "--form is not for --streams" in fail(*going_on(new, "--streams", "--form", "single"))
    size = ["--size", "transformer_xl_12_layers_enwik8"]
    assert "add --streams to keras-lm pretrain" in fail(*pretrain(new, *size))
    size = ["--size", "awd_lstm_base_en", "--streams"]
    assert "--num-heads is not for --size awd_lstm_base_en" in fail(*pretrain(new, *size))
    assert not new.exists()


@pytest.mark.slow
def test_reformer_in_both_directions(run, pretrain, fail, tiny, answers, corpus, tmp_path):
    preset, again = tmp_path / "preset", tmp_path / "again"
    masked = ["--size", "reformer_enwik8_en", "--vocabulary", tiny, "--objective", "masked-lm"]
    run(*pretrain(preset, *masked, "--steps", 1))
    config = tasks.Task.from_preset(preset).backbone.config
    assert not config["causal"] and config["dropout"] == 0.2
    assert config["num_lsh_chunks_after"] == config["num_local_chunks_after"] == 1
    for objective in ("n-grams", "spans"):
        other = tmp_path / objective
        run(*pretrain(other, *masked[:-1], objective, "--steps", 1))
        assert tasks.Task.from_preset(other).backbone.config == config
    # Its source says the direction, so the objective is known, and that of the other is refused.
    line = ["pretrain", corpus, "--from", preset, "--batch-size", 2, "--output", again]
    assert "reads in both directions" in fail(*line, "--objective", "causal-lm")
    assert "objective  masked-lm" in run(*line, "--steps", 1)
    (row,) = answers(run("predict", again, "the film was [MASK]"))
    assert len(row["answer"]["tokens"]) == 1 and row["answer"]["text"].startswith("the film was")


def test_reformer_from_raw_text_to_answers(run, pretrain, answers, write, tmp_path):
    preset, critic = tmp_path / "preset", tmp_path / "critic"
    run(*pretrain(preset, "--config", "reformer-enwik8", "--steps", 1))
    config = tasks.Task.from_preset(preset).backbone.config
    assert config["axial_dims"] == [2, 6] and config["intermediate_dim"] == 32
    (row,) = answers(run("predict", preset, "a film"))
    assert row["answer"]["num_prompt_tokens"] == len("a film") + 1
    rows = write("rows.csv", "text,label\na film,good\na song,bad\n")
    options = ["--task", "text-classifier", "--epochs", 1, "--batch-size", 2]
    run("finetune", preset, rows, "--output", critic, *options)
    (row,) = answers(run("predict", critic, "a film"))
    assert row["answer"]["labels"] in ("good", "bad")


@pytest.fixture(scope="module")
def of_t5(run, tmp_path_factory):
    """A vocabulary with T5's sentinels."""
    folder = tmp_path_factory.mktemp("t5")
    texts = folder / "texts.txt"
    texts.write_text(CORPUS * 3, encoding="utf-8")
    options = ["--kind", "unigram", "--size", 22, "--special-tokens", "t5"]
    run("vocab", texts, *options, "--output", folder / "vocabulary")
    return folder / "vocabulary"


T5 = ["--num-layers", 1, "--hidden-dim", 16, "--num-heads", 2, "--sequence-length", 16]


@pytest.mark.slow
def test_t5_by_its_recipe_scaled_down(run, fail, of_t5, tiny, corpus, tmp_path):
    tokenizer = Tokenizer.from_preset(of_t5)
    assert tokenizer.vocabulary[-1] == "<extra_id_0>"
    assert tokenizer.vocabulary[-100] == "<extra_id_99>"
    preset, again = tmp_path / "preset", tmp_path / "again"
    line = ["pretrain", corpus, "--config", "t5-base", *T5, "--batch-size", 2, "--steps", 2]
    said = run(*line, "--vocabulary", of_t5, "--output", preset)
    assert "T5Backbone" in said and "objective  span-corruption" in said
    assert "0.01 at its peak" in said and "window     16 tokens" in said
    written = stored(preset)
    assert written["optimizer"] == "adafactor" and written["mean-span"] == 3
    assert not {"warmup", "weight-decay", "beta-2"} & set(written)
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # of what is new or left over
        before = tasks.Seq2SeqLM.from_preset(preset)
    assert before.backbone.config["head_dim"] == 64
    # It goes on, with what it was pretrained with.
    run("pretrain", corpus, "--from", preset, "--output", again, "--batch-size", 2, "--steps", 1)
    assert stored(again)["objective"] == ["span-corruption"]
    after = tasks.Seq2SeqLM.from_preset(again)
    rows = [np.asarray(task.backbone.token_embedding.embeddings) for task in (before, after)]
    assert 0 < np.abs(rows[1] - rows[0]).max() < 0.1
    wrong = "has no special token <extra_id_0>, which --size t5_base_multi needs: make one"
    assert wrong in fail(*line, "--vocabulary", tiny, "--output", tmp_path / "no")
    options = ["--vocabulary", of_t5, "--size", "t5_small_multi", "--output", tmp_path / "no"]
    masked = fail("pretrain", corpus, *options, "--objective", "masked-lm")
    assert "writes a text for a text: --objective masked-lm is not for it" in masked
    kind = ["vocab", corpus, "--special-tokens", "t5", "--output", tmp_path / "no"]
    assert "not for --kind wordpiece" in fail(*kind)


@pytest.mark.thorough  # Adafactor's state is stored as that of other optimizers
def test_t5_interrupted_and_not(run, fail, of_t5, interrupt, corpus, tmp_path):
    def line(name):
        line = ["pretrain", corpus, "--objective", "span-corruption", "--mean-span", 2]
        line += ["--vocabulary", of_t5, "--size", "t5_small_multi", *T5, "--batch-size", 2]
        return [*line, "--steps", 4, "--save-every", 0, "--output", tmp_path / name]

    run(*line("whole"), "--optimizer", "adafactor")
    interrupt(2)
    assert "The same command goes on" in fail(*line("parts"), "--optimizer", "adafactor")
    interrupt(None)
    assert "Going on with the run" in run(*line("parts"), "--optimizer", "adafactor")
    assert weights(tmp_path / "parts") == weights(tmp_path / "whole")


def test_a_student_by_the_recipe_of_distilbert(
    run, fail, write, make_backbone, tokenizer, tmp_path
):
    teacher, preset = tmp_path / "teacher", tmp_path / "student"
    master = tasks.MaskedLM(make_backbone(), tokenizer=tokenizer)
    master.save_to_preset(teacher)
    texts = write("texts.txt", "the film was good . a bad song is loud\n" * 4)
    line = ["pretrain", texts, "--config", "distil-bert-base", "--teacher", teacher]
    line += ["--output", preset, "--steps", 2, "--batch-size", 2, "--sequence-length", 16]
    assert "The student is 768 wide, and --teacher 16" in fail(*line)
    said = run(*line, "--hidden-dim", 16, "--num-layers", 1)
    assert "DistilBertBackbone" in said and "objective  distillation" in said
    assert "teacher_losses" in said and "square_losses" not in said
    assert stored(preset)["steps"] == 2 and "epochs" not in stored(preset)
    student = load_file(preset / "model.safetensors")
    change = np.abs(student["token_head/bias"] - master.head.bias.numpy())
    assert 0 < change.max() < 0.01  # it began where the teacher is


@pytest.mark.thorough
def test_going_on_then_the_rest_of_the_way(run, going_on, write, answers, tmp_path):
    preset, critic = tmp_path / "preset", tmp_path / "critic"
    words = write("words.txt", "loudsong\n")
    run(*going_on(preset, "--add-words", words, "--document", "block"))
    csv = "text,label\n" + "a good film,good\na bad loudsong,bad\n" * 6
    train = write("train.csv", csv)
    run("finetune", preset, train, "--output", critic, "--batch-size", 4)
    [measured] = answers(run("evaluate", critic, train, "--json"))
    assert measured["texts"] == 12
    texts = ["a bad loudsong", "a bad song"]
    from_task = answers(run("predict", critic, *texts))
    for name in ("exported", "critic.tflite"):
        run("export", critic, tmp_path / name)
        exported = answers(run("predict", tmp_path / name, *texts))
        for one, other in zip(from_task, exported, strict=True):
            assert one["answer"]["scores"] == pytest.approx(other["answer"]["scores"], abs=1e-5)
        # The word is one token in the graph, too: another score than that of its pieces.
        assert exported[0]["answer"]["scores"] != exported[1]["answer"]["scores"]


@pytest.mark.slow
def test_entities_are_learnt_from_files(run, fail, tiny, tmp_path):
    """--objective entity-alignment goes on with a preset that has entities, and needs one."""
    words = ["the", "film", "was", "good", "a", "great", "story", "."]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    tokenizer = EntityTokenizer(vocabulary, True, mentions={"film": "Q1", "story": "Q2"})
    backbone = models.ErnieBackbone(len(vocabulary), 2, 2, 16, 24, 8, max_sequence_length=16)
    task = tasks.MaskedLM(backbone.with_entities(np.eye(2, 8)), tokenizer=tokenizer)
    task.save_to_preset(tmp_path / "ernie")
    text = tmp_path / "corpus.txt"
    text.write_text("the film was good .\na great story .\n\n" * 20)
    objectives = [f for name in ("masked-lm", "entity-alignment") for f in ("--objective", name)]
    common = (text, "--document", "block", *objectives, "--epochs", 1)
    said = run("pretrain", "--from", tmp_path / "ernie", *common, "--output", tmp_path / "new")
    assert "entity_logits" in said
    again = tasks.MaskedLM.from_preset(tmp_path / "new")
    assert again.tokenizer.mentions == {"film": "Q1", "story": "Q2"}
    np.testing.assert_array_equal(again.backbone.entity_table.embeddings, np.eye(2, 8))
    message = fail("pretrain", "--from", tiny, *common, "--output", tmp_path / "x")
    assert "BertBackbone has no table of entities" in message
