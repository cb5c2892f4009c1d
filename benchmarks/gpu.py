"""Training, forward passes and generation on one GPU: Keras on JAX beside PyTorch, in bfloat16.

    python benchmarks/gpu.py                            # all rows, about ten minutes
    python benchmarks/gpu.py bert-512 gpt2 --out t.json # some
    python benchmarks/gpu.py --small --together 1       # a trial on a processor
    python benchmarks/gpu.py --list

Each contender of each row runs in a process of its own, with the same network, batch and optimiser;
a row is the mean of 20 steps after 5, without metrics, and no contender waits for a step before it
asks for the next one. PyTorch's networks are those of transformers, with its own choice of
attention; compiled by `torch.compile`. Several contenders compile at once, and none is timed
meanwhile. JAX, PyTorch, transformers, tokenizers and keras_lm
have to be there; TensorFlow does not.
"""

import argparse
import contextlib
import fcntl
import glob
import json
import os
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor

WARM, STEPS = 5, 20
MASK_ID, MASKED = 103, 0.15
NEW_TOKENS = 128  # of `generate`
DECODED = 128  # of T5's decoder
LOCK = os.path.join(tempfile.gettempdir(), "keras_lm-gpu.lock")

# name: (function, model, batch, length, dropout, attention's dropout)
ROWS = {
    "parity": ("parity", "bert", 4, 128, 0.0, 0.0),
    "bert-512": ("masked", "bert", 32, 512, 0.1, 0.0),
    "gpt2": ("causal", "gpt2", 16, 1024, 0.1, 0.0),
    "bert-128": ("masked", "bert", 128, 128, 0.1, 0.0),
    "bert-forward-512": ("forward", "bert", 32, 512, 0.0, 0.0),
    "bert-forward-128": ("forward", "bert", 32, 128, 0.0, 0.0),
    "bert-512-attention-dropout": ("masked", "bert", 32, 512, 0.1, 0.1),
    "albert-512": ("masked", "albert", 32, 512, 0.0, 0.0),
    "xlnet-forward-512": ("forward", "xlnet", 16, 512, 0.0, 0.0),
    "t5-forward-512": ("forward", "t5", 16, 512, 0.0, 0.0),
    "gpt2-generate": ("generate", "gpt2", 16, 64, 0.0, 0.0),
    "strings": ("strings", "bert", 128, 128, 0.1, 0.0),
}

# name: (our size, its words, transformers' configuration, network, and what is not its default)
MODELS = {
    "bert": ("bert_base_en_uncased", 30522, "BertConfig", "BertForMaskedLM", {}),
    "gpt2": ("gpt2_base_en", 50257, "GPT2Config", "GPT2LMHeadModel", {}),
    "albert": (
        "albert_base_en_uncased",
        30000,
        "AlbertConfig",
        "AlbertForMaskedLM",
        {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12},
    ),
    "xlnet": (
        "xlnet_base_en",
        32000,
        "XLNetConfig",
        "XLNetModel",
        {"d_model": 768, "n_layer": 12, "n_head": 12, "d_inner": 3072},
    ),
    "t5": (
        "t5_base_multi",
        32128,
        "T5Config",
        "T5Model",
        {"d_model": 768, "num_layers": 12, "num_heads": 12, "d_ff": 3072},
    ),
}


