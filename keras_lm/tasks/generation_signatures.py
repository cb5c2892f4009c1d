"""The signatures of an exported model that continues prompts: functions of named tensors.

The model's state goes in and out as tensors with the flat names of
`keras_lm.layers.state.named_tensors`: `cache_keys`, `states_0_hidden`, ….

Shapes: B prompts, S tokens, V vocabulary.
"""

import numpy as np
import tensorflow as tf

from keras_lm.generation.options import OPTIONS, require
from keras_lm.generation.prompts import real_tokens
from keras_lm.layers.causal_heads import last_real_token
from keras_lm.layers.state import named_tensors, nested_tensors
from keras_lm.layers.tensorflow import for_lite
from keras_lm.tasks.signatures import TextSignatures, plain_floats, trace

PROMPT = {"prompt": tf.TensorSpec([None], tf.string, "prompt")}
PACKED = {
    name: tf.TensorSpec([None, None], tf.int32, name) for name in ("token_ids", "padding_mask")
}


def trace_all(task):
    """Return the signatures of a task's SavedModel: name → `ConcreteFunction`.

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
        "next_token": trace(next_token_function(task), {**PACKED, **state_specs(task)}),
        "tokenize": trace(tokenize_function(task, tokenize), PROMPT),
        "detokenize": trace(detokenize_function(task), PACKED),
        "tokens": TextSignatures(task).raw(),
    }


def defaults(task):
    """Return the defaults of inputs: signature → input → array.

    Args:
        task: see `trace_all`.
    """
    all_real = {"padding_mask": np.ones([1, 1], "int32")}
    return {
        "generate": generate_defaults(task),
        "detokenize": all_real,
        "next_token": all_real | initial_state(task),
    }


def warmup_requests(task):
    """Yield requests (signature, dict of arrays) that run each signature once, on one row.

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
    yield "next_token", tokens | initial_state(task)
    yield "detokenize", tokens


# === Text → text ===


def generate_specs():
    """Return the inputs of `generate`: prompts, and options for each."""
    # Of unknown rank: a number for all prompts is allowed, too.
    options = {name: tf.TensorSpec(None, option.dtype, name) for name, option in OPTIONS.items()}
    return PROMPT | {"stop": tf.TensorSpec(None, tf.string, "stop")} | options


def generate_defaults(task):
    """Return the inputs of `generate` except the prompts, as arrays (1,)."""
    # Not scalars, as TF Serving concatenates requests along the first axis.
    values = {name: np.array([option.default], option.dtype) for name, option in OPTIONS.items()}
    values["max_new_tokens"][:] = task.default_max_new_tokens
    return {"stop": np.array([b""], object)} | values


def generate_function(task, tokenize):
    """Return the function of `generate`: prompts and options → `task.continue_prompts`."""

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


def state_specs(task):
    """Return the inputs of the model's state, by name, floats as float32."""
    backbone = task.backbone
    return {
        name: tf.TensorSpec(part.shape, "float32" if "float" in part.dtype else part.dtype, name)
        for name, part in named_tensors(backbone.state_spec(), backbone.state_name).items()
    }


def initial_state(task, rows=1, length=0):
    """Return the state before any token, as arrays by the names of `state_specs`."""
    backbone = task.backbone
    state = backbone.pack_state(backbone.initial_state(rows, length))
    state = named_tensors(state, backbone.state_name)
    return {
        name: np.asarray(tf.cast(state[name], spec.dtype))
        for name, spec in state_specs(task).items()
    }


