"""Training and forward passes on one GPU: Keras on JAX beside PyTorch, in bfloat16.

    python benchmarks/gpu.py                            # all rows, about ten minutes
    python benchmarks/gpu.py bert-512 gpt2 --out t.json # some
    python benchmarks/gpu.py --list

Each contender of each row runs in a process of its own, with the same network, batch and optimiser;
a row is 20 steps after 5, the mean in `fit` and else the median. PyTorch's networks are those of
transformers, with its own choice of attention; compiled by `torch.compile`. Only JAX, PyTorch and
transformers have to be there besides keras_lm and TensorFlow for processors, which reads the
strings.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import time

WARM, STEPS = 5, 20
VOCABULARY = {"bert": 30522, "gpt2": 50257, "xlnet": 32000, "albert": 30000}
MASK_ID, MASKED = 103, 0.15

# name: (function, model, batch, length, dropout, attention's dropout)
ROWS = {
    "parity": ("parity", "bert", 4, 128, 0.0, 0.0),
    "bert-512": ("masked", "bert", 32, 512, 0.1, 0.0),
    "bert-512-attention-dropout": ("masked", "bert", 32, 512, 0.1, 0.1),
    "bert-128": ("masked", "bert", 128, 128, 0.1, 0.0),
    "gpt2": ("causal", "gpt2", 16, 1024, 0.1, 0.0),
    "bert-forward-512": ("forward", "bert", 32, 512, 0.0, 0.0),
    "bert-forward-128": ("forward", "bert", 32, 128, 0.0, 0.0),
    "albert-512": ("masked", "albert", 32, 512, 0.0, 0.0),
    "xlnet-forward-512": ("forward", "xlnet", 16, 512, 0.0, 0.0),
    "strings": ("strings", "bert", 128, 128, 0.1, 0.0),
}
SIZES = {
    "bert": "bert_base_en_uncased",
    "gpt2": "gpt2_base_en",
    "albert": "albert_base_en_uncased",
    "xlnet": "xlnet_base_en",
}


def batch_of(model, batch, length):
    """Return token ids and a padding mask, int32, whose texts are full but for a tenth."""
    import numpy as np

    generator = np.random.default_rng(0)
    ids = generator.integers(1000, VOCABULARY[model], (batch, length), dtype="int32")
    mask = np.ones((batch, length), "int32")
    if model != "gpt2":
        mask[: batch // 10, length // 2 :] = 0
    return ids * mask, mask


def timed(step):
    """Return the median seconds of a step that waits for its result."""
    for _ in range(WARM):
        step()
    seconds = []
    for _ in range(STEPS):
        begin = time.perf_counter()
        step()
        seconds.append(time.perf_counter() - begin)
    return statistics.median(seconds)


def ours(kind, model, batch, length, dropout, attention_dropout, variant):
    """Return milliseconds and gigabytes of a step of keras_lm."""
    import jax

    import keras_lm
    from keras_lm.layers import jax_attention

    if variant == "plain":
        jax_attention.FEWEST_SCORES = float("inf")
    ids, mask = batch_of(model, batch, length)
    if kind == "parity":
        return parity(ids, mask)
    options = {"dropout": dropout} if kind != "forward" else {}
    if model in ("bert", "gpt2", "albert") and kind != "forward":
        options["attention_dropout"] = attention_dropout
    dtype = "bfloat16" if kind == "forward" else "mixed_bfloat16"
    size = SIZES[model]
    backbone = keras_lm.models.Backbone.from_preset(
        size, load_weights=False, dtype=dtype, **options
    )
    packed = {"token_ids": ids, "padding_mask": mask}
    if kind == "forward":
        variables = [v.value for v in backbone.trainable_variables]
        others = [v.value for v in backbone.non_trainable_variables]

        @jax.jit
        def run(variables, others, packed):
            found, _ = backbone.stateless_call(variables, others, packed, training=False)
            return found["sequence_output"]

        packed = jax.device_put(packed)
        return finish(timed(lambda: run(variables, others, packed).block_until_ready()))
    if kind == "causal":
        task = keras_lm.tasks.CausalLM(backbone)
        return fit(task, packed)
    if kind == "masked":
        from keras_lm.objectives import MaskedLanguageModel

        objective = MaskedLanguageModel(MASK_ID, VOCABULARY[model], special_ids=[], rate=MASKED)
        return fit(keras_lm.tasks.Pretrainer(backbone, objectives=[objective]), packed)
    return strings(backbone, batch, length)


def fit(task, packed):
    """Time the steps of `fit` over one batch again and again."""
    import tensorflow as tf

    batches = tf.data.Dataset.from_tensors(packed).cache().repeat(WARM + STEPS)
    return finish(steps(task, batches))


def steps(task, batches):
    """Return the seconds of a step in `fit`."""
    import keras

    times = []

    class Clock(keras.callbacks.Callback):
        def on_train_batch_end(self, step, logs=None):
            if step in (WARM - 1, WARM + STEPS - 1):
                float(logs["loss"])
                times.append(time.perf_counter())

    task.fit(batches, epochs=1, verbose=0, callbacks=[Clock()])
    return (times[1] - times[0]) / STEPS


def strings(backbone, batch, length):
    """A classifier's `fit` on strings: tokens are made on the host meanwhile."""
    import random

    import tensorflow as tf

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
    batches = tf.data.Dataset.from_tensor_slices((texts, [i % 2 for i in range(count)]))
    return finish(steps(task, batches.batch(batch, drop_remainder=True)))


