"""What is measured, of whom, and what we want to reach."""

from dataclasses import dataclass, field

OURS = "keras_lm"


@dataclass(frozen=True)
class Contender:
    """Somebody who takes part in a row.

    Args:
        name: str, in the table.
        peer: str. Whose environment and program: `peers/<peer>_peer.py`.
        variant: str that the program understands, such as `"xla"`.
    """

    name: str
    peer: str
    variant: str = ""


@dataclass(frozen=True)
class Measure:
    """A column: what a list of numbers comes to.

    Args:
        title: str.
        key: str. Which of the numbers that a round gives.
        work: float or None. With it the column is a rate: work ÷ seconds.
        scale: float. Otherwise numbers are multiplied by this.
        quantile: float. 0.5 is the median.
        format: str, a format specification.
    """

    title: str
    key: str = "seconds"
    work: float | None = None
    scale: float = 1.0
    quantile: float = 0.5
    format: str = ",.2f"


@dataclass(frozen=True)
class Target:
    """What we want: as fast as a multiple of the fastest of some, or at most a share of its time.

    Args:
        peers: tuple of names of contenders.
        speed: float or None. At least this multiple of the peer's speed.
        time: float or None. At most this share of the peer's time.
        contender: str. Who should reach it.
    """

    peers: tuple
    speed: float | None = None
    time: float | None = None
    contender: str = OURS


@dataclass(frozen=True)
class Row:
    """One table: contenders who do the same in turn.

    Args:
        kind: str. What the runner's command line calls it, and the programs' function.
        title: str.
        contenders: tuple of `Contender`, keras_lm first.
        measures: tuple of `Measure`; ratios are those of the first.
        settings: dict of arguments for the programs.
        needs: tuple of keys of the materials that the programs get, too.
        calls: int. Timed calls a round.
        targets: tuple of `Target`.
    """

    kind: str
    title: str
    contenders: tuple
    measures: tuple
    settings: dict = field(default_factory=dict)
    needs: tuple = ()
    calls: int = 1
    targets: tuple = ()


KERAS_LM = Contender(OURS, "keras_lm")
BFLOAT16 = Contender("keras_lm, bfloat16", "keras_lm", "bfloat16")
FROZEN = Contender("keras_lm, frozen export", "keras_lm", "frozen")
IN_INT8 = Contender("keras_lm, frozen in int8", "keras_lm", "frozen int8")
KERAS_HUB = Contender("KerasHub", "keras_hub")
KERAS_HUB_XLA = Contender("KerasHub, XLA", "keras_hub", "xla")
GARDEN = Contender("Model Garden", "model_garden")
GARDEN_XLA = Contender("Model Garden, XLA", "model_garden", "xla")
TORCH = Contender("PyTorch", "torch_transformers")
TORCH_COMPILED = Contender("PyTorch, compiled", "torch_transformers", "compiled")


def names(*contenders):
    """Return the names of contenders, as a `Target` takes them."""
    return tuple(contender.name for contender in contenders)


BATCH = {"batch": 8, "length": 128}
TOKENS = (Measure("tokens/s", work=1024, format=",.0f"),)  # whatever the length
STEP = (Measure("s a step"),)
FORWARD = (KERAS_HUB, KERAS_HUB_XLA, GARDEN, GARDEN_XLA, TORCH, TORCH_COMPILED)
LONG = TRAINING = (KERAS_HUB, KERAS_HUB_XLA, TORCH, TORCH_COMPILED)
GENERATION = (
    KERAS_LM,
    Contender("keras_lm, SavedModel", "keras_lm", "exported"),
    BFLOAT16,
    KERAS_HUB,
    KERAS_HUB_XLA,
    TORCH,
    Contender("PyTorch, bfloat16", "torch_transformers", "bfloat16"),
)
ELMO = (
    KERAS_LM,
    Contender("keras_lm, words cached", "keras_lm", "cached"),
    Contender("AllenNLP", "allennlp"),
)
LATENCY = (KERAS_LM, Contender("tokenizers + PyTorch", "torch_transformers"))


def forward(dtype, peers, targets, batch=8, length=128):
    """The encoder of BERT-base, in one number format and at one size."""
    title = f"Forward, BERT-base, {batch} × {length} tokens, {dtype}"
    settings = {"batch": batch, "length": length, "dtype": dtype}
    contenders = (KERAS_LM, FROZEN, *peers)
    return Row("forward", title, contenders, TOKENS, settings, calls=3, targets=targets)


