"""What an export of a model that continues prompts offers: functions of named tensors.

Shapes: B prompts, S tokens, T slots of a cache, L blocks, N heads, H per head, V vocabulary.
"""

import numpy as np
import tensorflow as tf

from keras_lm.export.signatures import plain_floats, raw_function, trace
from keras_lm.generation.options import OPTIONS, require
from keras_lm.generation.prompts import real_tokens
from keras_lm.layers.causal_heads import last_real_token
from keras_lm.models.causal import PARTS, CausalBackbone

PROMPT = {"prompt": tf.TensorSpec([None], tf.string, "prompt")}
PACKED = {
    name: tf.TensorSpec([None, None], tf.int32, name) for name in ("token_ids", "padding_mask")
}


def trace_all(task):
    """Return all that a SavedModel of a task offers: name of the signature → `ConcreteFunction`.

    Args:
        task: `keras_lm.tasks.GenerativeTask` with a tokenizer.
    """
    # One function for all signatures, so that the graph holds the tokenizer once, and one that
    # generates.
    tokenize = trace(task.tokenize, {"text": tf.TensorSpec([None], tf.string, "text")})
    generate = trace(generate_function(task, tokenize), generate_specs())
    chosen = {name: tf.constant(value) for name, value in generate_defaults(task).items()}
    return {
        "serving_default": trace(lambda prompt: generate(prompt=prompt, **chosen), PROMPT),
        "generate": generate,
        "score": trace(
            lambda text: task.score_texts(text, tokenize=tokenize),
            {"text": tf.TensorSpec([None], tf.string, "text")},
        ),
        **(
            {"next_token": trace(next_token_function(task), {**PACKED, **cache_specs(task)})}
            if has_cache(task)
            else {}
        ),
        "tokenize": trace(tokenize_function(task, tokenize), PROMPT),
        "detokenize": trace(detokenize_function(task), PACKED),
        "tokens": trace(raw_function(task), task.packed_specs()),
    }


def defaults(task):
    """Return what inputs are where a request leaves them out: signature → input → array.

    Args:
        task: see `trace_all`.
    """
    all_real = {"padding_mask": np.ones([1, 1], "int32")}
    found = {"generate": generate_defaults(task), "detokenize": all_real}
    return found | ({"next_token": all_real | empty_cache(task)} if has_cache(task) else {})


def warmup_requests(task):
    """Yield (signature, dict of arrays) of requests that run all there is once, on a row each.

    Args:
        task: see `trace_all`.
    """
    prompt = {"prompt": np.array(["a"], object)}
    few = {"max_new_tokens": np.array([min(2, task.default_max_new_tokens)], "int32")}
    greedy = prompt | generate_defaults(task) | few
    yield "generate", greedy
    yield "generate", greedy | {"temperature": np.ones([1], "float32")}
    yield "serving_default", prompt
    yield "score", {"text": prompt["prompt"]}
    yield "tokenize", prompt
    tokens = {"token_ids": np.zeros([1, 1], "int32"), "padding_mask": np.ones([1, 1], "int32")}
    if has_cache(task):
        yield "next_token", tokens | empty_cache(task)
    yield "detokenize", tokens


# === Text → text ===


def generate_specs():
    """Return the inputs of `generate`: prompts, and what a caller may choose for each."""
    # Of no stated rank: a number for all prompts is allowed, too.
    options = {name: tf.TensorSpec(None, option.dtype, name) for name, option in OPTIONS.items()}
    return PROMPT | {"stop": tf.TensorSpec(None, tf.string, "stop")} | options


def generate_defaults(task):
    """Return the inputs of `generate` but for the prompts, as arrays (1,)."""
    # An axis, and not a scalar: TF Serving joins requests along it.
    values = {name: np.array([option.default], option.dtype) for name, option in OPTIONS.items()}
    values["max_new_tokens"][:] = task.default_max_new_tokens
    return {"stop": np.array([b""], object)} | values


def generate_function(task, tokenize):
    """Return the function that `generate` is: prompts and options → `task.continue_prompts`."""

    def generate(prompt, stop, **options):
        rows = tf.size(prompt)
        options = {name: _per_prompt(name, value, rows) for name, value in options.items()}
        stop = _per_prompt("stop", stop, rows)[:, tf.newaxis]
        return task.continue_prompts(prompt, stop_strings=stop, tokenize=tokenize, **options)

    return generate


def _per_prompt(name, value, rows):
    value = tf.reshape(value, [-1])
    require(
        (tf.size(value) == 1) | (tf.size(value) == rows),
        f"{name} must have one value, or one for each prompt. It has and there are",
        tf.size(value),
        rows,
    )
    return value


# === Token by token ===


def has_cache(task):
    """Return whether a task's model has a Transformer's cache, which `next_token` hands around."""
    return isinstance(task.backbone, CausalBackbone)