def batch_of(model, batch, length):
    """Return token ids and a padding mask, int32, whose texts are full but for a tenth."""
    import numpy as np

    generator = np.random.default_rng(0)
    ids = generator.integers(1000, MODELS[model][1], (batch, length), dtype="int32")
    mask = np.ones((batch, length), "int32")
    if model != "gpt2":
        mask[: batch // 10, length // 2 :] = 0
    return ids * mask, mask


@contextlib.contextmanager
def alone(is_alone):
    """Wait until no other contender is timed, and, to be timed, until none compiles either."""
    with open(LOCK, "w", encoding="utf-8") as file:
        fcntl.flock(file, fcntl.LOCK_EX if is_alone else fcntl.LOCK_SH)
        yield


def timed(step, wait=lambda: None):
    """Return the mean seconds of a step, of which the host waits for the last one alone."""
    with alone(False):
        for _ in range(WARM):
            step()
            wait()
    with alone(True):
        begin = time.perf_counter()
        for _ in range(STEPS):
            step()
        wait()
        return (time.perf_counter() - begin) / STEPS


def ours(kind, model, batch, length, dropout, attention_dropout, variant, profile):
    """Return milliseconds and gigabytes of a step of keras_lm."""
    import jax

    import keras_lm
    from keras_lm.layers import jax_attention

    if variant == "plain":
        jax_attention.FEWEST_SCORES = float("inf")
    ids, mask = batch_of(model, batch, length)
    if kind == "parity":
        return parity(ids, mask)
    options = {"num_layers": 2} if SMALL else {}
    if kind not in ("forward", "generate"):
        options |= {"dropout": dropout, "attention_dropout": attention_dropout}
    dtype = "bfloat16" if kind in ("forward", "generate") else "mixed_bfloat16"
    backbone = keras_lm.models.Backbone.from_preset(
        MODELS[model][0], load_weights=False, dtype=dtype, **options
    )
    packed = {"token_ids": ids, "padding_mask": mask}
    if kind == "forward":
        if model == "t5":
            names = ("encoder_token_ids", "encoder_padding_mask", "decoder_token_ids")
            packed = dict(zip(names, (ids, mask, ids[:, :DECODED]), strict=True))
        variables = [v.value for v in backbone.trainable_variables]
        others = [v.value for v in backbone.non_trainable_variables]

        @jax.jit
        def run(variables, others, packed):
            results, _ = backbone.stateless_call(variables, others, packed, training=False)
            return results["sequence_output"]

        packed, last = jax.device_put(packed), []

        def step():
            last[:] = [run(variables, others, packed)]

        return finish(timed(step, lambda: last[0].block_until_ready()))
    if kind == "generate":
        task = keras_lm.tasks.CausalLM(backbone)
        seconds = timed(lambda: task.generate(packed, max_new_tokens=NEW_TOKENS))
        return finish(seconds) | {"tokens/s": batch * NEW_TOKENS / seconds}
    if kind == "causal":
        return fit(keras_lm.tasks.CausalLM(backbone), packed, batch, profile)
    if kind == "masked":
        from keras_lm.objectives import MaskedLanguageModel

        objective = MaskedLanguageModel(MASK_ID, MODELS[model][1], special_ids=[], rate=MASKED)
        task = keras_lm.tasks.Pretrainer(backbone, objectives=[objective])
        return fit(task, packed, batch, profile)
    return strings(backbone, batch, length)


def fit(task, packed, batch, profile=None):
    """Return milliseconds and gigabytes of a step of `fit` over one batch again and again."""
    import numpy as np

    def repeated(times):
        return {name: np.tile(values, (times, 1)) for name, values in packed.items()}

    task.compile(metrics=[])
    with alone(False):
        task.fit(repeated(WARM), batch_size=batch, shuffle=False, verbose=0)
    with alone(True):
        seconds = seconds_of_steps(task, repeated(WARM + STEPS), None, batch)
        if profile:
            profiled(lambda: task.fit(repeated(4), batch_size=batch, verbose=0), profile)
    return finish(seconds)


def seconds_of_steps(task, x, y, batch):
    """Return the seconds of a step in `fit`, but for its first."""
    import keras

    times = {}

    class Clock(keras.callbacks.Callback):
        async_safe = True  # so that Keras does not wait for each step

        def on_train_batch_end(self, step, logs=None):
            float(logs["loss"])
            times[step] = time.perf_counter()

    task.fit(x, y, batch_size=batch, shuffle=False, verbose=0, callbacks=[Clock()])
    return (times[WARM + STEPS - 1] - times[WARM - 1]) / STEPS


def strings(backbone, batch, length):
    """A classifier's `fit` on strings: the package tokenizers makes the ids on the host."""
    import random

    import keras_lm

    letters = random.Random(0)
    words = ["".join(letters.choices("abcdefghij", k=5)) for _ in range(20000)]
    vocabulary = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *dict.fromkeys(words)]
    tokenizer = keras_lm.tokenizers.WordPieceTokenizer(vocabulary, lowercase=True)
    task = keras_lm.tasks.TextClassifier(
        backbone, tokenizer=tokenizer, num_classes=2, sequence_length=length, padding="fixed"
    )
    count = batch * (WARM + STEPS)
    texts = [" ".join(letters.choices(words, k=length)) for _ in range(count)]
    labels = [i % 2 for i in range(count)]
    with alone(False):
        task.fit(texts[:batch], labels[:batch], batch_size=batch, verbose=0)
    with alone(True):
        return finish(seconds_of_steps(task, texts, labels, batch))