def parity(ids, mask):
    """Return the largest difference of the kernel from XLA's attention, and from float32."""
    import numpy as np

    import keras_lm
    from keras_lm.layers import jax_attention

    jax_attention.FEWEST_SCORES = 0
    found = {}
    for dtype in ("bfloat16", "float32"):
        backbone = keras_lm.models.Backbone.from_preset(
            "bert_small_en_uncased", load_weights=False, dtype=dtype
        )
        if "weights" in found:
            backbone.set_weights(found["weights"])
        found["weights"] = [np.asarray(x, "float32") for x in backbone.get_weights()]
        packed = {"token_ids": ids, "padding_mask": mask, "segment_ids": 0 * ids}
        found[dtype] = np.asarray(backbone(packed)["sequence_output"], "float32")
        jax_attention.FEWEST_SCORES = float("inf")
        found["plain", dtype] = np.asarray(backbone(packed)["sequence_output"], "float32")
        jax_attention.FEWEST_SCORES = 0
    real = mask[..., None]
    return {
        "kernel - float32": float(abs((found["bfloat16"] - found["float32"]) * real).max()),
        "plain - float32": float(abs((found["plain", "bfloat16"] - found["float32"]) * real).max()),
    }


def finish(seconds):
    """Return milliseconds, and the most gigabytes that the device held."""
    import jax

    memory = (jax.local_devices()[0].memory_stats() or {}).get("peak_bytes_in_use", 0)
    return {"ms": 1000 * seconds, "GB": memory / 1e9}


def theirs(kind, model, batch, length, dropout, attention_dropout, variant):
    """Return milliseconds and gigabytes of a step of transformers' network."""
    import torch
    import transformers

    torch.set_float32_matmul_precision("high")
    device = "cuda" if torch.cuda.is_available() else "cpu"
    ids, mask = (torch.from_numpy(x).long().to(device) for x in batch_of(model, batch, length))
    classes = {
        "bert": ("BertConfig", "BertForMaskedLM", {}),
        "albert": (
            "AlbertConfig",
            "AlbertForMaskedLM",
            {"hidden_size": 768, "intermediate_size": 3072, "num_attention_heads": 12},
        ),
        "gpt2": ("GPT2Config", "GPT2LMHeadModel", {}),
        "xlnet": (
            "XLNetConfig",
            "XLNetModel",
            {"d_model": 768, "n_layer": 12, "n_head": 12, "d_inner": 3072},
        ),
    }
    config, network, options = classes[model]
    if model == "gpt2":
        options |= {"attn_pdrop": attention_dropout, "resid_pdrop": dropout, "embd_pdrop": dropout}
    elif model != "xlnet":
        options |= {
            "attention_probs_dropout_prob": attention_dropout,
            "hidden_dropout_prob": dropout,
        }
    network = getattr(transformers, network)(getattr(transformers, config)(**options)).to(device)
    if kind == "forward":
        network = getattr(network, "bert", network).eval().to(torch.bfloat16)
        run = torch.compile(network) if variant == "compiled" else network

        def step():
            with torch.inference_mode():
                run(input_ids=ids, attention_mask=mask)
            wait()
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
            wait()

    def wait():
        if device == "cuda":
            torch.cuda.synchronize()

    seconds = timed(step)
    memory = torch.cuda.max_memory_allocated() if device == "cuda" else 0
    return {"ms": 1000 * seconds, "GB": memory / 1e9}


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


def run_alone(name, library, variant, seconds):
    """Run a contender of a row in a process of its own; return what it found, or its error."""
    command = [sys.executable, __file__, "--one", name, library, variant]
    environment = os.environ | {
        "KERAS_BACKEND": "jax",
        "XLA_PYTHON_CLIENT_PREALLOCATE": "false",
        "TF_CPP_MIN_LOG_LEVEL": "3",
    }
    try:
        done = subprocess.run(
            command, capture_output=True, text=True, env=environment, timeout=seconds, check=False
        )
    except subprocess.TimeoutExpired:
        return {"error": f"more than {seconds} s"}
    lines = [line for line in done.stdout.splitlines() if line.startswith("{")]
    return json.loads(lines[-1]) if lines else {"error": done.stderr.strip()[-600:]}


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("rows", nargs="*", metavar="ROW", help="see --list; all by default")
    parser.add_argument("--list", action="store_true", help="list the rows")
    parser.add_argument("--out", help="write what was found as JSON, after each contender")
    parser.add_argument("--variants", default="kernel,compiled,plain,eager")
    parser.add_argument("--limit", type=int, default=240, help="seconds of a contender")
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.list:
        return print(*ROWS, sep="\n")
    if arguments.one:
        name, library, variant = arguments.one
        found = (ours if library == "keras_lm" else theirs)(*ROWS[name], variant)
        return print(json.dumps(found))
    unknown = [row for row in arguments.rows if row not in ROWS]
    if unknown:
        parser.error(f"rows {unknown} are not among {list(ROWS)}")
    results = {"device": device_name()}
    print(results["device"], flush=True)
    for variant in arguments.variants.split(","):
        for name in arguments.rows or ROWS:
            for library, of_row in contenders(ROWS[name][0]):
                if of_row != variant:
                    continue
                found = run_alone(name, library, variant, arguments.limit)
                results[f"{name} {library} {variant}"] = found
                print(name, library, variant, json.dumps(found), flush=True)
                if arguments.out:
                    with open(arguments.out, "w", encoding="utf-8") as file:
                        json.dump(results, file, indent=1)


if __name__ == "__main__":
    main()