def next_token_function(task):
    """Return the function of `next_token`: tokens and a state → logits and the state.

    A state of one row is used for all rows; start with the initial one. A cache grows by the slots
    that it lacks. Padding may be on either side.
    """
    window = task.backbone.max_sequence_length

    def next_token(token_ids, padding_mask, **state):
        rows = tf.shape(token_ids)[0]
        padding_mask = tf.broadcast_to(padding_mask, tf.shape(token_ids))
        if window is not None:
            past = state["cache_padding_mask"]
            past = tf.broadcast_to(past, tf.stack([rows, tf.shape(past)[1]]))
            number = tf.reduce_sum(tf.concat([past, padding_mask], axis=1), axis=1)
            require(
                number <= window,
                f"cache and token_ids may have {window} tokens together, but have",
                number,
            )
        state = {name: _for_rows(part, rows) for name, part in state.items()}
        state = task.backbone.make_room(_nested(task, state), {"padding_mask": padding_mask})
        return _step_outputs(task, token_ids, padding_mask, state)

    return next_token


def _for_rows(x, rows):
    return tf.broadcast_to(x, tf.concat([[rows], tf.shape(x)[1:]], axis=0))


def _nested(task, named):
    """Return the state for tensors by name, as calling takes it."""
    backbone = task.backbone
    tensors = {
        name: tf.cast(part, backbone.compute_dtype) if part.dtype.is_floating else part
        for name, part in named.items()
    }
    return nested_tensors(tensors, backbone.state_spec(), backbone.state_name)


def _step_outputs(task, token_ids, padding_mask, state):
    backbone = task.backbone
    outputs, state = task.read(token_ids, padding_mask, backbone.unpack_state(state))
    last = last_real_token(padding_mask)
    last = tf.gather(outputs["sequence_output"], last[:, tf.newaxis], batch_dims=1)
    logits = task.head({"sequence_output": last})[:, 0]
    state = named_tensors(backbone.pack_state(state), backbone.state_name)
    return plain_floats({"logits": logits} | state)


def tokenize_function(task, tokenize):
    """Return the function of `tokenize`: prompts → the tokens that the model reads."""

    def pieces(prompt):
        ids = task.prompt_ids(prompt, tokenize)
        return {
            "tokens": task.tokenizer.tokens(ids).to_tensor(""),
            "token_ids": ids.to_tensor(0),
            "padding_mask": tf.ones_like(ids).to_tensor(0),
        }

    return pieces


def detokenize_function(task):
    """Return the function of `detokenize`: ids → texts."""

    def detokenize(token_ids, padding_mask):
        padding_mask = tf.broadcast_to(padding_mask, tf.shape(token_ids))
        return {"text": task.tokenizer.detokenize(real_tokens(token_ids, padding_mask))}

    return detokenize


# === For LiteRT ===


def trace_lite(task):
    """Return the signatures of a task's `.tflite`: name → `ConcreteFunction`.

    Args:
        task: `keras_lm.tasks.GenerativeTask` with a tokenizer.
    """

    def next_token(token_ids, padding_mask, **state):
        with for_lite():
            return _step_outputs(task, token_ids, padding_mask, _nested(task, state))

    def tokenize(prompt):
        ids = task.tokenizer.tokenize_lite(prompt)
        return {"token_ids": ids.to_tensor(0), "padding_mask": tf.ones_like(ids).to_tensor(0)}

    functions = {"next_token": trace(next_token, {**PACKED, **state_specs(task)})}
    if hasattr(task.tokenizer, "tokenize_lite"):
        functions["tokenize"] = trace(tokenize, PROMPT)
    return functions


def lite_requests(task):
    """Return requests (signature, dict of arrays) that test whether a `.tflite` runs."""
    tokens = {name: np.ones([2, 3], "int32") for name in PACKED}
    requests = [("next_token", tokens | initial_state(task, rows=2, length=4))]
    if hasattr(task.tokenizer, "tokenize_lite"):
        requests.append(("tokenize", {"prompt": np.array([b"a", b"two words"])}))
    return requests


class GenerationSignatures(TextSignatures):
    """The signatures of a task that continues prompts."""

    answers_in_lite = False

    def texts(self):
        super().texts()
        return PROMPT

    def functions(self):
        return trace_all(self.task)

    def defaults(self):
        return defaults(self.task)

    def requests(self, batch_sizes):
        return warmup_requests(self.task)

    def lite_functions(self):
        yield trace_lite(self.task)

    def lite_requests(self):
        return lite_requests(self.task)
