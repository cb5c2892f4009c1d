"""OpenAI's REST API for embeddings and completions, over exported models.

    GET  /v1/models        the served models
    POST /v1/embeddings    of a model whose answer has `embedding`, such as a `FeatureExtractor`'s
    POST /v1/completions   of a causal language model; with `"stream": true` as server-sent events

Fields whose effect a model does not have are refused, not passed over. Defaults are OpenAI's: 16
tokens at temperature 1. `prompt` and `input` are strings, not tokens.

Source: https://platform.openai.com/docs/api-reference, "Embeddings" and "Completions (legacy)".
"""

import base64
import json
import time
import uuid

import numpy as np

from keras_lm.generation.options import FRESH_SEED, OPTIONS
from keras_lm.serving import rest_json
from keras_lm.serving.errors import ServingError, StatusCode, invalid
from keras_lm.serving.inference import DEFAULT_SIGNATURE

# Fields of a request → our options, None for the same name.
COMPLETION = {"max_tokens": "max_new_tokens", "temperature": None, "top_p": None, "seed": None}
COMPLETION |= dict.fromkeys(("top_k", "repetition_penalty", "no_repeat_ngram_size"))
DEFAULTS = {"max_tokens": 16, "temperature": 1.0}
UNSUPPORTED = {  # a field → the values that ask for nothing
    "best_of": (None, 1),
    "frequency_penalty": (None, 0),
    "logit_bias": (None, {}),
    "logprobs": (None,),
    "presence_penalty": (None, 0),
    "suffix": (None, ""),
}
IGNORED = ("model", "user")
MOST_CHOICES = 128  # for each prompt


def model_name(document, names):
    """Return the name of the model that a request is for; the only one if it names none."""
    name = document.get("model")
    if name is None and len(names) == 1:
        return names[0]
    if not isinstance(name, str) or not name:
        raise invalid(f"model={name!r}: pass one of {sorted(names)}.")
    return name


def write_models(names):
    """Return the body of the list of models."""
    return dump({"object": "list", "data": [{"id": name, "object": "model"} for name in names]})


def write_error(message, status):
    """Return the body of an error, as OpenAI's clients read it."""
    kind = "invalid_request_error" if status < 500 else "server_error"
    code = {401: "invalid_api_key", 404: "model_not_found"}.get(status)
    return dump({"error": {"message": message, "type": kind, "param": None, "code": code}})


def embeddings(served, document):
    """Return the body with the embeddings of one or more texts.

    Raises:
        ServingError: if the request is invalid, or the model has no embeddings.
    """
    check_fields(document, ("input", "encoding_format", "dimensions"), {"dimensions": (None,)})
    texts = strings(document, "input")
    encoding = document.get("encoding_format", "float")
    if encoding not in ("float", "base64"):
        raise invalid(f"encoding_format={encoding!r}: use 'float' or 'base64'.")
    signature = served.signature_defs.get(DEFAULT_SIGNATURE)
    if signature is None or not {"text"} == set(signature.inputs) & {"text", "prompt"}:
        raise unable("takes no texts to embed")
    if "embedding" not in signature.outputs:
        raise unable("has no embeddings: export a FeatureExtractor or a SentenceEncoder")
    if has_several_vectors(signature):
        raise unable(
            "has several vectors for a text, such as one for each token, and an embedding is one: "
            "ask it by :predict, or rerank documents with it"
        )
    outputs = served.run(DEFAULT_SIGNATURE, {"text": to_bytes(texts)}, ["embedding"])["embedding"]
    if encoding == "base64":
        vectors = [base64.b64encode(row.astype("<f4").tobytes()).decode() for row in outputs]
    else:
        vectors = outputs.tolist()
    data = [
        {"object": "embedding", "index": i, "embedding": vector} for i, vector in enumerate(vectors)
    ]
    number = _number_of_tokens(served, texts)
    usage = {"prompt_tokens": number, "total_tokens": number}
    return dump({"object": "list", "data": data, "model": document.get("model"), "usage": usage})


def has_several_vectors(signature):
    """Return whether the `embedding` of a signature is more than one vector for a text."""
    return len(signature.outputs["embedding"].tensor_shape.dim) > 2


def completions(served, document):
    """Return the body with the continuations of one or more prompts.

    Raises:
        ServingError: if the request is invalid, or the model cannot continue a prompt.
    """
    prompts, choices, inputs = _completion_inputs(document)
    if not {"generate", "next_token"} <= served.signature_defs.keys():
        raise unable("continues no prompts: export a CausalLM")
    if "stop" not in served.signature_defs["generate"].inputs:
        raise unable(
            "is a .tflite, which cannot follow all options of this call: ask its signature "
            "generate by :predict, or export the CausalLM as a SavedModel"
        )
    rows = [prompt for prompt in prompts for _ in range(choices)]
    served.check_rows(len(rows))
    if inputs.get("seed", FRESH_SEED) != FRESH_SEED:  # a seed each, or all choices are the same
        inputs["seed"] = np.tile(int(inputs["seed"]) + np.arange(choices), len(prompts))
    with np.errstate(over="ignore"):  # 1e300 is infinite as float32, which the signature refuses
        arrays = {
            name: np.broadcast_to(np.asarray(value, OPTIONS[name].dtype), [len(rows)])
            for name, value in inputs.items()
            if name in OPTIONS
        }
    arrays["stop"] = np.broadcast_to(
        to_bytes(inputs["stop"])[None], [len(rows), len(inputs["stop"])]
    )
    written = served.run("generate", {"prompt": to_bytes(rows)} | arrays)
    texts = [text.decode("utf-8", "replace") for text in written["text"].tolist()]
    new, most = written["num_tokens"].tolist(), inputs["max_new_tokens"]
    shown = rows if document.get("echo") else [""] * len(rows)
    number = int(written["num_prompt_tokens"][::choices].sum())
    answer = _completion(document) | {
        "choices": [
            _choice(i, start + text, "length" if tokens >= most else "stop")
            for i, (start, text, tokens) in enumerate(zip(shown, texts, new, strict=True))
        ],
        "usage": {
            "prompt_tokens": number,
            "completion_tokens": sum(new),
            "total_tokens": number + sum(new),
        },
    }
    return dump(answer)


