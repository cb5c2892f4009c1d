"""Transformer-XL: what its memory gains and costs, beside networks without one.

    python benchmarks/segment_memory.py quality shared/data/wikitext-2 [--steps 4000]
    python benchmarks/segment_memory.py evaluation
    python benchmarks/segment_memory.py softmax
    python benchmarks/segment_memory.py decoding
    python benchmarks/segment_memory.py torch [--environment torch_transformers=FOLDER]

Each form has a process of its own; how it is timed: see `two_sides.py`.
"""

import json
import sys
import time
from pathlib import Path

import click
from environments import python_of
from two_sides import TORCH_TIMES, compare, least, random_ids, run, step_times

PICTURES = Path(__file__).parent / "pictures"
SIZE = {"num_layers": 6, "num_heads": 4, "hidden_dim": 256, "intermediate_dim": 1024}
VOCABULARY, SEGMENT, BATCH = 10_000, 64, 8
WINDOW = 32  # bytes that the networks of `quality` read at a time
LENGTHS = (100, 200, 400, 800, 1600)

# The same network in PyTorch, as transformers has it, with one line for PyTorch 2 mended.
TORCH = """
import importlib.util, json, sys, types
import torch
torch.set_num_threads(1)
size, vocabulary, segment, batch = json.loads(sys.argv[1])
name = "transformers.models.deprecated.transfo_xl"
spec = importlib.util.find_spec(name + ".modeling_transfo_xl")
source = open(spec.origin).read()
start = source.index(".type_as(\\n")
end = source.index(")", start)
source = source[:start] + ".to(word_emb.dtype" + source[end:]
module = types.ModuleType(name + ".mended")
module.__package__, module.__file__ = name, spec.origin
sys.modules[module.__name__] = module
exec(compile(source, spec.origin, "exec"), module.__dict__)
from transformers.models.deprecated.transfo_xl.configuration_transfo_xl import TransfoXLConfig
config = TransfoXLConfig(
    vocab_size=vocabulary, cutoffs=[2000, 6000], div_val=2, n_layer=size["num_layers"],
    n_head=size["num_heads"], d_model=size["hidden_dim"], d_embed=size["hidden_dim"],
    d_head=size["hidden_dim"] // size["num_heads"], d_inner=size["intermediate_dim"],
    mem_len=segment, clamp_len=-1, same_length=True, untie_r=True, dropout=0.0,
)
model = module.TransfoXLLMHeadModel(config)
optimizer = torch.optim.AdamW(model.parameters(), 1e-4)
ids = torch.randint(0, vocabulary, (batch, segment + 1))
mems = model.transformer.init_mems(batch)
def forward():
    with torch.no_grad():
        model.transformer(ids[:, :-1], mems=mems)
def training():
    optimizer.zero_grad()
    model(ids, mems=mems, labels=ids).loss.backward()
    optimizer.step()
"""


def network(memory_length, **arguments):
    from keras_lm.models import TransformerXLBackbone

    clusters = {"cutoffs": [2000, 6000], "div_val": 2}
    given = SIZE | clusters | {"same_length": True, "dropout": 0.0} | arguments
    return TransformerXLBackbone(VOCABULARY, memory_length=memory_length, **given)


# === Measurements, each in a process of its own ===


def measure_quality(memory_length, folder, steps):
    """Train on the bytes of one file of WikiText-2 for some steps, and evaluate on another.

    The files are valid.txt, to learn from, and test.txt. Windows are 32 bytes, 16 at a time.
    """
    import keras
    import numpy as np
    import tensorflow as tf

    from keras_lm import models, tasks
    from keras_lm.objectives import BitsPerToken
    from keras_lm.tokenizers import TransformerXLTokenizer
    from keras_lm.training import AdamW, evaluate_streams, fit_streams

    keras.utils.set_random_seed(1)
    tokenizer = TransformerXLTokenizer([str(i) for i in range(256)], None, rules="bytes")
    windows = []
    for name in ("valid", "test"):
        ids = tokenizer((Path(folder) / f"{name}.txt").read_text()).numpy()
        cut = np.lib.stride_tricks.sliding_window_view(ids, WINDOW + 1)[::WINDOW]
        windows.append(tf.data.Dataset.from_tensor_slices(cut))
    backbone = models.TransformerXLBackbone(
        256, 3, 4, 128, 512, memory_length=memory_length, dropout=0.0
    )
    task = tasks.CausalLM(backbone, tokenizer=tokenizer)
    warmup = steps // 10
    rate = keras.optimizers.schedules.CosineDecay(
        0.0, steps - warmup, warmup_target=1e-3, warmup_steps=warmup
    )
    task.compile(optimizer=AdamW(rate), metrics=[BitsPerToken()])
    start = time.process_time()
    fit_streams(task, windows[0], batch_size=16, steps=steps, verbose=0)
    passed = time.process_time() - start
    results = evaluate_streams(task, windows[1].take(16 * 500), batch_size=16, verbose=0)
    return {"bits": results["bits_per_token"], "steps": steps, "seconds": passed}


