"""Documents for a query, over exported models: those of a request in order, or those of a corpus.

    POST /rerank, /v1/rerank, /v2/rerank    documents of the request, by their relevance to a query
    POST /v1/search                         documents of an export's corpus, by its `search`

A reranker is a model of pairs, the query first: a `TextRegressor`, whose number is the relevance,
or a `TextClassifier` with two classes, of which the second is the relevant one; or a model with an
`embedding` of single texts, whose cosine it is then. With a signature `query`, of an encoder of
tokens (ColBERT) or of sparse queries, texts are compared as it compares them.

`{"query": …, "documents": […], "top_n": …}` is the form of Cohere and Jina; with `texts` in place
of `documents`, that of Text Embeddings Inference, whose answer is a list. As in `openai_api`,
fields that would have no effect are refused.

Source: https://docs.cohere.com/reference/rerank, https://jina.ai/reranker,
https://huggingface.github.io/text-embeddings-inference.
"""

import numpy as np

from keras_lm.serving.errors import invalid
from keras_lm.serving.inference import DEFAULT_SIGNATURE
from keras_lm.serving.openai_api import check_fields, dump, strings, to_bytes, unable

SEARCH_SIGNATURE, QUERY_SIGNATURE = "search", "query"
LOWEST = -1e4  # a similarity that no token has: JSON has no -inf
UNSUPPORTED = {  # a field → the values that ask for nothing
    "raw_scores": (None, False),
    "truncate": (None, True),  # to what the model reads
    "truncation_direction": (None, "Right", "right"),
}


def rerank(served, document):
    """Return the body with the documents of a request, the most relevant first.

    Raises:
        ServingError: if the request is invalid, or the model cannot compare texts.
    """
    known = ("query", "documents", "texts", "top_n", "return_documents", "return_text")
    check_fields(document, known, UNSUPPORTED)
    in_list = "texts" in document
    if in_list == ("documents" in document):
        raise invalid("pass the documents as documents, or as texts, and not as both.")
    query, texts = _query(document), _documents(document, "texts" if in_list else "documents")
    served.check_rows(len(texts))
    scores = _relevance(served, query, texts)
    best = np.argsort(-scores, kind="stable")[: _number(document, len(texts))].tolist()
    with_text = _flag(document, "return_text" if in_list else "return_documents")
    score_name = "score" if in_list else "relevance_score"
    results = [{"index": row, score_name: float(scores[row])} for row in best]
    if with_text:
        for result in results:
            text = texts[result["index"]]
            result |= {"text": text} if in_list else {"document": {"text": text}}
    if in_list:
        return dump(results)
    return dump({"object": "list", "model": document.get("model"), "results": results})


def search(served, document):
    """Return the body with the nearest documents of an export's corpus, for one or more queries.

    Raises:
        ServingError: if the request is invalid, or the export has no corpus.
    """
    check_fields(document, ("query", "top_n"), {})
    queries = strings(document, "query")
    signature = served.signature_defs.get(SEARCH_SIGNATURE)
    outputs = ("rows", "documents", "scores")
    if signature is None or set(signature.inputs) != {"text"}:
        raise unable("has no corpus to search: export a SentenceEncoder with corpus=documents")
    if set(signature.outputs) != set(outputs):
        raise unable("has a signature search of another kind")
    hits = served.run(SEARCH_SIGNATURE, {"text": to_bytes(queries)})
    most = hits["rows"].shape[1]
    number = _number(document, most)
    if number > most:
        raise invalid(f"top_n={number}: this export returns {most} documents, its k.")
    columns = [hits[name][:, :number].tolist() for name in outputs]
    data = [
        {"index": index, "results": [_hit(*hit) for hit in zip(*lists)]}
        for index, lists in enumerate(zip(*columns))
    ]
    return dump({"object": "list", "model": document.get("model"), "data": data})


def _hit(row, text, score):
    return {"index": row, "score": score, "document": {"text": text.decode("utf-8", "replace")}}


def _relevance(served, query, texts):
    """Return the relevance of each text to a query, (documents,) float32."""
    signature = served.signature_defs.get(DEFAULT_SIGNATURE)
    inputs = set() if signature is None else set(signature.inputs)
    if inputs == {"text", "text_pair"} and "scores" in signature.outputs:
        pairs = {"text": to_bytes([query] * len(texts)), "text_pair": to_bytes(texts)}
        scores = served.run(DEFAULT_SIGNATURE, pairs, ["scores"])["scores"]
        if scores.ndim == 1:
            return scores
        if scores.ndim == 2 and scores.shape[1] == 2:
            return scores[:, 1]
        raise unable("does not have two classes, of which the second means relevant")
    asks = served.signature_defs.get(QUERY_SIGNATURE)
    if inputs == {"text"} and asks is not None and "embedding" in asks.outputs:
        return _of_roles(served, query, texts)
    if inputs == {"text"} and "embedding" in signature.outputs:
        rows = {"text": to_bytes([query, *texts])}
        vectors = served.run(DEFAULT_SIGNATURE, rows, ["embedding"])["embedding"]
        if vectors.ndim == 2:
            vectors = vectors.astype(np.float32)
            lengths = np.linalg.norm(vectors, axis=1)
            return vectors[1:] @ vectors[0] / np.maximum(lengths[1:] * lengths[0], 1e-12)
    raise unable(
        "does not compare texts: export an encoder, or a regressor or classifier with "
        "text_pair=True"
    )


def _of_roles(served, query, texts):
    """Return the scores of an encoder that reads queries in another way than documents.

    Vectors of tokens are compared by MaxSim, one for each text by its dot product.
    """
    asked = served.run(QUERY_SIGNATURE, {"text": to_bytes([query])}, ["embedding"])
    told = served.run(DEFAULT_SIGNATURE, {"text": to_bytes(texts)}, ["embedding"])
    vectors, documents = (part["embedding"].astype(np.float32) for part in (asked, told))
    if documents.ndim == 2:
        return documents @ vectors[0]
    similar = documents @ vectors[0].T  # (documents, their tokens, the query's)
    is_token = np.any(documents != 0, axis=-1, keepdims=True)
    best = np.where(is_token, similar, LOWEST).max(axis=1)
    return best[:, np.any(vectors[0] != 0, axis=-1)].sum(axis=1)


def _query(document):
    query = document.get("query")
    if not isinstance(query, str):
        raise invalid(f"query={query!r}: pass a string.")
    return query


def _documents(document, field):
    values = document[field]
    if isinstance(values, list):
        values = [
            value["text"] if isinstance(value, dict) and value.keys() == {"text"} else value
            for value in values
        ]
    if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
        raise invalid(f'{field}: pass a list of strings, or of objects {{"text": …}}.')
    if not values:
        raise invalid(f"{field} is an empty list: pass a document.")
    return values


def _number(document, default):
    number = document.get("top_n")
    if number is None:
        return default
    if type(number) is not int or number < 1:
        raise invalid(f"top_n={number!r}: pass a whole number from 1.")
    return number


def _flag(document, field):
    value = document.get(field)
    if not isinstance(value, (bool, type(None))):
        raise invalid(f"{field}={value!r}: pass true or false.")
    return bool(value)


ANSWERS = dict.fromkeys(("/rerank", "/v1/rerank", "/v2/rerank"), rerank) | {"/v1/search": search}