def stream_request(document):
    """Return the request of `SavedModel.stream` for a request of completions with `stream`.

    Raises:
        ServingError: if the request is invalid.
    """
    prompts, choices, inputs = _completion_inputs(document)
    if len(prompts) > 1 or choices > 1:
        raise invalid("stream: pass one prompt, and n=1.")
    if document.get("echo"):
        raise invalid("stream: the prompt is not repeated, so leave echo out.")
    inputs["stop"] = [text for text in inputs["stop"] if text]
    return {"prompt": prompts[0]} | inputs


def event_writer(document):
    """Return a function from an event of `SavedModel.stream`, or an error, to what is sent."""
    start, most = _completion(document), document.get("max_tokens")
    most = DEFAULTS["max_tokens"] if most is None else most

    def write(event):
        if isinstance(event, ServingError):
            return f"data: {write_error(event.message, 500).decode()}\n\n"
        if "done" not in event:
            return _event(start | {"choices": [_choice(0, event["text"], None)]})
        reason = "length" if event["num_tokens"] >= most else "stop"
        return _event(start | {"choices": [_choice(0, "", reason)]}) + "data: [DONE]\n\n"

    return write


def _completion_inputs(document):
    """Return prompts, the number of choices, and our options, all checked."""
    known = ("prompt", "n", "stop", "stream", "echo", *COMPLETION)
    check_fields(document, known, UNSUPPORTED)
    prompts, choices = strings(document, "prompt"), document.get("n")
    choices = 1 if choices is None else choices
    if type(choices) is not int or not 1 <= choices <= MOST_CHOICES:
        raise invalid(f"n={choices!r}: pass a number from 1 to {MOST_CHOICES}.")
    stop = document.get("stop")
    stop = [] if stop is None else [stop] if isinstance(stop, str) else stop
    if not isinstance(stop, list) or not all(isinstance(text, str) for text in stop):
        raise invalid(f"stop={stop!r}: pass a string or a list of strings.")
    for field in ("stream", "echo"):
        if not isinstance(document.get(field), (bool, type(None))):
            raise invalid(f"{field}={document[field]!r}: pass true or false.")
    inputs = {"stop": stop or [""]}
    for field, name in COMPLETION.items():
        value = document.get(field)
        value = DEFAULTS.get(field) if value is None else value
        if value is None:
            continue
        option = OPTIONS[name or field]
        whole = np.dtype(option.dtype).kind == "i"
        if type(value) not in ((int,) if whole else (int, float)):
            raise invalid(f"{field}={value!r}: pass a {'whole ' * whole}number.")
        if whole and abs(value) > np.iinfo(option.dtype).max:
            raise invalid(f"{field}={value}: pass a smaller number.")
        if not option.allowed(np.asarray(value)):
            raise invalid(option.message(field, value))
        inputs[name or field] = value
    return prompts, choices, inputs


def check_fields(document, known, unsupported):
    """Raise a `ServingError` for a field of a request that would have no effect."""
    unknown = document.keys() - {*known, *unsupported, *IGNORED}
    if unknown:
        raise invalid(f"{sorted(unknown)} are not supported: leave them out.")
    for field, values in unsupported.items():
        if field in document and document[field] not in values:
            raise invalid(f"{field}={document[field]!r} is not supported: leave it out.")


def strings(document, field):
    """Return a field, a string or a list of them, as a list."""
    value = document.get(field)
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise invalid(f"{field}: pass a string or a list of strings; tokens are not supported.")
    if not texts:
        raise invalid(f"{field} is an empty list: pass a text.")
    return texts


def to_bytes(texts):
    """Return texts as an array of UTF-8, as signatures take them."""
    return np.array([rest_json.encode(text) for text in texts], object)


def _number_of_tokens(served, texts):
    """Return how many tokens the model reads, special ones with them; 0 if an export cannot say."""
    if "tokenize" not in served.signature_defs:
        return 0
    tokens = served.run("tokenize", {"text": to_bytes(texts)}, ["tokens"])["tokens"]
    return int(np.sum(tokens != b""))


def _completion(document):
    identifier = f"cmpl-{uuid.uuid4().hex}"
    return {
        "id": identifier,
        "object": "text_completion",
        "created": int(time.time()),
        "model": document.get("model"),
    }


def _choice(index, text, reason):
    return {"text": text, "index": index, "logprobs": None, "finish_reason": reason}


def unable(what):
    """Return the error of a model that cannot answer a request."""
    return ServingError(StatusCode.INVALID_ARGUMENT, f"This model {what}.")


def dump(document):
    """Return JSON as the body of an answer."""
    return json.dumps(document).encode()


def _event(document):
    return f"data: {json.dumps(document)}\n\n"


ANSWERS = {"/v1/embeddings": embeddings, "/v1/completions": completions}
