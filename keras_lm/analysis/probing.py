"""What each layer knows about words: probes. Shapes: N words, D width of a layer, L + 1 layers."""

import collections
import dataclasses
from typing import Any

import keras
import numpy as np

from keras_lm.analysis.drawings import Picture
from keras_lm.analysis.word_readings import word_vectors
from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.utils.optional_dependencies import require


@dataclasses.dataclass(frozen=True)
class LayerProbes:
    """How often a linear classifier on each layer is right about words it has not seen in training.

    Attributes:
        accuracies: list of float, for the embedding's output, then for each block.
        majority: float, the accuracy of the most frequent label for all words.
        by_word: float, that of each word's most frequent label, or the most frequent of all.
        train_words, test_words: int, how many words there were.
    """

    accuracies: list[float]
    majority: float
    by_word: float
    train_words: int
    test_words: int

    def draw(self, title: str = "") -> Picture:
        """Draw the accuracy over the layers, beside that without any context: a `Picture`.

        Args:
            title: str.

        Raises:
            ImportError: if `matplotlib` is missing; the message has the command that installs it.
        """
        picture = Picture.of_size(5.5, 3.5)
        axes = picture.figure.subplots()
        axes.plot(range(len(self.accuracies)), self.accuracies, marker="o", label="probe")
        for name, style in (("by_word", "--"), ("majority", ":")):
            label = {"by_word": "most frequent of the word", "majority": "most frequent"}[name]
            axes.axhline(getattr(self, name), color="0.5", linestyle=style, label=label)
        axes.set_xlabel("layer, 0 is the embedding")
        axes.set_ylabel("accuracy")
        axes.set_title(title, parse_math=False)
        axes.legend(frameon=False)
        return picture


def probe_layers(
    model: keras.Model,
    train: tuple[Any, Any],
    test: tuple[Any, Any],
    tokenizer: Tokenizer | None = None,
    regularization: float = 1.0,
    batch_size: int = 32,
) -> LayerProbes:
    """Return what a logistic regression learns from each layer about words: `LayerProbes`.

    The model stays as it is. What a probe learns is there to be read by a linear layer, not what
    the model uses.

    Args:
        model, tokenizer, batch_size: see `keras_lm.analysis.word_vectors`.
        train, test: pairs of texts and labels: texts as lists of words, and for each a list with a
            label for each word, such as its part of speech or its sense; None leaves a word out.
        regularization: float above 0. How strongly weights are kept small, scikit-learn's 1 / C.

    Raises:
        ImportError: if scikit-learn is missing; the message has the command that installs it.
        ValueError: if texts and labels do not match, or there are fewer than two labels.

    Example:

        words = [["a", "text"], ["text", "a"]] * 4
        tags = [["DET", "NOUN"], ["NOUN", "DET"]] * 4
        probe = keras_lm.analysis.probe_layers(task, (words, tags), (words, tags))
        probe.accuracies[0], probe.majority  # (1.0, 0.5)

    Source: ELMo, https://arxiv.org/abs/1802.05365, section 5.3, tables 5 and 6; BERT: Tenney et al.
    2019, https://arxiv.org/abs/1905.05950.
    """
    linear = require("sklearn.linear_model", "A probe")
    if regularization <= 0:
        raise ValueError(f"regularization={regularization}: pass a number above 0.")
    (learned, labels), (asked, wanted) = (
        _labelled(name, model, *part, tokenizer, batch_size)
        for name, part in (("train", train), ("test", test))
    )
    if len(set(labels)) < 2:
        raise ValueError(f"train has the labels {sorted(set(labels))}: two or more are needed.")
    accuracies = []
    for own, other in zip(learned.layers, asked.layers, strict=True):
        mean, spread = own.mean(axis=0), own.std(axis=0) + 1e-6
        probe = linear.LogisticRegression(C=1 / regularization, max_iter=1000)
        probe.fit((own - mean) / spread, labels)
        accuracies.append(float(np.mean(probe.predict((other - mean) / spread) == wanted)))
    counts = collections.Counter(labels)
    (usual, _), by_word = counts.most_common(1)[0], collections.defaultdict(collections.Counter)
    for word, label in zip(learned.words, labels, strict=True):
        by_word[word][label] += 1
    guesses = [
        by_word[word].most_common(1)[0][0] if word in by_word else usual for word in asked.words
    ]
    return LayerProbes(
        accuracies,
        float(np.mean(wanted == usual)),
        float(np.mean(wanted == np.array(guesses))),
        len(labels),
        len(wanted),
    )


def _labelled(name, model, texts, labels, tokenizer, batch_size):
    """Return the vectors of labelled words, and their labels (N,)."""
    if len(texts) != len(labels):
        raise ValueError(f"{name} has {len(texts)} texts and labels for {len(labels)}.")
    for row, (words, own) in enumerate(zip(texts, labels, strict=True)):
        if isinstance(words, str) or len(words) != len(own):
            raise ValueError(
                f"{name}: text {row} has {len(words)} words and {len(own)} labels: pass lists of "
                "words, and a label or None for each."
            )
    vectors = word_vectors(model, texts, tokenizer, batch_size=batch_size)
    all_ = [labels[text][place] for text, place in zip(vectors.texts, vectors.places, strict=True)]
    chosen = np.array([label is not None for label in all_], bool)
    return vectors.where(chosen), np.array([str(label) for label in all_ if label is not None])
