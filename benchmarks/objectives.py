"""Pretraining objectives side by side: one small encoder, one corpus, equal compute for each.

    pip install 'keras-lm[demo,vocab]'
    python benchmarks/objectives.py FOLDER --teraflops 20 --trec TREC

BERT's network, 2 layers and 128 wide, is pretrained on the reviews of IMDB by one objective after
the other, each for as many steps as its FLOPs allow, heads and generator included. It is measured
on held-out reviews, and fine-tuned on film reviews of Rotten Tomatoes and the questions of TREC,
several times on other examples. FOLDER keeps the models, the tables (`table.md`), a picture
(`curves.svg`) and a line for each result (`results.jsonl`), from which an interrupted run goes on.
"""

import itertools
import json
import math
import random
import statistics
import time
from importlib.util import find_spec
from pathlib import Path

import click
import keras
import numpy as np
from keras import ops
from pretraining import HELD_OUT, read_reviews
from reviews import CLASS_NAMES, load_reviews

from keras_lm import data, models, objectives, presets, tasks, training
from keras_lm.models.sizes import estimate
from keras_lm.tokenizers import Tokenizer, train_vocabulary

POINTS = 10  # of a curve
HELD_OUT_ROWS, ENTROPY_ROWS, TEST = 256, 4096, 1000
PLAIN, CAUSAL, REPLACED = "masked LM", "left to right", "replaced tokens"
PERMUTED = "permuted"
TWO_STAGES = "masked LM, then replaced tokens"  # half of the compute each
NEXT, ORDER = "masked LM, next sentence", "masked LM, sentence order"


@keras.saving.register_keras_serializable("benchmarks")
class LeftToRightBackbone(models.GPTBackbone):
    """BERT's blocks that look to the left only, between BERT's tokens: texts end in `[SEP]`."""

    TEMPLATE = models.BertBackbone.TEMPLATE
    HEADS = models.CausalBackbone.HEADS  # without what GPT's fine-tuning adds


@keras.saving.register_keras_serializable("benchmarks")
class PermutedBackbone(models.XLNetBackbone):
    """XLNet's network for rows of `clamp_length` tokens, a sixth of which pass it once more.

    For its FLOPs, distances, which are twice as many as tokens, count as more tokens to attend to.
    """

    def attended_tokens(self):
        return 2 * self.config["clamp_length"] * len(self.blocks)

    def forward_flops(self):
        return 7 / 6 * super().forward_flops()


def permuted(max_sequence_length, dropout, **size):
    """Return XLNet's network as large as the others; there is no distance that it clamps."""
    rates = dict.fromkeys(["dropout", "attention_dropout"], dropout)
    return PermutedBackbone(**size, **rates, clamp_length=max_sequence_length)


class NextToken(objectives.CausalLanguageModel):
    """Predict the next token, but no separator: masking does not predict these either."""

    def set_tokenizer(self, tokenizer):
        self.separator = tokenizer.special_id("sep")

    def corrupt(self, inputs, training=True):
        inputs, labels = super().corrupt(inputs, training)
        return inputs, ops.where(ops.equal(labels, self.separator), objectives.IGNORED, labels)


class OrderByBert(objectives.SentenceOrder):
    """Sentence order by BERT's head for pairs, so that one head is asked for order and for next."""

    heads = objectives.NextSentence.heads


def replaced(backbone, tokenizer):
    generator = tasks.MaskedLM(backbone.make_generator(1 / 4), tokenizer=tokenizer)
    return [objectives.ReplacedByGenerator(generator)]


def masked(*others, **options):
    return lambda *_: [objectives.MaskedLanguageModel(**options), *(other() for other in others)]


