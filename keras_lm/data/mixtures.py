"""Training on several text-to-text tasks: sources in T5's formats, and mixtures of tasks."""

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from keras_lm.tensorflow import tf

# The tasks that T5 was trained on, but for those that need more than a format, such as WSC:
# https://arxiv.org/abs/1910.10683, appendix D.
TEXT_TO_TEXT = {
    "translate_en_de": "translate English to German: {text}",
    "translate_en_fr": "translate English to French: {text}",
    "translate_en_ro": "translate English to Romanian: {text}",
    "summarize": "summarize: {text}",
    "squad": "question: {question} context: {context}",
    "cola": "cola sentence: {sentence}",
    "sst2": "sst2 sentence: {sentence}",
    "mrpc": "mrpc sentence1: {sentence1} sentence2: {sentence2}",
    "rte": "rte sentence1: {sentence1} sentence2: {sentence2}",
    "stsb": "stsb sentence1: {sentence1} sentence2: {sentence2}",
    "qqp": "qqp question1: {question1} question2: {question2}",
    "qnli": "qnli question: {question} sentence: {sentence}",
    "mnli": "mnli hypothesis: {hypothesis} premise: {premise}",
    "cb": "cb hypothesis: {hypothesis} premise: {premise}",
}


def text_to_text(name: str, **columns: Sequence[str]) -> list[str]:
    """Return the sources of a task in the format of published T5 models, a list of str.

    Targets are texts, too: class names such as `"entailment"`, or for stsb numbers such as `"3.8"`.

    Args:
        name: str, one of `TEXT_TO_TEXT`, or a format of your own, such as `"correct: {text}"`.
        **columns: lists of str; the keys are the names in the format.

    Raises:
        ValueError: if the task is unknown, a column is missing or unknown, or columns differ in
            length.

    Example:

        sources = keras_lm.data.text_to_text("cola", sentence=["The book was read."])
        task.generate(sources)  # ["acceptable"]

    Source: Raffel et al. 2020, https://arxiv.org/abs/1910.10683, section 2.4 and appendix D.
    """
    form = TEXT_TO_TEXT.get(name, name)
    if "{" not in form:
        raise ValueError(
            f"name={name!r}: pass one of {', '.join(TEXT_TO_TEXT)}, or a format such as 'correct: "
            "{text}'."
        )
    try:
        rows = zip(*columns.values(), strict=True)
        made = [form.format(**dict(zip(columns, row, strict=True))) for row in rows]
        unused = [column for column in columns if f"{{{column}}}" not in form]
    except (KeyError, IndexError, ValueError) as error:
        raise ValueError(
            f"{form!r} does not fit the columns {sorted(columns)}: {error}. Pass a list for each "
            "name in the format, all of the same length."
        ) from error
    if unused or not columns:
        raise ValueError(
            f"{form!r} does not use all of the columns {sorted(columns)}: leave the others out."
        )
    return made


def mixing_rates(
    sizes: Sequence[int], limit: int | None = None, temperature: float = 1.0
) -> np.ndarray:
    """Return the share of each task in a mixture, float64 that sum to 1.

    The share is proportional to the number of examples, at most `limit`, to the power of
    1 / `temperature`. A temperature of 1 keeps the proportions; a high one makes all tasks equal.

    Args:
        sizes: list of int, the number of examples of each task.
        limit: int or None. T5 uses 2 ** 19, and with a temperature 2 ** 21.
        temperature: float, 1 or more; mT5 uses 1 / 0.3 over languages, BERT 1 / 0.7.

    Raises:
        ValueError: if a number is out of range.

    Source: Raffel et al. 2020, https://arxiv.org/abs/1910.10683, section 3.5.2.
    """
    if not len(sizes) or min(sizes) < 1:
        raise ValueError(f"sizes={sizes}: pass the number of examples of each task, 1 or more.")
    if limit is not None and limit < 1:
        raise ValueError(f"limit={limit}: pass 1 or more, or None.")
    if temperature < 1:
        raise ValueError(f"temperature={temperature}: pass 1 (proportional shares) or more.")
    counted = np.minimum(sizes, np.inf if limit is None else limit) ** (1 / temperature)
    return counted / counted.sum()


def mix_tasks(
    tasks: Mapping[str, Any], limit: int | None = None, temperature: float = 1.0, seed: int = 0
) -> tf.data.Dataset[Any]:
    """Return an endless `tf.data.Dataset` of `(source, target)`, sampled from several tasks.

    The examples of a task are shuffled anew each time that they repeat. The same seed returns the
    same examples.

    Args:
        tasks: dict of name → `(sources, targets)`, lists of str; or → `tf.data.Dataset` of such
            pairs, with a known length. A dataset is not shuffled.
        limit, temperature: see `mixing_rates`.
        seed: int.

    Raises:
        ValueError: if a task has different numbers of sources and targets, or a dataset of unknown
            length.

    Example:

        german = text_to_text("translate_en_de", text=english), deutsch
        short = text_to_text("summarize", text=articles), summaries
        data = keras_lm.data.mix_tasks({"german": german, "short": short}, limit=2**19)
        task.fit(data.batch(32), steps_per_epoch=1000, epochs=3)

    Source: Raffel et al. 2020, https://arxiv.org/abs/1910.10683, section 3.5.2.
    """
    datasets = []
    for number, (name, pairs) in enumerate(tasks.items()):
        if isinstance(pairs, tf.data.Dataset):
            dataset = pairs.repeat()
            size = int(pairs.cardinality())
        else:
            sources, targets = map(list, pairs)
            if len(sources) != len(targets):
                raise ValueError(
                    f"tasks[{name!r}] has {len(sources)} sources and {len(targets)} targets: pass "
                    "one target for each source."
                )
            size = len(sources)
            dataset = tf.data.Dataset.from_tensor_slices((sources, targets))
            dataset = dataset.shuffle(max(size, 1), seed=seed + number).repeat()
        if size < 1:
            raise ValueError(
                f"tasks[{name!r}] has no examples, or an unknown number of them: state it with "
                "tf.data.experimental.assert_cardinality."
            )
        datasets.append((dataset, size))
    rates = mixing_rates([size for _, size in datasets], limit, temperature)
    mixed = [dataset for dataset, _ in datasets]
    return tf.data.Dataset.sample_from_datasets(mixed, rates.tolist(), seed=seed)