def training(dtype, batch=8, length=128):
    """An optimisation step of BERT-base, in one number format and at one size."""
    title = f"Training step with AdamW, BERT-base, {batch} × {length} tokens, {dtype}"
    settings = {"batch": batch, "length": length, "dtype": dtype}
    targets = (Target(names(*TRAINING), speed=1.1),)
    return Row("training", title, (KERAS_LM, *TRAINING), STEP, settings, targets=targets)


def epochs(model, title, rank=None):
    """An epoch of fine-tuning from strings on one thread, of all weights or by LoRA."""
    kind = f"LoRA of rank {rank}" if rank else "all weights"
    return Row(
        "epochs",
        f"Epoch from 1,000 strings of about 50 tokens, {title}, {kind}, batches of 16, one thread",
        (
            KERAS_LM,
            Contender("Trainer", "torch_transformers", "random"),
            Contender("Trainer, by length", "torch_transformers", "group_by_length"),
        ),
        (Measure("processor s"), Measure("peak memory, GB", key="memory", scale=1e-9)),
        {"model": model, "rank": rank, "batch": 16},
        needs=("news", "minilm"),
        targets=(Target(("Trainer, by length",), speed=1.3 if rank else 1.2),),
    )


def pretraining(model, title, peers):
    """A step of pretraining, masks included, in float32."""
    return Row(
        "pretraining",
        f"Pretraining step with AdamW, {title}, 8 × 128 tokens, 20 predicted, float32",
        (KERAS_LM, *peers),
        STEP,
        BATCH | {"dtype": "float32", "model": model},
        targets=(Target(names(*peers), time=1.0),),
    )


def latency(model, title, batch, calls):
    """From strings to labels, at one batch size."""
    return Row(
        "latency",
        f"Strings to labels, {title}, batch of {batch}",
        (KERAS_LM, FROZEN, IN_INT8, LATENCY[1]),
        (
            Measure("median, ms", scale=1000, format=",.1f"),
            Measure("90th percentile, ms", scale=1000, quantile=0.9, format=",.1f"),
        ),
        {"model": model, "batch": batch},
        needs=("short", "minilm"),
        calls=calls,
        targets=(
            Target(names(LATENCY[1]), time=1.0),
            Target(names(LATENCY[1]), speed=1.15, contender=FROZEN.name),
        ),
    )


def runtimes():
    """From strings to labels by what serves an encoder on a processor, at several shapes."""
    shapes = ("1×24", "2×380", "8×120", "32×16–28")
    exports = ("frozen", "frozen-int8", "frozen-bfloat16")
    exports += ("float32.tflite", "int8.tflite", "float32.onnx", "int8.onnx")
    contenders = [Contender(OURS, "keras_lm", "saved")]
    contenders += [Contender(f"keras_lm, {name}", "keras_lm", name) for name in exports]
    for name in ("ONNX Runtime", "OpenVINO"):
        variant = name.lower().replace(" ", "")
        contenders += [
            Contender(f"{name}, {kind}", "runtimes", f"{variant} {kind}")
            for kind in ("float32", "int8", "bfloat16")
            if (name, kind) != ("ONNX Runtime", "bfloat16")  # it has no such kernels here
        ]
    return Row(
        "runtimes",
        "Strings to labels, MiniLM, rows × words, ms",
        tuple(contenders),
        (
            *(Measure(shape, key=shape, scale=1000, format=",.1f") for shape in shapes),
            *(
                Measure(f"least, {shape}", key=shape, scale=1000, quantile=0.0, format=",.1f")
                for shape in shapes
            ),
        ),
        needs=("shapes", "exports", "minilm", "scratch"),
        calls=3,
    )