# The name → what makes the network, form of rows, and what makes the objectives of backbone and
# tokenizer; the most telling first, should the run be cut short.
OBJECTIVES = {
    "none": (models.BertBackbone, None, None),
    "none, XLNet's network": (permuted, None, None),
    PLAIN: (models.BertBackbone, "full_sentences", masked()),
    CAUSAL: (LeftToRightBackbone, "full_sentences", lambda *_: [NextToken()]),
    PERMUTED: (permuted, "full_sentences", lambda *_: [objectives.PermutationLanguageModel()]),
    REPLACED: (models.ElectraBackbone, "full_sentences", replaced),
    NEXT: (models.BertBackbone, "next_sentence", masked(objectives.NextSentence)),
    ORDER: (models.BertBackbone, "segment_pairs", masked(OrderByBert)),
    TWO_STAGES: (models.ElectraBackbone, "full_sentences", replaced),
    "masked whole words": (models.BertBackbone, "full_sentences", masked(whole_words=True)),
    "masked spans, boundaries": (
        models.SpanBertBackbone,
        "full_sentences",
        lambda *_: [objectives.MaskedSpans(), objectives.SpanBoundary()],
    ),
    "masked n-grams": (
        models.BertBackbone,
        "full_sentences",
        lambda *_: [objectives.MaskedNGrams()],
    ),
}


class Results:
    """Rows in a file of JSON lines; what is there is not computed again."""

    def __init__(self, path):
        self.path = path
        self.rows = []
        if path.exists():
            self.rows = [json.loads(line) for line in path.read_text("utf-8").splitlines()]

    def find(self, **key):
        return [row for row in self.rows if key.items() <= row.items()]

    def add(self, key, compute, *arguments):
        """Add the dict that `compute` returns, unless there is a row with this key."""
        if self.find(**key):
            return
        start = time.perf_counter()
        row = key | compute(*arguments)
        self.rows.append(row | {"s": round(time.perf_counter() - start)})
        line = json.dumps(self.rows[-1])
        click.echo(line)
        with self.path.open("a", encoding="utf-8") as file:
            file.write(line + "\n")


class Corpus:
    """Training and held-out reviews as rows, with a vocabulary learned from the former."""

    def __init__(self, folder, vocabulary_size, sequence_length):
        texts = read_reviews()
        self.texts = {"held out": texts[:HELD_OUT], "train": texts[HELD_OUT:]}
        self.sequence_length = sequence_length
        if not folder.exists():
            learned = train_vocabulary(
                "wordpiece", vocabulary_size, texts=self.texts["train"], lowercase=True
            )
            presets.save(folder, backbone=None, tokenizer=learned)
        self.tokenizer = Tokenizer.from_preset(folder)

    def rows(self, part, number, form="full_sentences", template=models.BertBackbone.TEMPLATE):
        documents = data.split_sentences(self.texts[part])
        rows = data.pretraining_rows(
            documents, self.tokenizer, template, self.sequence_length, form=form
        )
        return rows.repeat().take(number)

    def held_out(self, *form):
        rows = self.rows("held out", HELD_OUT_ROWS, *form).cache()
        return data.window_batches(rows, 32)

    def entropy(self):
        """Nats of a token by itself: what knowing frequencies alone comes to."""
        rows = self.rows("train", ENTROPY_ROWS).batch(ENTROPY_ROWS).get_single_element()
        ids, counts = np.unique(rows["token_ids"], return_counts=True)
        special = [self.tokenizer.special_id(role) for role in ("pad", "cls", "sep")]
        shares = counts[~np.isin(ids, special)]
        shares = shares / shares.sum()
        return {"entropy": -float(np.sum(shares * np.log(shares)))}


def flops_of_step(backbone, parts, tokens):
    """Return the FLOPs of a training step on `tokens` tokens, with heads and generator."""
    total = 0
    for network in [backbone, *(one.backbone for part in parts for one in part.companions)]:
        cls = models.GPTBackbone if network.is_causal else type(network)
        flops = estimate(cls, **network.config)["flops_per_token"]
        total += flops.get("pretraining", flops["training"])
    return total * tokens


