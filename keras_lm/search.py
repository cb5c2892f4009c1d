"""Search by meaning: texts, their vectors, and which are nearest to a question.

Shapes: N documents, B queries, K hits, D width.
"""

import json
from collections.abc import Sequence
from typing import Any, Self

import numpy as np

from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.files import as_local, as_path, replacing, require_free
from keras_lm.utils.optional_dependencies import require
from keras_lm.utils.user_arguments import check_whole, list_of_texts

__all__ = ["ApproximateIndex", "Index"]

MOST_DOCUMENTS = 200_000  # that are compared one by one; 300 MB of 384 numbers each
AT_ONCE = 64  # queries that are compared together
DOCUMENTS, VECTORS, GRAPH = "documents.json", "vectors.npy", "graph.usearch"


class Index:
    """Documents and their vectors, compared with a query one by one: no approximation.

    Args:
        encoder: `keras_lm.tasks.SentenceEncoder`, whose vectors are compared by cosines, or by dot
            products if its `similarity` says so; or a `SparseEncoder`, by dot products. It puts its
            prompt `"document"` before documents and `"query"` before queries, if it has them.
        documents: list of str, N of them.
        vectors: float array (N, D) that the encoder has made of them before; None to make them now.
        batch_size, verbose: see `SentenceEncoder.embed`.

    Raises:
        ValueError: if there are no documents or more than 200,000, one is not a string,
            `vectors` has other rows, or the encoder has a vector for each token.

    Example:

        index = keras_lm.search.Index(encoder, answers)
        index.search(["How do I open an account?"], k=3)["documents"]  # (1, 3)
    """

    most: int | None = MOST_DOCUMENTS

    def __init__(
        self,
        encoder: Any,
        documents: Sequence[str],
        vectors: np.ndarray | None = None,
        batch_size: int = 32,
        verbose: int | str = "auto",
    ):
        if not hasattr(encoder, "prompts"):
            raise ValueError(
                f"encoder is of the class {type(encoder).__name__}: pass a SentenceEncoder, which "
                "from_preset makes of the same source, or a SparseEncoder."
            )
        if _similarity(encoder) == "max_sim":
            raise ValueError(
                f"encoder is a {type(encoder).__name__}, which has a vector for each token, and an "
                "index compares one for each text: call encoder.score(queries, documents)."
            )
        self.encoder, self.documents = encoder, _documents(documents, self.most)
        if vectors is None:
            vectors = self.embed(self.documents, "document", batch_size, verbose)
        vectors = np.asarray(vectors, "float32")
        if not np.isfinite(vectors).all():
            raise ValueError("vectors has numbers that are not finite: compute them again.")
        if vectors.ndim != 2 or len(vectors) != len(self.documents):
            raise ValueError(
                f"vectors has the shape {vectors.shape}: pass a row for each of the "
                f"{len(self.documents)} documents."
            )
        self.vectors = self._scaled(vectors)

    def search(
        self, queries: Sequence[str], k: int = 10, batch_size: int = 32, verbose: int | str = 0
    ) -> dict[str, np.ndarray]:
        """Return the nearest documents to queries, the best first.

        Args:
            queries: list of str, B of them.
            k: int, K. How many documents; all of them, if there are fewer.
            batch_size, verbose: see `SentenceEncoder.embed`.

        Returns:
            Dict of `rows`, int32, the documents' numbers from 0; `documents`, str; and `scores`,
            float32, their cosines or dot products: (B, K) each.
        """
        check_whole("k", k, 1)
        vectors = self.embed(queries, "query", batch_size, verbose)
        rows, scores = self.nearest(vectors, k)
        texts = np.array([[self.documents[row] for row in hits] for hits in rows], object)
        return {"rows": rows, "documents": texts, "scores": scores}

    def nearest(self, vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        """Return rows int32 and scores float32, (B, K) each, for what `embed` returns, (B, D)."""
        self.check_width(vectors.shape[1])
        k = min(k, len(self.documents))
        parts = []
        for start in range(0, len(vectors), AT_ONCE):
            scores = vectors[start : start + AT_ONCE] @ self.vectors.T  # (B, N)
            rows = _best(scores, k)
            best = np.take_along_axis(scores, rows, axis=1)
            order = np.argsort(-best, axis=1, kind="stable")  # of equal ones, the first
            parts.append([np.take_along_axis(x, order, axis=1) for x in (rows, best)])
        rows, scores = (np.concatenate(part) for part in zip(*parts, strict=True))
        return rows.astype("int32"), scores

    def check_width(self, width: int) -> None:
        """Raise a ValueError if the encoder's vectors have another width than the documents'."""
        if width != self.vectors.shape[1]:
            raise ValueError(
                f"encoder makes vectors of {width} numbers, and those of the documents have "
                f"{self.vectors.shape[1]}: pass the encoder that made them, or compute them again."
            )

    def nearest_pairs(self, k: int = 100) -> tuple[np.ndarray, np.ndarray]:
        """Return the pairs of documents that resemble each other, the most similar first.

        Args:
            k: int. How many of the nearest others a document is paired with.

        Returns:
            Rows int32 (P, 2), the lower one first, and scores float32 (P,).

        Example:

            rows, scores = index.nearest_pairs(k=3)
            print(scores[0], [index.documents[row] for row in rows[0]])
        """
        check_whole("k", k, 1)
        hits, scores = self.nearest(self.vectors, k + 1)  # one of them is the document itself
        own = np.arange(len(hits))[:, np.newaxis]
        is_other = hits != own
        is_other &= np.cumsum(is_other, axis=1) <= k
        pairs = np.stack(np.broadcast_arrays(own, hits), axis=-1)[is_other]
        pairs, places = np.unique(np.sort(pairs, axis=1), axis=0, return_index=True)
        scores = scores[is_other][places]
        order = np.argsort(-scores, kind="stable")
        return pairs[order].astype("int32"), scores[order]

    def save(self, folder: PathLike) -> None:
        """Write documents and vectors to a folder, or an address; an index there is replaced.

        Raises:
            FileExistsError: if the folder has other files.
        """
        folder = as_path(folder)
        require_free(folder, "is not an index", marker=DOCUMENTS)
        with replacing(folder) as new:
            new.mkdir()
            np.save(new / VECTORS, self.vectors)
            text = json.dumps(self.documents, ensure_ascii=False)
            (new / DOCUMENTS).write_text(text, encoding="utf-8", errors="surrogatepass")
            self._write_more(new)

    def _write_more(self, folder):
        """Write what a subclass has beside documents and vectors."""

    @classmethod
    def load(cls, folder: PathLike, encoder: Any, **options: Any) -> Self:
        """Return what `save` wrote, for an encoder with the same weights.

        Args:
            folder: what `save` was given.
            encoder: see the class.
            **options: further arguments of the class.
        """
        folder = as_local(as_path(folder))
        text = (folder / DOCUMENTS).read_text(encoding="utf-8", errors="surrogatepass")
        return cls(encoder, json.loads(text), np.load(folder / VECTORS), **options)

    def embed(
        self, texts: Sequence[str], role: str, batch_size: int = 32, verbose: int | str = 0
    ) -> np.ndarray:
        """Return vectors (B, D) of texts in a role, `"query"` or `"document"`.

        They have length 1 if they are compared by cosines.
        """
        texts, name = list_of_texts(texts, "texts"), prompt_for(self.encoder, role)
        vectors = self.encoder.embed(texts, batch_size, verbose, prompt_name=name)["embedding"]
        return self._scaled(vectors)

    def _scaled(self, vectors):
        return vectors if _similarity(self.encoder) == "dot" else _normalized(vectors)


class ApproximateIndex(Index):
    """An `Index` of any number of documents, which finds nearly all of the nearest (HNSW).

    A graph of usearch's proposes candidates for each query, which are then compared as `Index`
    compares all. It takes about 0.5 ms a document to build on one core, and pays off from some
    100,000 documents. The package usearch is in the extra `search`.

    Args:
        candidates: int. How many documents are compared with each query, at least K. More of them
            find more of the nearest, and take longer.
        graph: path of the graph in a folder that `save` has written; None to build it now.
        Other arguments: as `Index`.

    Raises:
        ImportError: if usearch is not installed.
        ValueError: as `Index` does, or if `candidates` is less than 1 or the graph has another
            number of documents.

    Example:

        index = keras_lm.search.ApproximateIndex(encoder, articles, candidates=500)
        index.search(["How do I open an account?"], k=3)["documents"]  # (1, 3)

    Source: Malkov and Yashunin 2016, https://arxiv.org/abs/1603.09320.
    """

    most = None

    def __init__(
        self,
        encoder: Any,
        documents: Sequence[str],
        vectors: np.ndarray | None = None,
        batch_size: int = 32,
        verbose: int | str = "auto",
        candidates: int = 200,
        graph: PathLike | None = None,
    ):
        if _similarity(encoder) != "cosine":
            raise ValueError(
                f"encoder is a {type(encoder).__name__} with similarity='dot', and an "
                "ApproximateIndex compares cosines: use an Index, or put the terms of a "
                "SparseEncoder's expand into a search engine."
            )
        usearch = require("usearch.index", "An ApproximateIndex")
        self.candidates: int = check_whole("candidates", candidates, 1)
        super().__init__(encoder, documents, vectors, batch_size, verbose)
        self._graph = usearch.Index(ndim=self.vectors.shape[1], metric="cos", dtype="f16")
        if graph is None:
            self._graph.add(np.arange(len(self.documents)), self.vectors)
        else:
            self._graph.load(str(graph))
        if len(self._graph) != len(self.documents):
            raise ValueError(
                f"graph={str(graph)!r} has {len(self._graph)} documents, and there are "
                f"{len(self.documents)}: build it again, graph=None."
            )

    def nearest(self, vectors: np.ndarray, k: int) -> tuple[np.ndarray, np.ndarray]:
        self.check_width(vectors.shape[1])
        k = min(k, len(self.documents))
        number = min(max(self.candidates, k), len(self.documents))
        parts = []
        for vector in vectors:
            rows = np.sort(self._graph.search(vector, number).keys.astype("int64"))
            scores = self.vectors[rows] @ vector
            order = np.argsort(-scores, kind="stable")[:k]  # of equal ones, the first
            parts.append([rows[order], scores[order]])
        rows, scores = (np.stack(part) for part in zip(*parts, strict=True))
        return rows.astype("int32"), scores

    def _write_more(self, folder):
        self._graph.save(str(folder / GRAPH))

    @classmethod
    def load(cls, folder: PathLike, encoder: Any, **options: Any) -> Self:
        folder = as_local(as_path(folder))
        graph = folder / GRAPH
        options["graph"] = graph if graph.is_file() else None  # an `Index` has none
        return super().load(folder, encoder, **options)


def prompt_for(encoder: Any, role: str) -> str | None:
    """Return the `prompt_name` of texts in a role, None if they are read as all others.

    Args:
        encoder: see `Index`.
        role: `"query"` or `"document"`.
    """
    return role if role in encoder.prompts or role in getattr(encoder, "roles", ()) else None


def _similarity(encoder):
    return getattr(encoder, "similarity", "cosine")


def _documents(documents, most):
    """Return documents as a list of str; ValueError if there are none, or too many."""
    documents = list_of_texts(documents, "documents")
    if not documents:
        raise ValueError("documents has no texts: pass one or more.")
    if most is not None and len(documents) > most:
        raise ValueError(
            f"documents has {len(documents)} texts: pass at most {most:,}, which are compared one "
            "by one, or use keras_lm.search.ApproximateIndex."
        )
    for row, text in enumerate(documents):
        if not isinstance(text, str):
            raise ValueError(f"documents[{row}] is {text!r:.60}, and not a string.")
    return documents


def _best(scores, k):
    """Return the columns of the k highest scores of each row (B, N), in order: (B, K).

    Of equal ones, the first: `np.argpartition` would take any.
    """
    last = np.partition(scores, -k, axis=1)[:, -k, np.newaxis]
    above, equal = scores > last, scores == last
    wanted = k - above.sum(axis=1, keepdims=True)
    chosen = above | (equal & (np.cumsum(equal, axis=1) <= wanted))
    return np.nonzero(chosen)[1].reshape(-1, k)


def _normalized(vectors):
    lengths = np.linalg.norm(vectors, axis=1, keepdims=True)
    return vectors / np.maximum(lengths, 1e-12)