def measure_evaluation(length):
    """Return seconds a token with a memory of `length`, and by a window that slides over it."""
    import tensorflow as tf

    with_memory, without = network(length), network(0, same_length=False)
    segment, window = random_ids(1, 128), random_ids(1, length)
    memory = tf.zeros((1, SIZE["num_layers"], length, SIZE["hidden_dim"]))

    @tf.function(autograph=False)
    def streaming(ids, memory):
        outputs = with_memory({"token_ids": ids, "memory": memory})
        return outputs["sequence_output"], outputs["memory"]

    @tf.function(autograph=False)
    def sliding(ids):
        return without({"token_ids": ids})["sequence_output"][:, -1]

    return [
        least(lambda: streaming(segment, memory)[0].numpy()) / 128,
        least(lambda: sliding(window).numpy()),
    ]


def measure_softmax(form):
    """Return seconds and peak bytes of losses and gradients of 512 tokens among 267,735 words."""
    import resource

    import numpy as np
    import tensorflow as tf

    from keras_lm.models import TransformerXLBackbone

    clusters = {"cutoffs": [20000, 40000, 200000], "div_val": 4}
    backbone = TransformerXLBackbone(267_735, 1, 4, 256, 256, memory_length=4, **clusters)
    head, states = backbone.make_head("causal_lm"), tf.random.normal((8, 64, 256))
    head({"sequence_output": states[:1, :1]})
    # As in a text, rare words are rare.
    ranks = np.exp(np.random.default_rng(0).uniform(0, np.log(267_735), (8, 64)))
    labels = tf.constant(ranks.astype("int32") - 1)

    @tf.function(autograph=False)
    def step(states):
        with tf.GradientTape() as tape:
            tape.watch(states)
            if form == "losses alone":
                losses = head({"sequence_output": states}, {"labels": labels})
            else:
                losses = -tf.gather(head({"sequence_output": states}), labels, batch_dims=2)
            loss = tf.reduce_mean(losses)
        return loss, tape.gradient(loss, [states, *head.trainable_weights])[0]

    def peak():
        return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024

    before = peak()
    return {"seconds": least(lambda: step(states)[1].numpy()), "bytes": peak() - before}


def measure_decoding(model, context):
    """Return new tokens a second after a context, of one prompt: many against 16 of them."""
    import numpy as np

    from keras_lm import tasks
    from keras_lm.models import GPT2Backbone

    number = 272  # reading the context takes longer than writing a few
    if model == "GPT-2":
        backbone = GPT2Backbone(VOCABULARY, max_sequence_length=context + number, **SIZE)
    else:
        backbone = network(context)
    task = tasks.CausalLM(backbone)
    ids = {"token_ids": np.asarray(random_ids(1, context))}
    few, many = (
        least(lambda n=n: task.generate(ids, max_new_tokens=n, verbose=0)) for n in (16, number)
    )
    return (number - 16) / (many - few)


def measure_step():
    """Return seconds of a forward pass and a training step, with a memory as long as a segment."""
    import tensorflow as tf

    backbone = network(SEGMENT)
    head, ids = backbone.make_head("causal_lm"), random_ids(BATCH, SEGMENT)
    head(backbone({"token_ids": ids[:1, :1]}))
    memory = tf.zeros((BATCH, SIZE["num_layers"], SEGMENT, SIZE["hidden_dim"]))

    def forward(ids):
        return backbone({"token_ids": ids, "memory": memory})["sequence_output"]

    def loss_of(ids):
        outputs = backbone({"token_ids": ids, "memory": memory}, training=True)
        return tf.reduce_mean(head(outputs, {"labels": ids}))

    return step_times(forward, loss_of, ids, backbone, head)


