"""The vectors of words in their texts, at each layer.

Shapes: B batch, S sequence, N words of all texts, D width of a layer.
"""

import dataclasses
from collections.abc import Sequence
from typing import Any, Self

import keras
import numpy as np
import numpy.typing as npt

from keras_lm.packers import Words
from keras_lm.tasks import FeatureExtractor
from keras_lm.tensorflow import tf
from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.utils.user_arguments import check_batch_size, iterable


@dataclasses.dataclass(frozen=True)
class WordVectors:
    """Words in their texts, and a vector for each at every layer.

    Attributes:
        words: N str, as they are in the texts.
        texts: (N,) int, the number of each word's text.
        places: (N,) int, the number of the word in its text.
        layers: list of (N, D) float32: the embedding's output, then that of each block.
    """

    words: list[str]
    texts: np.ndarray
    places: np.ndarray
    layers: list[np.ndarray]

    def where(self, chosen: npt.ArrayLike) -> Self:
        """Return the words that an array (N,) of bool chooses, or of int, in its order."""
        chosen = np.asarray(chosen)
        index = np.flatnonzero(chosen) if chosen.dtype == bool else chosen
        return WordVectors(
            [self.words[i] for i in index],
            self.texts[index],
            self.places[index],
            [layer[index] for layer in self.layers],
        )


def word_vectors(
    model: keras.Model,
    texts: Sequence[Any],
    tokenizer: Tokenizer | None = None,
    splitter: str = "conll",
    batch_size: int = 32,
) -> WordVectors:
    """Return the vectors of all words of texts at every layer: `WordVectors`.

    A word's vector is the mean of those of its pieces in its text. Words without pieces, and those
    beyond the model's length, are left out.

    Args:
        model: a task, or a backbone with `tokenizer`. It is read as a `FeatureExtractor` would.
        texts: list of str, or of lists of words.
        tokenizer: of a backbone; None for a task.
        splitter: how strings are split into words, see `keras_lm.tasks.TokenClassifier`.
        batch_size: int, texts at a time.

    Raises:
        ValueError: if there is no tokenizer, or the model reads two texts.

    Example:

        vectors = word_vectors(task, ["We sat on the bank.", "The bank lends money."])
        banks = vectors.where([word == "bank" for word in vectors.words])
        keras_lm.analysis.cosine_similarity(banks.layers[-1]).shape  # (2, 2)

    Source: the hidden states of ELMo, https://arxiv.org/abs/1802.05365, section 3.2, and BERT,
    https://arxiv.org/abs/1810.04805, section 5.3.
    """
    check_batch_size(batch_size)
    backbone = getattr(model, "backbone", model)
    # Read plainly, whatever the task is made for.
    task = FeatureExtractor(backbone, tokenizer=tokenizer or getattr(model, "tokenizer", None))
    task.require_tokenizer()
    rows = Words(splitter)
    texts = list(iterable(texts, "texts"))
    if not texts:
        raise ValueError("texts is empty: pass one or more.")
    words, numbers, places, layers = [], [], [], []
    for begin in range(0, len(texts), batch_size):
        batch_words, seen, states = _read(task, rows, texts[begin : begin + batch_size])
        words += [word.decode("utf-8", "replace") for word in batch_words.flat_values.numpy()[seen]]
        lengths = batch_words.row_lengths().numpy()
        numbers.append(begin + np.repeat(np.arange(len(lengths)), lengths)[seen])
        places.append(np.concatenate([np.arange(length) for length in lengths])[seen])
        layers.append(states)
    layers = [np.concatenate(parts) for parts in zip(*layers, strict=True)]
    return WordVectors(words, np.concatenate(numbers), np.concatenate(places), layers)


