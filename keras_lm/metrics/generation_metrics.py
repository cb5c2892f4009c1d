"""Metrics of translations and summaries. Shapes: B batch, G right texts."""

from collections.abc import Sequence
from typing import Any

import keras
import numpy as np

from keras_lm.metrics.squad_answers import AnswerMetric, decoded_rows, some, string_columns
from keras_lm.tensorflow import tf
from keras_lm.utils import optional_dependencies
from keras_lm.utils.argument_types import Tensor
from keras_lm.utils.user_arguments import checks_flags


class CorpusMetric(keras.metrics.Metric):
    """A corpus score of sacreBLEU, from 0 to 100; see its subclasses.

    Args:
        metric: one of `sacrebleu.metrics`.

    Attributes:
        signature: str. sacreBLEU's signature, to publish with a score: its settings and version,
            and after the first `update_state` the number of references.

    Call: `update_state(labels, texts)`: references, which are a list of strings, or for several per
    text a list of lists, a ragged tensor or a tensor (B, G); and texts, (B,) strings. An empty
    reference next to others is padding. It is computed in Python, so it does not run on TPUs or
    under XLA.
    """

    def __init__(self, metric: Any, name: str, **kwargs: Any):
        super().__init__(name=name, **kwargs)
        self.metric = metric
        # Counts of n-grams, as float32 is not exact above 2 ** 24.
        size = len(self._count([[b""]], [b""]))
        self.counts: keras.Variable = self.add_weight(
            (size,), "zeros", dtype="int64", name="counts"
        )

    @property
    def signature(self) -> str:
        return str(self.metric.get_signature())

    def update_state(self, labels: Any, texts: Any, sample_weight: Tensor | None = None) -> None:
        if sample_weight is not None:
            raise ValueError(f"{type(self).__name__} takes no weights: leave sample_weight out.")
        counts = tf.numpy_function(self._count, string_columns(labels, texts), tf.int64)
        self.counts.assign_add(tf.ensure_shape(counts, self.counts.shape))

    def _count(self, labels, texts):
        rows = [
            (text, [x for x in right if x] or [""]) for text, right in decoded_rows(labels, texts)
        ]
        most = max(len(right) for _, right in rows)
        streams = [[right[i] if i < len(right) else None for _, right in rows] for i in range(most)]
        counts = self.metric._extract_corpus_statistics([text for text, _ in rows], streams)
        return np.sum(np.array(counts, "int64"), axis=0)

    def result(self) -> Any:
        def score(counts):
            return np.float32(self.metric._compute_score_from_stats(counts.tolist()).score)

        return tf.ensure_shape(tf.numpy_function(score, [tf.identity(self.counts)], tf.float32), [])


@keras.saving.register_keras_serializable("keras_lm")
class Bleu(CorpusMetric):
    """BLEU of translations as sacreBLEU computes it, from 0 to 100.

    Pass detokenized texts: sacreBLEU splits them into words. It needs the extra `translation`.

    Args:
        tokenize: str. sacreBLEU's tokenizer: `"13a"`, that of WMT, `"zh"`, `"intl"`, …
        lowercase: bool. Whether to ignore case.

    Call: see `CorpusMetric`.

    Example:

        metric = keras_lm.metrics.Bleu()
        metric.update_state(["The house is small."], task.generate(["Das Haus ist klein."]))
        print(float(metric.result()), metric.signature)

    Source: Papineni et al. 2002, https://aclanthology.org/P02-1040; Post 2018,
    https://arxiv.org/abs/1804.08771.
    """

    def __init__(
        self, tokenize: str = "13a", lowercase: bool = False, name: str = "bleu", **kwargs: Any
    ):
        sacrebleu = optional_dependencies.require("sacrebleu.metrics", "BLEU")
        if tokenize not in sacrebleu.BLEU.TOKENIZERS:
            known = ", ".join(sacrebleu.BLEU.TOKENIZERS)
            raise ValueError(f"tokenize={tokenize!r}: pass one of sacreBLEU's, {known}.")
        # sacreBLEU would warn of tokenized texts once per batch.
        metric = sacrebleu.BLEU(tokenize=tokenize, lowercase=lowercase, force=True)
        super().__init__(metric, name, **kwargs)
        self.arguments: dict[str, str | bool] = {"tokenize": tokenize, "lowercase": lowercase}

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | self.arguments


@keras.saving.register_keras_serializable("keras_lm")
class ChrF(CorpusMetric):
    """chrF of translations, the F-score of n-grams of characters, from 0 to 100, by sacreBLEU.

    Args:
        word_order: int. 2 is chrF++, which also counts words and word pairs.
        lowercase: bool. Whether to ignore case.

    Call, example: see `Bleu`.

    Source: Popović 2015, https://aclanthology.org/W15-3049; 2017, https://aclanthology.org/W17-4770.
    """

    def __init__(
        self, word_order: int = 0, lowercase: bool = False, name: str = "chrf", **kwargs: Any
    ):
        sacrebleu = optional_dependencies.require("sacrebleu.metrics", "chrF")
        super().__init__(sacrebleu.CHRF(word_order=word_order, lowercase=lowercase), name, **kwargs)
        self.arguments: dict[str, int | bool] = {"word_order": word_order, "lowercase": lowercase}

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | self.arguments


@keras.saving.register_keras_serializable("keras_lm")
class Rouge(AnswerMetric):
    """Mean ROUGE F1 of summaries, from 0 to 1, by the package rouge-score.

    Of several right summaries, the one with the highest score counts. It needs the extra
    `translation`.

    Args:
        kind: str. `"rouge1"` and so on count n-grams, `"rougeL"` the longest common subsequence,
            `"rougeLsum"` that of each line: put each sentence on a line.
        stem: bool. Whether to compare English stems, as most papers do, instead of words.

    Call: see `AnswerMetric`.

    Example:

        metric = keras_lm.metrics.Rouge("rouge2")
        metric.update_state(["A cat sat."], task.generate([article]))

    Source: Lin 2004, https://aclanthology.org/W04-1013.
    """

    @checks_flags
    def __init__(
        self, kind: str = "rougeL", stem: bool = True, name: str | None = None, **kwargs: Any
    ):
        scorer = optional_dependencies.require("rouge_score.rouge_scorer", "ROUGE")
        super().__init__(name=name or kind.lower(), **kwargs)
        self.kind, self.stem = kind, stem
        self._scorer = scorer.RougeScorer([kind], use_stemmer=stem)
        self._scorer.score("", "")  # raises for an unknown kind

    def compare(self, text: str, summaries: Sequence[str] | str) -> float:
        return self._scorer.score_multi(some(summaries), text)[self.kind].fmeasure

    def get_config(self) -> dict[str, Any]:
        return super().get_config() | {"kind": self.kind, "stem": self.stem}
