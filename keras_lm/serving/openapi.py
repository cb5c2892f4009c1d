"""What the server can be asked, from the models' signatures: as an OpenAPI document, and a page.

The page has no script and fetches nothing, so that it works without a network.

Source: https://spec.openapis.org/oas/v3.1.0.
"""

import html
import json

import tensorflow as tf

from keras_lm.generation.options import OPTIONS
from keras_lm.serving.errors import ServingError
from keras_lm.serving.inference import DEFAULT_SIGNATURE
from keras_lm.serving.open_inference import DATATYPES
from keras_lm.serving.openai_api import COMPLETION, DEFAULTS, has_several_vectors
from keras_lm.version import __version__

ERROR = {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
OPENAI_ERROR = {
    "type": "object",
    "properties": {
        "error": {
            "type": "object",
            "properties": {
                "message": {"type": "string"},
                "type": {"type": "string"},
                "param": {"type": "null"},
                "code": {"type": ["string", "null"]},
            },
        }
    },
}
STRINGS = {
    "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}, "minItems": 1}]
}
STYLE = """\
body { font: 16px/1.5 system-ui, sans-serif; max-width: 60rem; margin: 2rem auto; padding: 0 1rem }
summary { cursor: pointer; padding: .4rem 0 } code { font-weight: 600 }
pre { background: #f3f3f3; color: #222; padding: .8rem; overflow: auto; font-size: .85rem }
"""


def document(models):
    """Return the document as a dict that JSON can hold; `models` is the server's `Models`."""
    paths = {"/v1/models": {"get": _get("The served models, in OpenAI's form")}}
    signatures_of = {}
    for name in models.names:
        try:
            with models.lease(name) as served:
                signatures_of[name] = dict(served.signature_defs)
        except ServingError:  # it has just gone, or has no version that answers
            continue
    for name, signatures in signatures_of.items():
        paths |= _paths_of_model(name, signatures)
        paths |= _paths_of_inference(name)
    paths["/rerank"] = {"post": _rerank()}
    if any("search" in defs for defs in signatures_of.values()):
        paths["/v1/search"] = {"post": _search()}
    if any(
        "embedding" in signature.outputs and not has_several_vectors(signature)
        for defs in signatures_of.values()
        for signature in defs.values()
    ):
        paths["/v1/embeddings"] = {"post": _embeddings()}
    if any({"generate", "next_token"} <= defs.keys() for defs in signatures_of.values()):
        paths["/v1/completions"] = {"post": _completions()}
    probes = {
        "/healthz": "200 if the server lives",
        "/readyz": "200 if all models answer, else 503",
        "/metrics": "Measures for Prometheus",
        "/v2/health/live": "200 if the server lives",
        "/v2/health/ready": "200 if all models answer, else 503",
    }
    paths |= {path: {"get": _get(text, "text/plain")} for path, text in probes.items()}
    return {
        "openapi": "3.1.0",
        "info": {"title": "keras-lm serve", "version": __version__},
        "paths": paths,
        "components": {"schemas": {"Error": ERROR, "OpenAIError": OPENAI_ERROR}},
    }


def page(document):
    """Return the document as HTML."""
    parts = []
    for path, methods in document["paths"].items():
        for method, operation in methods.items():
            text = html.escape(json.dumps(operation, indent=2, ensure_ascii=False))
            title = f"<code>{method.upper()} {html.escape(path)}</code>"
            summary = html.escape(operation["summary"])
            parts.append(
                f"<details><summary>{title} {summary}</summary><pre>{text}</pre></details>"
            )
    return (
        '<!doctype html><html lang="en"><meta charset="utf-8">'
        '<meta http-equiv="Content-Security-Policy" content="default-src \'none\'; '
        "style-src 'unsafe-inline'\">"
        f"<title>keras-lm serve</title><style>{STYLE}</style><h1>What this server answers</h1>"
        f'<p>As <a href="openapi.json">OpenAPI</a>, for generators of clients.</p>{"".join(parts)}'
    )


def _paths_of_model(name, signatures):
    place = f"/v1/models/{name}"
    paths = {
        place: {"get": _get(f"State of the versions of {name}")},
        f"{place}/metadata": {"get": _get(f"Signatures of {name}")},
    }
    for verb, method in {"classify": "classify", "regress": "regress"}.items():
        if any(signature.method_name.endswith(method) for signature in signatures.values()):
            examples = {"type": "array", "items": {"type": "object"}}
            body = {"type": "object", "properties": {"examples": examples}}
            paths[f"{place}:{verb}"] = {"post": _post(f"{verb.title()} tf.Examples", body)}
    bodies = [
        _predict_body(signature_name, signature, signature_name == DEFAULT_SIGNATURE)
        for signature_name, signature in signatures.items()
        if signature.inputs and not signature.method_name.endswith(("classify", "regress"))
    ]
    if bodies:
        answer = {"predictions": {"type": "array"}, "outputs": {}}
        operation = _post(f"Ask {name}", {"anyOf": bodies}, {"properties": answer})
        paths[f"{place}:predict"] = {"post": operation}
    if {"generate", "next_token"} <= signatures.keys():
        fields = {"prompt": {"type": "string"}} | {n: _option(n) for n in OPTIONS}
        body = {"type": "object", "properties": fields, "required": ["prompt"]}
        operation = _post("Text as it is written, as server-sent events", body, {})
        paths[f"{place}:stream"] = {"post": operation}
    return paths


def _paths_of_inference(name):
    """Return the paths of the Open Inference Protocol about a model."""
    place = f"/v2/models/{name}"
    tensor = {
        "type": "object",
        "properties": {
            "name": {"type": "string"},
            "datatype": {"enum": sorted(DATATYPES.values())},
            "shape": {"type": "array", "items": {"type": "integer"}},
            "parameters": {"type": "object"},
            "data": {"type": "array"},
        },
    }
    fields = {"id": {"type": "string"}, "parameters": {"type": "object"}}
    fields |= {key: {"type": "array", "items": tensor} for key in ("inputs", "outputs")}
    body = {"type": "object", "properties": fields, "required": ["inputs"]}
    return {
        place: {"get": _get(f"Inputs and outputs of {name}")},
        f"{place}/ready": {"get": _get(f"200 if {name} answers, else 503")},
        f"{place}/infer": {"post": _post(f"Ask {name} by the Open Inference Protocol", body)},
    }


def _rerank():
    texts = {"type": "array", "items": {"type": "string"}, "minItems": 1}
    fields = {"model": {"type": "string"}, "query": {"type": "string"}, "documents": texts}
    fields |= {"top_n": {"type": "integer", "minimum": 1}, "return_documents": {"type": "boolean"}}
    body = {"type": "object", "properties": fields, "required": ["query", "documents"]}
    return _post("Documents by their relevance to a query", body, None, "OpenAIError")


def _search():
    fields = {"model": {"type": "string"}, "query": STRINGS}
    fields["top_n"] = {"type": "integer", "minimum": 1}
    body = {"type": "object", "properties": fields, "required": ["query"]}
    return _post("The nearest documents of a corpus", body, None, "OpenAIError")


def _predict_body(name, signature, is_default):
    columns = {alias: _schema(info) for alias, info in sorted(signature.inputs.items())}
    required = sorted(set(columns) - set(signature.defaults))
    row = {alias: column["items"] for alias, column in columns.items() if "items" in column}
    fields = {"signature_name": {"const": name, **({"default": name} if is_default else {})}}
    fields["inputs"] = {"type": "object", "properties": columns, "required": required}
    if len(columns) == 1:  # a plain value, or an object
        (column,) = columns.values()
        fields["inputs"] = {"anyOf": [column, fields["inputs"]]}
    if len(row) == len(columns):
        rows = {"type": "object", "properties": row, "required": required}
        rows = {"anyOf": [*row.values(), rows]} if len(row) == 1 else rows
        fields["instances"] = {"type": "array", "items": rows}
    body = {"type": "object", "title": name, "properties": fields}
    return body if is_default else body | {"required": ["signature_name"]}


def _schema(info):
    """Return the schema of an array of a signature: arrays of numbers, strings or booleans."""
    dtype = tf.as_dtype(info.dtype)
    kind = "boolean" if dtype == tf.bool else "integer" if dtype.is_integer else "number"
    schema = {"type": "string" if dtype == tf.string else kind}
    for size in reversed([dim.size for dim in info.tensor_shape.dim]):
        schema = {"type": "array", "items": schema}
        if size >= 0:
            schema |= {"minItems": size, "maxItems": size}
    return schema


def _option(name):
    kind = OPTIONS[name].dtype
    return {"type": "integer" if "int" in str(kind) else "number"}


def _embeddings():
    fields = {"model": {"type": "string"}, "input": STRINGS}
    fields["encoding_format"] = {"enum": ["float", "base64"], "default": "float"}
    body = {"type": "object", "properties": fields, "required": ["input"]}
    return _post("Vectors of texts, in OpenAI's form", body, None, "OpenAIError")


def _completions():
    fields = {"model": {"type": "string"}, "prompt": STRINGS, "stop": STRINGS}
    fields |= {"n": {"type": "integer"}, "stream": {"type": "boolean"}, "echo": {"type": "boolean"}}
    for field, name in COMPLETION.items():
        fields[field] = _option(name or field)
        if field in DEFAULTS:
            fields[field]["default"] = DEFAULTS[field]
    body = {"type": "object", "properties": fields, "required": ["prompt"]}
    return _post("Continuations of prompts, in OpenAI's form", body, None, "OpenAIError")


def _get(summary, content="application/json"):
    responses = {"200": {"description": summary, "content": {content: {}}}}
    return {"summary": summary, "responses": responses}


def _post(summary, body, answer=None, error="Error"):
    schema = {"type": "object"} | (answer or {})
    failed = {"$ref": f"#/components/schemas/{error}"}
    return {
        "summary": summary,
        "requestBody": {"required": True, "content": {"application/json": {"schema": body}}},
        "responses": {
            "200": {
                "description": "The answer",
                "content": {"application/json": {"schema": schema}},
            },
            "default": {
                "description": "An error",
                "content": {"application/json": {"schema": failed}},
            },
        },
    }