def _read(task, rows, texts):
    """Return the words, ragged (B, W), which have vectors, (N,) bool, and these, (N, D) a layer."""
    words, ids, first, last = _pieces(task, rows, texts)
    packed = task.packer.pack(text=ids)
    start, length = (part.numpy() for part in task.packer.spans(text=ids)["text"])  # (B,)
    row = np.repeat(np.arange(len(start)), words.row_lengths().numpy())  # (N,)
    first, last = (x - task.packer.cut_off(ids, length).numpy()[row] for x in (first, last))
    first = np.maximum(first, 0)  # the limit may take pieces of the words at the ends of a text
    last = np.minimum(last, length[row])
    seen = first < last
    begin = row * packed["padding_mask"].shape[1] + start[row]
    spans = list(zip((begin + first)[seen], (begin + last)[seen], strict=True))
    vectors = []
    for state in task.backbone.compute(task.backbone.select_inputs(packed))["hidden_states"]:
        flat = np.asarray(state, "float32").reshape(-1, state.shape[-1])  # (B·S, D)
        means = [flat[a:b].mean(axis=0) for a, b in spans]
        vectors.append(np.stack(means) if means else np.zeros((0, flat.shape[1]), "float32"))
    return words, seen, vectors


def _pieces(task, rows, texts):
    """Return words (B, W) and pieces (B, P), both ragged, and the pieces of each word.

    These are the first and the last + 1 of the N words of all texts, counted in their text.
    """
    if isinstance(texts[0], str):
        text = tf.constant(texts)
        words, places = rows.words(text)
        try:  # in their text, pieces may be others than those of the words alone
            ids, *ends = task.tokenizer.tokenize_with_offsets(text, unit="character")
        except NotImplementedError:
            pass
        else:
            of_pieces = [part.to_list() for part in ends]
            of_words = [places[name].to_list() for name in ("start", "end")]
            first, last = [], []
            for starts, stops, begins, finishes in zip(*of_pieces, *of_words, strict=True):
                # A piece that is only the space before a word is part of it, as in SentencePiece.
                first.append(
                    np.maximum(
                        np.searchsorted(stops, begins, side="left"),
                        np.searchsorted(starts, [0, *finishes[:-1]][: len(begins)], side="left"),
                    )
                )
                last.append(np.searchsorted(starts, finishes, side="left"))
            return words, ids, *(np.concatenate(part).astype(int) for part in (first, last))
    words, _, pieces = rows.read(task.packer, _tensor(texts), task.tokenize)
    return words, pieces.ids, pieces.first.numpy(), pieces.end.numpy()


def _tensor(texts):
    if isinstance(texts[0], str):
        return tf.constant(texts)
    return tf.ragged.constant(texts, dtype=tf.string)


def vectors_of_word(
    model: keras.Model,
    texts: Sequence[str],
    word: str,
    layer: int = -1,
    tokenizer: Tokenizer | None = None,
    batch_size: int = 32,
) -> np.ndarray:
    """Return the vector of a word in each of some texts, (B, D) float32: of its first occurrence.

    Args:
        model, tokenizer, batch_size: see `word_vectors`.
        texts: list of str.
        word: str, found in any case, such as `"bank"`.
        layer: int, of the hidden states: 0 is the embedding, -1 the last block.

    Raises:
        ValueError: if a text lacks the word, or there is no such layer.

    Example:

        vectors = vectors_of_word(task, ["We sat on the bank.", "The bank lends money."], "bank")
        keras_lm.analysis.cosine_similarity(vectors)[0, 1]
    """
    vectors = word_vectors(model, texts, tokenizer, batch_size=batch_size)
    if not -len(vectors.layers) <= layer < len(vectors.layers):
        raise ValueError(f"layer={layer}: there are {len(vectors.layers)} hidden states.")
    wanted, chosen = word.casefold(), {}
    for index, (other, text) in enumerate(zip(vectors.words, vectors.texts, strict=True)):
        if other.casefold() == wanted:
            chosen.setdefault(int(text), index)
    for number, text in enumerate(texts):
        if number not in chosen:
            raise ValueError(f"texts[{number}]={text!r} has no word {word!r}: leave it out.")
    return vectors.layers[layer][[chosen[number] for number in range(len(texts))]]