def parity(ids, mask):
    """Return the largest difference from transformers on this device, in float32, by model.

    Also of the fused kernel and of XLA's attention, both in bfloat16, from float32.
    """
    import jax
    import numpy as np
    import torch
    import transformers

    import keras_lm
    from keras_lm.layers import jax_attention

    torch.set_float32_matmul_precision("highest")
    small = {"vocab_size": 32128, "hidden_size": 256, "num_attention_heads": 4}
    small |= {"num_hidden_layers": 4, "intermediate_size": 512}
    networks = {
        "Bert": small,
        "Roberta": small,
        "Electra": small | {"embedding_size": 128},
        "Albert": small | {"embedding_size": 128},
        "DistilBert": {"vocab_size": 32128, "dim": 256, "n_heads": 4, "n_layers": 4},
        "GPT2": {"n_embd": 256, "n_head": 4, "n_layer": 4},
        "XLNet": {"d_model": 256, "n_head": 4, "n_layer": 4, "d_inner": 512},
        "MPNet": small,
    }
    device = "cuda" if torch.cuda.is_available() else "cpu"
    results = {}
    for name, options in networks.items():
        torch.manual_seed(0)
        config = getattr(transformers, f"{name}Config")(**options)
        network = getattr(transformers, f"{name}Model")(config).eval()
        with tempfile.TemporaryDirectory() as folder:
            network.save_pretrained(folder)
            backbone = keras_lm.models.Backbone.from_preset(folder)
        network = network.to(device)
        with torch.inference_mode():
            given = (torch.from_numpy(x).long().to(device) for x in (ids, mask))
            names = ("input_ids", "attention_mask")
            theirs = network(**dict(zip(names, given, strict=True))).last_hidden_state
        packed = {"token_ids": ids, "padding_mask": mask}
        with jax.default_matmul_precision("highest"):
            outputs = np.asarray(backbone(packed)["sequence_output"])
        results[name] = float((abs(outputs - theirs.cpu().numpy()) * mask[..., None]).max())
        if name == "Bert":
            weights, of_bert = backbone.get_weights(), outputs
            config = backbone.get_config() | {"dtype": "bfloat16"}
            backbone = type(backbone).from_config(config)
            backbone.set_weights(weights)
            for of_attention, fewest in {"kernel": 0, "plain": float("inf")}.items():
                jax_attention.FEWEST_SCORES = fewest
                outputs = np.asarray(backbone(packed)["sequence_output"], "float32")
                difference = abs(outputs - of_bert) * mask[..., None]
                results[f"bfloat16, {of_attention}"] = float(difference.max())
    return results


def finish(seconds):
    """Return milliseconds, and the most gigabytes that the device held."""
    import jax

    memory = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0)
    return {"ms": 1000 * seconds, "GB": memory / 1e9}


def profiled(run, out):
    """Write what the device did, by kernel: microseconds of all its runs, and their number."""
    import jax

    with tempfile.TemporaryDirectory() as folder:
        with jax.profiler.trace(folder):
            run()
        (path,) = glob.glob(f"{folder}/**/*.xplane.pb", recursive=True)
        planes = jax.profiler.ProfileData.from_file(path).planes
        kernels = {}
        for plane in planes:
            for line in plane.lines if "GPU" in plane.name else ():
                for event in line.events:
                    kernel = kernels.setdefault(f"{line.name}: {event.name}", [0, 0])
                    kernel[0] += event.duration_ns / 1e3
                    kernel[1] += 1
    ordered = sorted(kernels.items(), key=lambda item: -item[1][0])
    with open(out, "w", encoding="utf-8") as file:
        for name, (microseconds, number) in ordered:
            print(f"{microseconds:12.1f} {number:6d} {name}", file=file)


def theirs(kind, model, batch, length, dropout, attention_dropout, variant, profile):
    """Return milliseconds and gigabytes of a step of transformers' network."""
    import torch
    import transformers

    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    ids, mask = (torch.from_numpy(x).long().to(device) for x in batch_of(model, batch, length))
    _, _, config, network, options = MODELS[model]
    if model == "gpt2":
        options = {"attn_pdrop": attention_dropout, "resid_pdrop": dropout, "embd_pdrop": dropout}
    elif model in ("bert", "albert"):
        options = options | {
            "attention_probs_dropout_prob": attention_dropout,
            "hidden_dropout_prob": dropout,
        }
    if SMALL:
        layers = {"gpt2": "n_layer", "xlnet": "n_layer", "t5": "num_layers"}
        options = options | {layers.get(model, "num_hidden_layers"): 2}
    network = getattr(transformers, network)(getattr(transformers, config)(**options)).to(device)

    def wait():
        if device == "cuda":
            torch.cuda.synchronize()

    if kind in ("forward", "generate"):
        network = getattr(network, "bert", network).eval().to(torch.bfloat16)
    if kind == "generate":
        limits = {"max_new_tokens": NEW_TOKENS, "min_new_tokens": NEW_TOKENS}
        options = limits | {"do_sample": False, "pad_token_id": 0}
        if variant == "compiled":  # transformers compiles the step over a cache of one size
            options["cache_implementation"] = "static"

        def step():
            network.generate(input_ids=ids, attention_mask=mask, **options)
    elif kind == "forward":
        run = torch.compile(network) if variant == "compiled" else network

        options = {"decoder_input_ids": ids[:, :DECODED]} if model == "t5" else {}

        def step():
            with torch.inference_mode():
                run(input_ids=ids, attention_mask=mask, **options)
    else:
        network.train()
        optimizer = torch.optim.AdamW(
            network.parameters(), lr=5e-5, fused=device == "cuda", weight_decay=0.01
        )
        number = round(MASKED * length)
        places = torch.rand(ids.shape, device=device).topk(number).indices  # logits of these alone
        labels = ids.gather(1, places)

        def loss_of_masks():
            given = ids.scatter(1, places, MASK_ID)
            states = network.base_model(input_ids=given, attention_mask=mask).last_hidden_state
            states = states.gather(1, places[..., None].expand(-1, -1, states.shape[-1]))
            head = network.predictions if model == "albert" else network.cls
            return torch.nn.functional.cross_entropy(head(states).flatten(0, 1), labels.flatten())

        def loss_of_all():
            return network(input_ids=ids, labels=ids).loss

        compute = loss_of_all if kind == "causal" else loss_of_masks
        compute = torch.compile(compute) if variant == "compiled" else compute

        def step():
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device, torch.bfloat16):
                loss = compute()
            loss.backward()
            torch.nn.utils.clip_grad_norm_(network.parameters(), 1.0)
            optimizer.step()

    seconds = timed(step, wait)
    if profile:
        with torch.profiler.profile() as results:
            step()
            wait()
        with open(profile, "w", encoding="utf-8") as file:
            print(results.key_averages().table(sort_by="self_cuda_time_total"), file=file)
    memory = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    results = {"ms": 1000 * seconds, "GB": memory / 1e9}
    return results | {"tokens/s": batch * NEW_TOKENS / seconds} if kind == "generate" else results