def generation(batch, length=32, beams=1, contenders=(KERAS_LM, TORCH)):
    """GPT-2 continues prompts, at one batch size, length of prompts and width of search."""
    new_tokens = 64
    title = f"GPT-2 124M, {new_tokens} tokens {search_of(beams)} after {length}, batch of {batch}"
    targets = [Target(names(TORCH), speed=1.0)]
    if BFLOAT16 in contenders:
        targets.append(Target(names(TORCH), speed=1.5, contender=BFLOAT16.name))
    return Row(
        "generate",
        title,
        contenders,
        (
            Measure("tokens/s", work=batch * new_tokens, format=",.1f"),
            Measure("first token, ms", key="prefill", scale=1000, format=",.0f"),
            Measure("first call, s", key="first_call", format=",.1f"),
            Measure("peak memory, GB", key="memory", scale=1e-9, format=",.2f"),
        ),
        {"batch": batch, "length": length, "new_tokens": new_tokens, "beams": beams},
        targets=tuple(targets),
    )


def writing(model, batch, threads, length=32):
    """Writing without Python: the loop in our `.tflite` beside CTranslate2, in two formats."""
    title = {"gpt2": "GPT-2 124M", "t5": "T5-small"}[model]
    by = {1: "one thread", 2: "two threads"}[threads]
    measures = (
        Measure("s of one core" if threads == 1 else "s by the clock"),
        Measure("s by the clock" if threads == 1 else "s of all cores", key=OTHER_SECONDS[threads]),
    )
    ours = {"float32": OURS, "int8": f"{OURS}, int8"}
    theirs = {"float32": "CTranslate2", "int8": "CTranslate2, int8"}
    return Row(
        "writing",
        f"{title}, 64 tokens by a .tflite after {length}, batch of {batch}, {by}",
        (
            *(Contender(name, "keras_lm", dtype) for dtype, name in ours.items()),
            *(Contender(name, "ctranslate2", dtype) for dtype, name in theirs.items()),
        ),
        measures,
        {
            "model": model,
            "batch": batch,
            "length": length,
            "new_tokens": 64,
            "threads": threads,
        },
        needs=("writers",),
        targets=tuple(
            Target((theirs[dtype],), speed=speeds[batch], contender=ours[dtype])
            for dtype, speeds in WRITING.items()
            if batch in speeds
        ),
    )


# What `inputs.writing` gives beside the seconds that are compared.
OTHER_SECONDS = {1: "clock", 2: "processor"}
# How many times as fast as CTranslate2 we want to write, by number format and number of texts.
WRITING = {"float32": {1: 1.5, 8: 1.1}, "int8": {1: 1.9, 8: 1.2, 32: 1.0}}


def search_of(beams):
    """Return how tokens are searched for, in words."""
    return f"by {beams} beams" if beams > 1 else "greedily"


def seq2seq(model, title):
    """A training step of an encoder-decoder, in float32."""
    return Row(
        "seq2seq",
        f"Training step with AdamW, {title}, 16 × 64 tokens to 64, float32",
        (KERAS_LM, TORCH),
        (Measure("s a step"), Measure("target tokens/s", work=16 * 64, format=",.0f")),
        {"batch": 16, "length": 64, "dtype": "float32", "model": model},
        targets=(Target(names(TORCH), time=1.0),),
    )


def translation(batch, beams):
    """T5-small writes for sources, at one batch size and width of search."""
    length, new_tokens = 32, 32
    work = f"{new_tokens} tokens {search_of(beams)} for sources of {length}"
    return Row(
        "translation",
        f"T5-small, {work}, batch of {batch}",
        (KERAS_LM, TORCH, Contender("CTranslate2", "torch_transformers", "ctranslate2")),
        (
            Measure("tokens/s", work=batch * new_tokens, format=",.1f"),
            Measure("first token, ms", key="prefill", scale=1000, format=",.0f"),
        ),
        {"batch": batch, "length": length, "new_tokens": new_tokens, "beams": beams},
        targets=(Target(names(TORCH), speed=1.0),),
    )


def elmo(batch, calls):
    """From characters to the hidden states of all layers, at one batch size."""
    return Row(
        "elmo",
        f"ELMo of the original size, batch of {batch} sentences",
        ELMO,
        (Measure("words/s", work=1, format=",.0f"),),
        {"batch": batch},
        needs=("short", "elmo"),
        calls=calls,
        targets=(Target(names(ELMO[2]), speed=1.0),),
    )