def pretrain(name, corpus, preset, size, budget, batch_size, rate):
    """Pretrain a network with FLOPs of `budget`, save it, and return what was measured."""
    cls, form, make = OBJECTIVES[name]
    first = None
    if name == TWO_STAGES:
        budget, first = budget / 2, preset.with_name(f"half of {PLAIN}")
        pretrain(PLAIN, corpus, first, size, budget, batch_size, rate)
    keras.utils.set_random_seed(0)
    backbone = cls(**size)
    if make is None:
        task = tasks.FeatureExtractor(backbone, tokenizer=corpus.tokenizer)
        widen(task)
        task.save_to_preset(preset)
        return {"steps": 0}
    parts, form = make(backbone, corpus.tokenizer), (form, backbone.TEMPLATE)
    task = tasks.Pretrainer(backbone, parts, tokenizer=corpus.tokenizer)
    widen(task)
    if first:
        begin_with(backbone, models.BertBackbone.from_preset(first))
    task.compile(optimizer=training.AdamW(learning_rate=rate))
    flops = flops_of_step(backbone, parts, batch_size * corpus.sequence_length)
    steps = max(int(budget / flops) // POINTS, 1) * POINTS
    curve = training.EvaluateEvery(steps // POINTS, corpus.held_out(*form))
    rows = corpus.rows("train", steps * batch_size, *form)
    training.fit_windows(task, rows, batch_size, callbacks=[curve], verbose=0)
    task.save_to_preset(preset)
    results = {"steps": steps, "teraflops": round(steps * flops / 1e12, 2), "curve": curve.history}
    if "token" in task.heads and name != PERMUTED:  # which never saw a mask
        results["masked"] = measure(task, objectives.MaskedLanguageModel(), corpus.held_out())
    if "next_sentence" in task.heads:
        results["next"], results["order"] = (
            measure(task, objective, corpus.held_out(rows))
            for objective, rows in (
                (objectives.NextSentence(), "next_sentence"),
                (OrderByBert(), "segment_pairs"),
            )
        )
    if "replaced" in task.heads:
        results["auc"] = area_under_curve(task, corpus.held_out())
    return results


def widen(task):
    """Let a narrow network's random weights be as large, beside its width, as BERT-base's are."""
    scale = math.sqrt(768 / task.backbone.config["hidden_dim"])
    for variable in task.trainable_weights:
        if variable.path.endswith(("kernel", "embeddings")):
            variable.assign(scale * variable)


def begin_with(backbone, other):
    """Assign the weights of another network of the same shape."""
    weights = {variable.path: variable for variable in other.weights}
    for variable in backbone.weights:
        variable.assign(weights[variable.path])


def measure(task, objective, batches):
    """Evaluate a network and its heads by another objective."""
    other = tasks.Pretrainer(task.backbone, [objective], task.heads, tokenizer=task.tokenizer)
    other.compile()
    return other.evaluate(batches, verbose=0, return_dict=True)


def area_under_curve(task, batches):
    """How often a replaced token has a higher logit than one that is not."""
    from sklearn.metrics import roc_auc_score

    results = []
    for batch in batches:
        computed = task.compute_batch(task.prepare_batch(batch, False), False)
        compared = computed.labels, computed.outputs
        labels, logits = (np.ravel(part["replaced_logits"]) for part in compared)
        results.append([labels[labels >= 0], logits[labels >= 0]])
    return float(roc_auc_score(*map(np.concatenate, zip(*results, strict=True))))


# === Fine-tuning ===


def film_reviews(_):
    """Sentences on films, by whether they praise."""
    split = load_reviews(held_out=0)
    labels = [CLASS_NAMES[label] for label in split.train_labels]
    return list(zip(split.train_texts, labels, strict=True))


def questions(folder):
    """TREC's questions, by what is asked for; as in harvardnlp/sent-conv-torch."""
    lines = (folder / "TREC.train.all").read_text("latin-1").splitlines()
    return [(text, label) for label, text in (line.split(" ", 1) for line in lines)]


SETS = {"TREC": questions, "film reviews": film_reviews}


def fine_tune(preset, rows, number, epochs, seeds):
    """Return accuracies on the same held-out rows, after training on other rows for each seed."""
    rows = random.Random(0).sample(rows, len(rows))
    (test_texts, test_labels), rest = zip(*rows[:TEST], strict=True), rows[TEST:]
    names = sorted({label for _, label in rows})
    keras.utils.set_random_seed(0)
    task = tasks.TextClassifier.from_preset(preset, class_names=names, dropout=0.1)
    # All seeds begin with these weights, in graphs that are traced once.
    task.optimizer.build(task.trainable_weights)
    variables = [*task.variables, *task.optimizer.variables]
    beginning = [ops.convert_to_numpy(variable) for variable in variables]
    results = []
    for seed in range(seeds):
        for variable, value in zip(variables, beginning, strict=True):
            variable.assign(value)
        texts, labels = zip(*random.Random(seed).sample(rest, number), strict=True)
        task.fit(list(texts), list(labels), batch_size=16, epochs=epochs, verbose=0)
        answers = task.classify(list(test_texts))["labels"]
        results.append(float(np.mean(np.array(answers) == np.array(test_labels))))
    return {"accuracies": results}


# === The report ===


def own_loss(row):
    """The held-out loss on masked or next tokens, None without."""
    last = row["curve"][-1] if row.get("curve") else {}
    return last.get("val_token_logits_loss", last.get("val_loss"))


def write_report(results, folder):
    blocks = [table(results) for table in (main_table, replaced_table, pairs_table, curves_table)]
    (folder / "table.md").write_text("\n\n".join(filter(None, blocks)) + "\n", encoding="utf-8")
    if find_spec("matplotlib") and results.find(step="pretraining", objective=PLAIN):
        draw(results, folder / "curves.svg")


def main_table(results):
    entropy = results.find(step="corpus")[0]["entropy"]
    lines = []
    for row in results.find(step="pretraining"):
        name, plain = row["objective"], row.get("masked", {}).get("loss")
        own = None if "auc" in row else own_loss(row)
        cells = [name, f"{row['steps']:,}", nats(own), nats(plain)]
        for each in SETS:
            tuned = results.find(objective=name, set=each)
            cells.append(mean_and_deviation(tuned[0]["accuracies"]) if tuned else "")
        lines.append(cells)
    title = f"Frequencies of tokens alone come to {entropy:.2f} nats.\n\n"
    return title + make_table(["objective", "steps", "own loss", "masked LM's", *SETS], lines)


def replaced_table(results):
    lines = []
    for row in (row for row in results.find(step="pretraining") if "auc" in row):
        last = row["curve"][-1]
        accuracy, share = (last[f"val_replaced_logits_{name}"] for name in ("accuracy", "share"))
        percent = [f"{100 * part:.1f}" for part in (accuracy, 1 - share)]
        loss = nats(last["val_generator_logits_loss"])
        lines.append([row["objective"], f"{row['auc']:.3f}", *percent, loss])
    header = ["discriminator", "area under the curve", "accuracy, %", "saying none is, %"]
    return make_table([*header, "generator's loss"], lines)


def pairs_table(results):
    lines = []
    for name in (NEXT, ORDER):
        for row in results.find(objective=name, step="pretraining"):
            asked = [f"{100 * row[kind]['accuracy']:.1f}" for kind in ("next", "order")]
            lines.append([name, *asked])
    return make_table(["trained by", "next sentence, %", "order, %"], lines)


def curves_table(results):
    result = {}
    for name in (PLAIN, CAUSAL):
        for row in results.find(objective=name, step="pretraining"):
            result[name] = row["curve"]
    lines = []
    for number, points in enumerate(zip(*result.values(), strict=True), 1):
        cells = [f"{100 * number // POINTS} %"]
        for point in points:
            accuracy = 100 * point["val_accuracy"]
            cells += [f"{point['step']:,}", f"{point['val_loss']:.2f}", f"{accuracy:.1f}"]
        lines.append(cells)
    header = [f"{name}: {what}" for name in result for what in ("step", "loss", "accuracy, %")]
    return make_table(["compute", *header], lines)


def mean_and_deviation(shares):
    percent = [100 * share for share in shares]
    deviation = f" ± {statistics.stdev(percent):.1f}" if len(percent) > 1 else ""
    return f"{statistics.mean(percent):.1f}{deviation}"


def nats(value):
    return "" if value is None else f"{value:.2f}"


def make_table(header, rows):
    """Return a table in Markdown, or nothing without rows."""
    if not rows:
        return ""
    lines = [header, ["---"] + ["---:"] * (len(header) - 1), *rows]
    return "\n".join("| " + " | ".join(cells) + " |" for cells in lines)


def draw(results, path):
    """Draw held-out accuracy over steps, of masked and of next tokens."""
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.add_subplot(xlabel="steps", ylabel="held-out accuracy, %")
    for name in (PLAIN, CAUSAL):
        for row in results.find(objective=name, step="pretraining"):
            points = [(point["step"], 100 * point["val_accuracy"]) for point in row["curve"]]
            axes.plot(*zip(*points, strict=True), marker="o", label=name)
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path, metadata={"Date": None})


@click.command(help=__doc__.splitlines()[0])
@click.argument("folder", type=click.Path(file_okay=False, path_type=Path))
@click.option("--trec", type=click.Path(path_type=Path), help="Folder with TREC.train.all.")
@click.option("--objective", "names", multiple=True, default=list(OBJECTIVES),
              type=click.Choice(list(OBJECTIVES)), help="[default: all]")  # fmt: skip
@click.option("--teraflops", type=float, default=20.0, show_default=True,
              help="Compute of each pretraining.")  # fmt: skip
@click.option("--num-layers", default=2, show_default=True)
@click.option("--hidden-dim", default=128, show_default=True)
@click.option("--vocabulary-size", default=2048, show_default=True)
@click.option("--sequence-length", default=64, show_default=True)
@click.option("--batch-size", default=16, show_default=True)
@click.option("--learning-rate", default=1e-3, show_default=True)
@click.option("--train", default=1000, show_default=True, help="Examples for fine-tuning.")
@click.option("--epochs", default=10, show_default=True, help="Of fine-tuning.")
@click.option("--seeds", default=3, show_default=True, help="Of fine-tuning.")
def main(folder, trec, names, **settings):
    """Pretrain, measure and fine-tune by one objective after the other, and write the tables."""
    folder.mkdir(parents=True, exist_ok=True)
    results = Results(folder / "results.jsonl")
    results.add({"step": "settings"}, lambda: settings)
    if not results.find(**settings):
        raise click.UsageError(f"{results.path} is of other settings: use another FOLDER.")
    run(folder, trec, names, results, **settings)


def run(folder, trec, names, results, teraflops, num_layers, hidden_dim, vocabulary_size,
        sequence_length, batch_size, learning_rate, train, epochs, seeds):  # fmt: skip
    corpus = Corpus(folder / "vocabulary", vocabulary_size, sequence_length)
    results.add({"step": "corpus"}, corpus.entropy)
    size = {
        "vocabulary_size": corpus.tokenizer.vocabulary_size,
        "num_layers": num_layers,
        "num_heads": hidden_dim // 64,
        "hidden_dim": hidden_dim,
        "intermediate_dim": 4 * hidden_dim,
        "dropout": 0.0,  # hardly a text is read twice
        "max_sequence_length": sequence_length,
    }
    sets = {name: read(trec) for name, read in SETS.items() if trec or read is not questions}
    budget = teraflops * 1e12
    for (each, rows), name in itertools.product(sets.items(), names):
        preset = folder / name
        key = {"step": "pretraining", "objective": name}
        results.add(key, pretrain, name, corpus, preset, size, budget, batch_size, learning_rate)
        key = {"step": "fine-tuning", "objective": name, "set": each}
        results.add(key, fine_tune, preset, rows, train, epochs, seeds)
        write_report(results, folder)


if __name__ == "__main__":
    main()