def contenders(kind):
    """Return the contenders of a row, each a library and its variant."""
    if kind == "parity":
        return [("keras_lm", "kernel")]
    if kind == "strings":
        return [("keras_lm", "kernel"), ("keras_lm", "plain")]
    return [
        ("keras_lm", "kernel"),
        ("torch", "compiled"),
        ("keras_lm", "plain"),
        ("torch", "eager"),
    ]


def device_name():
    """Return the name of the GPU, or «processor»."""
    command = ["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return "processor"


def run_alone(name, library, variant, arguments):
    """Run a contender of a row in a process of its own; return what it found, or its error."""
    command = [sys.executable, __file__, "--one", name, library, variant]
    command += ["--small"] if arguments.small else []
    if arguments.profile:
        path = os.path.join(arguments.profile, f"{name}-{library}-{variant}.txt")
        command += ["--profile", path]
    environment = os.environ | {"KERAS_BACKEND": "jax", "XLA_PYTHON_CLIENT_PREALLOCATE": "false"}
    options = {"capture_output": True, "text": True, "env": environment, "check": False}
    begin = time.perf_counter()
    try:
        done = subprocess.run(command, timeout=arguments.limit, **options)
    except subprocess.TimeoutExpired:
        return {"error": f"more than {arguments.limit} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    results = json.loads(lines[-1]) if lines else {"error": done.stderr.strip()[-600:]}
    return results | {"seconds": round(time.perf_counter() - begin)}


def main():
    global SMALL
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help="see --list; all by default")
    parser.add_argument("--list", action="store_true", help="list the rows")
    parser.add_argument("--out", help="write what was found as JSON, after each contender")
    parser.add_argument("--variants", default="kernel,compiled,plain,eager")
    parser.add_argument("--small", action="store_true", help="two layers, for a trial")
    parser.add_argument("--together", type=int, default=4, help="contenders that compile at once")
    parser.add_argument("--profile", help="write each contender's kernels into this folder")
    parser.add_argument("--limit", type=int, default=300, help="seconds of a contender")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    SMALL = arguments.small
    if arguments.list:
        return print(*ROWS, sep="\n")
    if arguments.one:
        name, library, variant = arguments.one
        row = ROWS[name]
        if SMALL and name != "parity":
            row = (*row[:2], 4, 64, *row[4:])  # rows and columns
        result = (ours if library == "keras_lm" else theirs)(*row, variant, arguments.profile)
        return print(json.dumps(result))
    unknown = [row for row in arguments.rows if row not in ROWS]
    if unknown:
        parser.error(f"rows {unknown} are not among {list(ROWS)}")
    results = {"device": device_name()}
    print(results["device"], flush=True)
    variants = arguments.variants.split(",")

    def run(contender):
        result = run_alone(*contender, arguments)
        results[" ".join(contender)] = result
        print(*contender, json.dumps(result), flush=True)
        if arguments.out:
            with open(arguments.out, "w", encoding="utf-8") as file:
                json.dump(results, file, indent=1)

    chosen = [
        (name, *contender)
        for name in arguments.rows or ROWS
        for contender in contenders(ROWS[name][0])
        if contender[1] in variants
    ]
    with ThreadPoolExecutor(arguments.together) as pool:
        list(pool.map(run, chosen))


if __name__ == "__main__":
    main()