def make_rows(megabytes):
    """Return all rows.

    Args:
        megabytes: float. Size of the text that the tokenizers get.
    """
    return [
        forward("float32", FORWARD, (Target(names(*FORWARD), speed=1.1),)),
        forward(
            "bfloat16",
            (KERAS_HUB, KERAS_HUB_XLA, TORCH, TORCH_COMPILED),
            (
                Target(names(TORCH, TORCH_COMPILED), speed=1.0),
                Target(names(TORCH, TORCH_COMPILED), speed=1.3, contender=FROZEN.name),
            ),
        ),
        # As many tokens in longer texts.
        *(
            forward("float32", LONG, (Target(names(*LONG), speed=1.1),), 1024 // length, length)
            for length in (256, 512)
        ),
        training("float32"),
        *(training("float32", 1024 // length, length) for length in (256, 512)),
        training("mixed_bfloat16"),
        epochs("minilm", "MiniLM"),
        epochs("minilm", "MiniLM", rank=8),
        epochs("base", "BERT-base"),
        epochs("base", "BERT-base", rank=8),
        pretraining("bert", "BERT-base's masked LM", (KERAS_HUB, KERAS_HUB_XLA, TORCH)),
        pretraining("electra", "ELECTRA-small with its generator", (TORCH,)),
        Row(
            "tokenizer",
            "WordPiece, uncased, film reviews, batches of 64",
            (
                KERAS_LM,
                Contender("keras_lm, in tf.data", "keras_lm", "tf_data"),
                Contender("TF Text's bare op", "keras_lm", "tf_text"),
                KERAS_HUB,
                Contender("tokenizers, one core", "torch_transformers"),
                Contender("tokenizers, all cores", "torch_transformers", "all_cores"),
            ),
            (Measure("MB/s", work=megabytes, format=",.1f"),),
            {"batch": 64},
            needs=("reviews", "minilm"),
        ),
        Row(
            "import",
            "Import in a fresh process",
            (KERAS_LM, Contender("TensorFlow", "keras_lm", "tensorflow"), KERAS_HUB, GARDEN, TORCH),
            (Measure("s"),),
        ),
        Row(
            "loading",
            "BERT-base classifier and its tokenizer from a folder of Hugging Face, fresh process",
            (KERAS_LM, TORCH),
            (
                Measure("loaded and read once, processor s"),
                Measure("of that loaded, processor s", key="load"),
                Measure("peak ÷ weights", key="peak"),
            ),
            needs=("checkpoint",),
            targets=(Target(names(TORCH), time=2.0),),
        ),
        Row(
            "export",
            "SavedModel of a BERT-base classifier, in a fresh process",
            (KERAS_LM, Contender("KerasHub, takes ids", "keras_hub")),
            (
                Measure("bytes ÷ (weights + vocabulary)", key="size", format=",.3f"),
                Measure("load, s", key="load"),
                Measure("first call, s", key="first_call"),
            ),
            needs=("short", "minilm", "scratch"),
        ),
        latency("base", "BERT-base", 1, calls=16),
        latency("base", "BERT-base", 32, calls=2),
        latency("minilm", "MiniLM", 1, calls=64),
        latency("minilm", "MiniLM", 32, calls=8),
        runtimes(),
        Row(
            "corpus",
            "300 sentences and 60 reviews to labels, MiniLM, 256 tokens, batches of 32",
            (
                *LATENCY,
                Contender("the same, sorted by characters", "torch_transformers", "sorted"),
            ),
            (Measure("texts/s", work=360, format=",.1f"),),
            {"batch": 32, "length": 256},
            needs=("mixed", "minilm"),
            targets=(Target(names(LATENCY[1]), speed=1.8),),
        ),
        generation(1, contenders=GENERATION),
        generation(8, contenders=GENERATION),
        generation(32, contenders=(KERAS_LM, KERAS_HUB, TORCH)),
        generation(1, length=512),
        generation(8, length=512),
        generation(1, beams=4),
        generation(8, beams=4),
        *(
            writing(model, batch, threads)
            for model in ("gpt2", "t5")
            for batch in (1, 8, 32)
            for threads in (1, 2)
        ),
        *(writing("gpt2", batch, 1, length=512) for batch in (1, 8)),
        seq2seq("transformer", "Transformer-base"),
        seq2seq("t5", "T5-small"),
        translation(1, beams=1),
        translation(1, beams=4),
        translation(32, beams=1),
        translation(32, beams=4),
        elmo(1, calls=6),
        elmo(8, calls=3),
        elmo(32, calls=1),
    ]