def cache_specs(task):
    """Return the inputs that make up a cache, whose names begin with `cache_`."""
    config = task.backbone.config
    heads = config["num_heads"]
    shape = [None, config["num_layers"], heads, None, config["hidden_dim"] // heads]
    kinds = {
        "keys": (shape, tf.float32),
        "values": (shape, tf.float32),
        "padding_mask": ([None, None], tf.int32),
        "length": ([None], tf.int32),
    }
    return {f"cache_{part}": tf.TensorSpec(*kinds[part], f"cache_{part}") for part in PARTS}


def empty_cache(task, rows=1, slots=0):
    """Return an empty cache as arrays by the names of `cache_specs`."""
    cache = {}
    for name, spec in cache_specs(task).items():
        shape = [rows, *(slots if size is None else size for size in spec.shape[1:])]
        cache[name] = np.zeros(shape, spec.dtype.as_numpy_dtype)
    return cache


def next_token_function(task):
    """Return the function that `next_token` is: tokens and a cache → logits and the cache.

    A cache of one row stands for all rows; an empty one makes the first call. It grows by the slots
    that it lacks. Padding may stand on either side.
    """

    def next_token(token_ids, padding_mask, **cache):
        rows = tf.shape(token_ids)[0]
        padding_mask = tf.broadcast_to(padding_mask, tf.shape(token_ids))
        cache = {
            part: _for_rows(cache[f"cache_{part}"], rows, task.backbone.compute_dtype)
            for part in PARTS
        }
        window = task.backbone.max_sequence_length
        if window is not None:
            number = tf.reduce_sum(tf.concat([cache["padding_mask"], padding_mask], 1), axis=1)
            require(
                number <= window,
                f"cache and token_ids may have {window} tokens together, but have",
                number,
            )
        return _step_outputs(
            task,
            task.backbone({"token_ids": token_ids, "padding_mask": padding_mask, "cache": cache}),
            padding_mask,
        )

    return next_token


def _step_outputs(task, outputs, padding_mask):
    last = last_real_token(padding_mask)
    last = tf.gather(outputs["sequence_output"], last[:, tf.newaxis], batch_dims=1)
    logits = task.head({"sequence_output": last})[:, 0]
    cache = {f"cache_{part}": outputs["cache"][part] for part in PARTS}
    return plain_floats({"logits": logits} | cache)


def _for_rows(x, rows, dtype):
    x = tf.broadcast_to(x, tf.concat([[rows], tf.shape(x)[1:]], axis=0))
    return tf.cast(x, dtype) if x.dtype.is_floating else x


def tokenize_function(task, tokenize):
    """Return the function that `tokenize` is: prompts → the tokens that are read of them."""

    def pieces(prompt):
        ids = task.prompt_ids(prompt, tokenize)
        return {
            "tokens": task.tokenizer.tokens(ids).to_tensor(""),
            "token_ids": ids.to_tensor(0),
            "padding_mask": tf.ones_like(ids).to_tensor(0),
        }

    return pieces


def detokenize_function(task):
    """Return the function that `detokenize` is: ids → texts."""

    def detokenize(token_ids, padding_mask):
        padding_mask = tf.broadcast_to(padding_mask, tf.shape(token_ids))
        return {"text": task.tokenizer.detokenize(real_tokens(token_ids, padding_mask))}

    return detokenize


# === For LiteRT ===


def trace_lite(task):
    """Return what a `.tflite` of a task offers: name of the signature → `ConcreteFunction`.

    Args:
        task: `keras_lm.tasks.GenerativeTask` with a tokenizer.

    Raises:
        ValueError: if the model has no cache to hand around.
    """
    if not has_cache(task):
        raise ValueError(
            f"{type(task.backbone).__name__} has no cache, and LiteRT generates token by token "
            "with one: export as a SavedModel instead."
        )

    def next_token(token_ids, padding_mask, **cache):
        cache = {part: cache[f"cache_{part}"] for part in PARTS}
        outputs = task.backbone.extend(token_ids, padding_mask, cache)
        return _step_outputs(task, outputs, padding_mask)

    def tokenize(prompt):
        ids = task.tokenizer.tokenize_lite(prompt)
        return {"token_ids": ids.to_tensor(0), "padding_mask": tf.ones_like(ids).to_tensor(0)}

    functions = {"next_token": trace(next_token, {**PACKED, **cache_specs(task)})}
    if hasattr(task.tokenizer, "tokenize_lite"):
        functions["tokenize"] = trace(tokenize, PROMPT)
    return functions


def lite_requests(task):
    """Return (signature, dict of arrays) of requests that show whether a `.tflite` runs."""
    tokens = {name: np.ones([2, 3], "int32") for name in PACKED}
    requests = [("next_token", tokens | empty_cache(task, rows=2, slots=4))]
    if hasattr(task.tokenizer, "tokenize_lite"):
        requests.append(("tokenize", {"prompt": np.array([b"a", b"two words"])}))
    return requests
