"""A classifier from a few labelled texts: an encoder learns which are alike, then a linear layer.

Shapes: B texts, C classes, D width of a vector, P pairs.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_lm.objectives import CosineMeanSquares
from keras_lm.training.optimizers import AdamW, WarmupLinearDecay
from keras_lm.utils.optional_dependencies import check_installed, require
from keras_lm.utils.user_arguments import check_finite, check_whole, plain_column


def fit_few(
    encoder: Any,
    texts: Sequence[str],
    labels: Sequence[str | int],
    pairs_per_text: int = 20,
    epochs: int = 1,
    batch_size: int = 16,
    learning_rate: float = 2e-5,
    inverse_regularization: float = 1.0,
    seed: int = 0,
    verbose: int | str = "auto",
) -> Any:
    """Return a `TextClassifier` that has learned from a few texts of each class (SetFit).

    First the encoder learns from pairs of the texts: cosines become 1 within a class and 0 between
    two. Then a linear layer learns the classes of the new vectors, by scikit-learn's logistic
    regression. It is for some 8 to 64 texts a class; from hundreds, fine-tune a classifier.

    Args:
        encoder: `keras_lm.tasks.SentenceEncoder`. Its weights are trained, and the classifier
            shares them.
        texts: list of str, B of them, two or more of at least one class.
        labels: list of str or int, the class of each; at least two of them differ.
        pairs_per_text: int. With how many texts of its class each text is compared, and with as
            many of others, drawn at random.
        epochs, batch_size, verbose: as in `fit`, for pairs.
        learning_rate: float. The highest rate of `AdamW`, after a tenth of the steps.
        inverse_regularization: float above 0. scikit-learn's `C`, for the linear layer.
        seed: int. Draws pairs and their order. Dropout follows `keras.utils.set_random_seed`.

    Returns:
        `keras_lm.tasks.TextClassifier` over the encoder's vectors. Its `class_names` are the
        labels, sorted.

    Raises:
        ImportError: if scikit-learn is not installed, which is the extra `sklearn`.
        ValueError: if the encoder is of another kind, the two lists differ in length, there is one
            class alone, no class has two texts, or a number is out of its range.

    Example:

        encoder = keras_lm.tasks.SentenceEncoder.from_preset(SOURCE)
        classifier = keras_lm.training.fit_few(encoder, texts, labels)
        classifier.classify(["I laughed"])["labels"]

    Source: Tunstall et al. 2022, https://arxiv.org/abs/2209.11055, section 3. Its code draws pairs
    in the same way (`num_iterations`), and trains with the same loss and rate.
    """
    check_installed("sklearn", "fit_few")
    check_whole("pairs_per_text", pairs_per_text, 1)
    check_whole("epochs", epochs, 1)
    check_whole("batch_size", batch_size, 1)
    check_finite("inverse_regularization", inverse_regularization, ", above 0")
    if inverse_regularization <= 0:
        raise ValueError(f"inverse_regularization={inverse_regularization}: pass a number above 0.")
    texts, numbers, class_names = _read_classes(texts, labels)
    if not hasattr(encoder, "as_classifier"):
        raise ValueError(
            f"encoder is of the class {type(encoder).__name__}: pass a SentenceEncoder, of whose "
            "vectors a linear layer learns."
        )
    classifier = encoder.as_classifier(class_names)
    first, second, scores = _draw_pairs(numbers, pairs_per_text, np.random.default_rng(seed))
    steps = epochs * -(-len(scores) // batch_size)
    encoder.compile(
        optimizer=AdamW(WarmupLinearDecay(learning_rate, steps)), loss=CosineMeanSquares()
    )
    pairs = ([texts[i] for i in first], [texts[i] for i in second])
    prompts, encoder.prompts = encoder.prompts, {}  # no text is a query: all have `prompt`
    try:
        encoder.fit(
            pairs, scores, epochs=epochs, batch_size=batch_size, shuffle=False, verbose=verbose
        )
    finally:
        encoder.prompts = prompts
    vectors = _vectors(classifier, texts, batch_size)
    fit_linear_layer(classifier, vectors, numbers, inverse_regularization)
    return classifier


def _read_classes(texts, labels):
    """Return texts, the number of the class of each, and the names of the classes, sorted."""
    texts, labels = [*plain_column(texts, "texts")], [*plain_column(labels, "labels")]
    if len(texts) != len(labels):
        raise ValueError(
            f"texts has {len(texts)} rows and labels {len(labels)}: pass a label for each."
        )
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"texts[{row}] is {text!r:.60}: pass a string.")
    for row, label in enumerate(labels):
        if isinstance(label, bool) or not isinstance(label, (str, int, np.integer)):
            raise ValueError(f"labels[{row}] is {label!r:.60}: pass the name of one class.")
    are_numbers = not any(isinstance(label, str) for label in labels)
    names = sorted(set(labels), key=int if are_numbers else str)
    counts = [labels.count(name) for name in names]
    if len(names) < 2 or max(counts) < 2:
        raise ValueError(
            f"labels has the classes {dict(zip(names, counts, strict=True))}: pass two or more "
            "classes, and two or more texts of at least one."
        )
    numbers = np.array([names.index(label) for label in labels])
    return texts, numbers, [str(name) for name in names]


def _draw_pairs(numbers, pairs_per_text, random):
    """Return the rows of both texts of each pair, and its score, 1 or 0: (P,) each, shuffled."""
    rows = np.arange(len(numbers))
    drawn = []
    for row, number in enumerate(numbers):
        alike = rows[(numbers == number) & (rows != row)]
        for others, score in ((alike, 1.0), (rows[numbers != number], 0.0)):
            if len(others):
                partners = random.choice(others, pairs_per_text, len(others) < pairs_per_text)
                drawn += [(row, partner, score) for partner in partners]
    random.shuffle(drawn)
    first, second, scores = zip(*drawn, strict=True)
    return first, second, np.array(scores, "float32")


def _vectors(classifier, texts, batch_size):
    """Return the vectors (B, D) that the classifier's head reads."""
    vectors = []
    for start in range(0, len(texts), batch_size):
        packed = classifier.preprocess(texts[start : start + batch_size])
        outputs = classifier.backbone(classifier.backbone.select_inputs(packed), training=False)
        vectors.append(np.asarray(outputs["pooled_output"], "float64"))
    return np.concatenate(vectors)


def fit_linear_layer(
    classifier: Any, vectors: np.ndarray, numbers: np.ndarray, inverse_regularization: float
) -> None:
    """Give a classifier's linear layer the weights of a logistic regression by scikit-learn.

    Args:
        classifier: a `TextClassifier`, as `SentenceEncoder.as_classifier` returns it.
        vectors: (B, D), what the layer reads.
        numbers: (B,) int, the class of each; all classes are there.
        inverse_regularization: float, scikit-learn's `C`.
    """
    linear = require("sklearn.linear_model", "fit_few")
    regression = linear.LogisticRegression(C=inverse_regularization, max_iter=1000)
    regression.fit(vectors, numbers)
    kernel, bias = regression.coef_.T, regression.intercept_  # (D, C) and (C,)
    if len(bias) == 1:  # of two classes, how much likelier the second is
        kernel, bias = np.concatenate([-kernel, kernel], axis=1) / 2, np.append(-bias, bias) / 2
    classifier.head.logits.kernel.assign(kernel)
    classifier.head.logits.bias.assign(bias)