MEASUREMENTS = {
    function.__name__: function
    for function in (
        measure_quality, measure_evaluation, measure_softmax, measure_decoding, measure_step
    )
}  # fmt: skip


def measured(name, *arguments):
    """Return what a measurement returns in a process of its own."""
    return run(program(name, *arguments))


def program(name, *arguments):
    """Return the command that prints what a measurement returns."""
    return [sys.executable, __file__, "measure", name, json.dumps(arguments)]


# === Commands ===


@click.group(help=__doc__.splitlines()[0])
def main():
    """Print a table of one measurement."""


@main.command(hidden=True)
@click.argument("name")
@click.argument("arguments", type=json.loads)
def measure(name, arguments):
    """Print the result of a measurement in this process."""
    click.echo(json.dumps(MEASUREMENTS[name](*arguments)))


@main.command()
@click.argument("folder")
@click.option("--steps", type=int, default=4000, show_default=True)
def quality(folder, steps):
    """Perplexity of bytes with a memory and without, after equal steps and after equal seconds."""
    click.echo("| memory | steps | seconds | bits a byte | perplexity |")
    click.echo("| --- | ---: | ---: | ---: | ---: |")
    passed = []
    for memory_length in (WINDOW, 0, 0):
        if len(passed) == 2:  # as long as with the memory
            steps = round(steps * passed[0] / passed[1])
        results = measured("measure_quality", memory_length, folder, steps)
        passed.append(results["seconds"])
        click.echo(
            f"| {memory_length or 'none'} | {results['steps']:,} | {results['seconds']:.0f} | "
            f"{results['bits']:.3f} | {2 ** results['bits']:.2f} |"
        )


@main.command()
def evaluation():
    """Time a token with a memory beside a sliding window, over lengths; draws a picture."""
    from matplotlib.figure import Figure

    click.echo("| context | memory, ms a token | window, ms | × |\n| ---: | ---: | ---: | ---: |")
    results = {length: measured("measure_evaluation", length) for length in LENGTHS}
    for length, (streaming, sliding) in results.items():
        ratio = sliding / streaming
        click.echo(f"| {length:,} | {1e3 * streaming:.2f} | {1e3 * sliding:.0f} | {ratio:,.0f} |")
    figure = Figure(figsize=(6, 3.5), layout="constrained")
    axes = figure.add_subplot(
        title="Evaluation of a token", xlabel="tokens of context", ylabel="ms",
        xscale="log", yscale="log",
    )  # fmt: skip
    for place, label in enumerate(("Transformer-XL, with a memory", "a window that slides")):
        axes.plot([*results], [1e3 * each[place] for each in results.values()], "o-", label=label)
    axes.set_xticks([*results], [f"{length:,}" for length in results])
    axes.minorticks_off()
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(PICTURES / "segment_memory.svg", metadata={"Date": None})


@main.command()
def softmax():
    """Time and memory of losses among 267,735 words."""
    click.echo("| form | seconds | MB |\n| --- | ---: | ---: |")
    for form in ("all log-probabilities", "losses alone"):
        results = measured("measure_softmax", form)
        click.echo(f"| {form} | {results['seconds']:.2f} | {results['bytes'] / 1e6:,.0f} |")


@main.command()
def decoding():
    """New tokens a second with a memory, beside a GPT-2 of the same size with its cache."""
    click.echo("| context | Transformer-XL | GPT-2 |\n| ---: | ---: | ---: |")
    for context in (512, 2000):
        rates = [measured("measure_decoding", name, context) for name in ("XL", "GPT-2")]
        click.echo(f"| {context:,} | " + " | ".join(f"{rate:.0f}" for rate in rates) + " |")


@main.command()
@click.option("--environment", "environments", multiple=True, help="PEER=FOLDER.")
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True)
def torch(environments, rounds):
    """A forward pass and a training step beside transformers' code for PyTorch."""
    python = python_of("torch_transformers", dict(each.split("=") for each in environments))
    arguments = json.dumps([SIZE, VOCABULARY, SEGMENT, BATCH])
    compare(program("measure_step"), [python, "-c", TORCH + TORCH_TIMES, arguments], rounds)


if __name__ == "__main__":
    main()
