"""Extractive question answering. Shapes: B examples, R windows of all examples, S, n answers."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import keras
import numpy as np

from keras_lm import metrics
from keras_lm.converters.published_labels import Labels
from keras_lm.feeding import datasets
from keras_lm.feeding.datasets import named
from keras_lm.feeding.feed import COUNTED_TOGETHER, Preprocessor, TaskLabels
from keras_lm.feeding.predict_batches import batches_of, window_batches
from keras_lm.layers.tensorflow import is_for_lite
from keras_lm.metrics.squad_answers import answer_f1
from keras_lm.models.backbone import Backbone
from keras_lm.packers import Windows
from keras_lm.packers.overlapping_windows import tokens_and_places_lite
from keras_lm.packers.rows import LOWEST
from keras_lm.tasks import answer_spans, host_answers
from keras_lm.tasks.answer_spans import ENDS, ConditionalEnds, IndependentEnds
from keras_lm.tasks.scored_answers import ScoredAnswers
from keras_lm.tasks.text_model import Batch
from keras_lm.tensorflow import IS_INSTALLED, require_installed, tf
from keras_lm.tokenizers import strings
from keras_lm.utils.argument_types import RawLabels, RawTexts, Tensor
from keras_lm.utils.processes import common_seed
from keras_lm.utils.user_arguments import check_finite, check_whole

WINDOWS_AT_ONCE = 32  # of a context of any length, so that memory is bounded


class AnswerLabels(TaskLabels):
    """The answers to each question, texts and where they begin; of packed rows, their `ENDS`."""

    columns = ("answers", "labels", "label")

    def prepare(self, labels):
        return answer_spans.answers_of_rows(labels)

    def names(self, is_packed):
        return ENDS if is_packed else ("text", "start", "answer_start")

    def of_names(self, labels, is_packed):
        rows = answer_spans.places_in_rows if is_packed else answer_spans.rows_of_columns
        return rows(labels)

    def prepare_tensor(self, labels):
        if isinstance(labels, dict) and set(labels) == set(ENDS):
            return labels
        return answer_spans.first_of_tensors(labels)

    def match(self, labels, columns, is_packed):
        if is_packed:
            raise ValueError(
                f"labels are answers, and x is packed: pass a dict of {' and '.join(ENDS)}, the "
                "places of their first and last tokens in each row, or texts as x."
            )
        texts = [columns[name].numpy() for name in ("question", "context")]
        answer_spans.check_places(labels, *texts)
        return answer_spans.first_answers(labels)


@dataclasses.dataclass(frozen=True, eq=False)
class AnswerPreprocessor(Preprocessor):
    """A `Preprocessor` with the places of answers in windows."""

    def with_labels(self, columns, labels):
        packed = self(columns)
        return packed, answer_spans.labels_of_windows(
            packed, columns["context"], **labels, null=self.null_positions(packed)
        )

    def null_positions(self, packed: dict[str, Tensor]) -> Tensor:
        """Return the place in each window that stands for no answer, (R,)."""
        return answer_spans.null_positions(packed, self.ends_with_cls())

    def ends_with_cls(self) -> bool:
        """Whether the classifier's token, which stands for no answer, is the last of a row."""
        pieces = self.packer.template.ids("pair", self.tokenizer)
        roles = self.tokenizer.special_tokens
        return "cls" in roles and pieces[-1][0] == self.tokenizer.special_id("cls")


@keras.saving.register_keras_serializable("keras_lm")
class QuestionAnswerer(ScoredAnswers):
    """Answer questions by a part of a context, or say that it has no answer: SQuAD 1.1 and 2.0.

    A context that is too long for the model is read in overlapping windows, each together with the
    question. In training, each window is an example of its own, without an answer if it does not
    hold all of it. Answers are compared over all windows of a context.

    Args:
        stride: int. Tokens from the start of a window to that of the next.
        max_question_length: int. Longer questions are truncated to this many tokens. None for 64,
            or less in a model for short texts.
        max_answer_length: int. No answer has more tokens.
        num_answers: int. How many answers are compared and returned.
        null_threshold: float. A question has no answer if the score of none exceeds that of the
            best answer by more than this; see `tune_null_threshold`. None if every question has one
            (SQuAD 1.1).
        conditional_ends: bool. Whether ends of answers depend on their starts, and no answer has a
            logit of its own, as with XLNet's head. None if the model has such a head.
        num_starts, num_ends: int. With `conditional_ends`, how many of the likeliest starts are
            tried, and how many ends for each.
        backbone, **arguments: see `Task`. `sequence_length` is that of a window, by default 384, or
            the backbone's limit if it is less.

    Raw data have the keys `question` and `context`; a tuple is `(question, context)`. The label of
    a question is a dict of `text`, the answer, and `start` (or `answer_start`, as in SQuAD), the
    number of characters before it in its context; a list of such answers, of which training takes
    the first; or None for no answer. With packed inputs, labels are a dict of `start_logits` and
    `end_logits`, (B,) places of tokens.

    Call: `task(inputs)` returns `start_logits` and `end_logits`, (B, S) float32; with
    `conditional_ends` what `keras_lm.models.xlnet_layers.ConditionalSpanHead` does.

    Raises:
        ValueError: if a number is out of range.

    Example:

        task = keras_lm.tasks.QuestionAnswerer.from_preset(SOURCE)
        data = {"question": ["Who wrote it?"], "context": ["It was written by Ada."]}
        task.fit(data, [{"text": "Ada", "start": 18}])
        task.answer(data)[0][0]  # {"text": "Ada", "score": 0.9, "start": 18, "end": 21}

    Source: BERT, https://arxiv.org/abs/1810.04805, sections 4.2 and 4.3; google-research/bert,
    `run_squad.py`.
    """

    preprocessor_class = AnswerPreprocessor
    labels_class = AnswerLabels
    predicts_sequences = True
    uses_pooler = False
    # Of windows, from the packer: their example, and what of the context they hold.
    row_names = ("start_positions", "example", "start", "end", "max_context")

    def __init__(
        self,
        backbone: Backbone,
        stride: int = 128,
        max_question_length: int | None = None,
        max_answer_length: int = 30,
        num_answers: int = 20,
        null_threshold: float | None = 0.0,
        conditional_ends: bool | None = None,
        num_starts: int = 5,
        num_ends: int = 5,
        **arguments: Any,
    ):
        numbers = {"max_answer_length": max_answer_length, "num_answers": num_answers}
        numbers |= {"num_starts": num_starts, "num_ends": num_ends}
        for name, value in numbers.items():
            check_whole(name, value, 1)
        if null_threshold is not None:
            check_finite("null_threshold", null_threshold, "; None if all questions have an answer")
        super().__init__(backbone, **arguments)
        self.rows = Windows(stride, max_question_length)
        self.max_answer_length = max_answer_length
        self.num_answers = num_answers
        self.null_threshold = null_threshold
        if conditional_ends is None:
            conditional_ends = ConditionalEnds.kind in backbone.HEADS
        self.ends = IndependentEnds()
        if conditional_ends:
            self.ends = ConditionalEnds(num_starts, num_ends)
        self.num_starts, self.num_ends = num_starts, num_ends
        self.head = self.add_head(self.ends.kind, **self.ends.options())
        self._finish()

    parses_special = False
    longest_text = None  # contexts are read in windows

    @classmethod
    def usual_length(cls, limit: int | None) -> int:
        return min(limit or 384, 384)

    @classmethod
    def arguments_from_checkpoint(cls, labels: Any) -> dict[str, Any] | None:
        if labels.problem_type != "question_answering":
            return None
        return {"conditional_ends": False} | (labels.arguments or {})

    def published_labels(self) -> Any:
        is_conditional = isinstance(self.ends, ConditionalEnds)
        numbers = {"num_starts": self.num_starts, "num_ends": self.num_ends}
        arguments = numbers if is_conditional else None
        return Labels(2, problem_type="question_answering", arguments=arguments)

    def get_arguments(self) -> dict[str, Any]:
        return super().get_arguments() | {
            "stride": self.rows.stride,
            "max_question_length": self.rows.max_question_length,
            "max_answer_length": self.max_answer_length,
            "num_answers": self.num_answers,
            "null_threshold": self.null_threshold,
            "conditional_ends": isinstance(self.ends, ConditionalEnds),
            "num_starts": self.num_starts,
            "num_ends": self.num_ends,
        }

    # === Training ===

    def compile(
        self, optimizer: Any = "auto", loss: Any = "auto", metrics: Any = "auto", **kwargs: Any
    ) -> None:
        """As `TextModel.compile`; by default, losses count half."""
        if isinstance(loss, str) and loss == "auto":
            kwargs.setdefault("loss_weights", dict.fromkeys(self.ends.losses(), 0.5))
        super().compile(optimizer, loss, metrics, **kwargs)

    def default_loss(self) -> Any:
        return self.ends.losses()

    def default_metrics(self) -> Any:
        return self.ends.metrics()

    def prepare_batch(self, data: Any, training: bool | None) -> Batch:
        return self.ends.prepare(super().prepare_batch(data, training))

    def training_batches(
        self,
        x: RawTexts,
        y: RawLabels,
        sample_weight: Any,
        batch_size: int,
        shuffle: bool,
        group: bool,
        seed: int | None = None,
    ) -> Any:
        # Of several workers each makes all windows: only then is known which of them are its own.
        strategy = self.distribute_strategy
        arguments = (x, y, sample_weight, batch_size, shuffle, group)
        how = {"whole": True, "needs_labels": self.labels.are_needed, "seed": seed}
        batches = datasets.batches(self.feed, *arguments, **how)
        if self.is_packed(x) or "example" not in batches.element_spec[0]:
            return datasets.parts(strategy, batches)  # packed by the user
        if isinstance(x, tf.data.Dataset) and batch_size is None:
            batch_size = tf.nest.flatten(next(iter(x)))[0].shape[0]
        batch_size = datasets.TRAINING_BATCH_SIZE if batch_size is None else batch_size
        seed = common_seed(strategy) if seed is None else seed
        windows = window_batches(batches, batch_size, self.packer, shuffle, group, seed)
        if not datasets.is_stream(x):
            # A schedule needs to know how many there are.
            columns = batches_of(self.columns(x), COUNTED_TOGETHER)
            count = sum(int(tf.reduce_sum(self.rows.count(self.packer, part))) for part in columns)
            number = -(-count // batch_size)
            windows = windows.apply(tf.data.experimental.assert_cardinality(number))
        return datasets.parts(strategy, windows)

    def has_answers(self, x: RawTexts, y: RawLabels) -> bool:
        return answer_spans.answers_of(x, y) is not None

    def score(
        self, x: RawTexts, y: RawLabels = None, batch_size: int = 32, verbose: int | str = "auto"
    ) -> dict[str, float]:
        """Compare the best answers of raw texts with their labels, as SQuAD's script does.

        The loss and the accuracies that `evaluate` adds to them are means over windows.

        Args:
            x, y: see `fit`; with several answers to a question, the most similar counts.
            batch_size, verbose: see `answer`.

        Returns:
            dict of `exact_match`, `f1` and `no_answer_accuracy`, from 0 to 1; see
            `keras_lm.metrics`.
        """
        require_installed("Comparing answers with labels")
        gold = answer_spans.required_answers(x, y)
        texts = self._compared(x, batch_size, verbose)["text"][:, 0].tolist()
        scores = {}
        for metric in (metrics.ExactMatch(), metrics.AnswerF1(), metrics.NoAnswerAccuracy()):
            metric.update_state(gold, texts)
            scores[metric.name] = float(metric.result())
        return scores

    def predict(
        self, x: RawTexts, batch_size: int | None = None, verbose: int | str = "auto", **kwargs: Any
    ) -> Any:
        """As `keras.Model.predict`: of raw texts, the logits of all windows, R rows."""
        if isinstance(x, tf.data.Dataset):
            # Without AutoGraph it is quicker to trace.
            @tf.autograph.experimental.do_not_convert
            def windows(x, *_):
                return self._windows(x if self.is_packed(x) else named(self.rows, x))

            x = x.map(windows)
        elif datasets.is_stream(x):
            read = x if hasattr(x, "__next__") else map(x.__getitem__, range(x.num_batches))
            x = (self._windows(batch[0] if isinstance(batch, tuple) else batch) for batch in read)
        else:
            x = self._windows(x)
        return super().predict(x, batch_size, verbose, **kwargs)

    def _windows(self, x):
        """Return packed texts, or texts packed, with the inputs of the network alone."""
        packed = x if self.is_packed(x) else self.preprocess(x)
        return {name: packed[name] for name in self.packer.inputs if name in packed}

    # === Answers ===

    def decode_packed(self, outputs, packed):
        """Return the logits themselves: packed rows do not say where in the context a token is."""
        return outputs

    def answer(
        self,
        x: RawTexts,
        tokenize: Callable[[Tensor], Tensor] | None = None,
        top_k: int = 1,
        batch_size: int = 32,
        verbose: int | str = "auto",
    ) -> Any:
        """Return the best answers to questions, from best to worst.

        Args:
            x: questions and contexts, in any form that `columns` takes. Named string tensors (B,)
                are answered in the graph: `text`, `scores`, `start` and `end`, (B, num_answers)
                each, which is what an export returns.
            tokenize: replaces the tokenizer, in the graph.
            top_k: int. The most answers to a question; none overlaps a better one.
                None for all that were compared, which mostly overlap: the n-best list of SQuAD.
            batch_size, verbose: see `Task.answer_all`.

        Returns:
            list with a list for each question, of dicts: `text`, `score` (its probability among
            these answers), `start` and `end` in characters of the context, as Python counts them.
            No answer is the empty text from 0 to 0.
        """
        if isinstance(x, dict) and x and all(map(tf.is_tensor, x.values())):
            return self._answer(self.preprocess(x, tokenize), strings.valid_utf8(x["context"]))
        if top_k is not None:
            check_whole("top_k", top_k, 1, otherwise=", or None for all")
        compared = self._compared(x, batch_size, verbose)
        columns = [compared[name].tolist() for name in ("text", "scores", "start", "end")]
        answers = []
        for row in zip(*columns, strict=True):
            several = [
                dict(zip(("text", "score", "start", "end"), answer, strict=True))
                for answer in zip(*row, strict=True)
            ]
            likely = [answer for answer in several if answer["score"] > 0] or several[:1]
            answers.append(likely if top_k is None else answer_spans.apart(likely)[:top_k])
        return answers

    def _compared(self, x, batch_size, verbose):
        """Return the answers of raw texts that were compared, arrays (B, num_answers)."""
        without = None if IS_INSTALLED else functools.partial(host_answers.answers, self)
        return self.answer_all(x, batch_size, without, verbose)

    def answer_lite(self, columns: dict[str, Tensor]) -> Any:
        """`answer` with operations that LiteRT has."""
        packed = self.rows.pack(
            self.packer, columns, self.tokenizer.tokenize_lite, tokens_and_places_lite
        )
        return self._answer(packed, columns["context"])

    def best_and_null(self, columns: dict[str, Any]) -> dict[str, Tensor]:
        """Return the text of the best answer, and how far the score of none is above its, (B,)."""
        context = strings.valid_utf8(columns["context"])
        scores, start, end, nulls = self._candidates(self.preprocess(columns), tf.size(context))
        text = strings.substrings(context, start[:, :1], end[:, :1])[:, 0]
        return {"text": text, "difference": nulls - scores[:, 0]}

    def _answer(self, packed, context):
        scores, start, end, nulls = self._candidates(packed, strings.number_of(context))
        threshold = self.null_threshold
        nulls = tf.fill(tf.shape(nulls), 2 * LOWEST) if threshold is None else nulls - threshold
        index, likely = answer_spans.ranked(scores, nulls, self.num_answers)

        def chosen(places):
            none = tf.zeros_like(places[:, :1])
            return tf.gather(tf.concat([places, none], axis=1), index, batch_dims=1)

        start, end = chosen(start), chosen(end)
        if is_for_lite():
            start, end = answer_spans.without_outer_space_lite(context, start, end)
            text = strings.substrings(context, start, end)
        else:
            text = strings.substrings(context, start, end)
            text, start, end = answer_spans.without_outer_space(text, start, end)
        return {"text": text, "scores": likely, "start": start, "end": end}

    def _candidates(self, packed, rows):
        """Return scores, starts and ends in characters (B, n) of spans, and null scores (B,)."""
        logits = self._logits(packed)
        number = self.num_answers
        scores, first, last = self.ends.best_spans(logits, packed, number, self.max_answer_length)
        places = [
            tf.gather(packed[name], place, batch_dims=1)
            for name, place in (("start", first), ("end", last))
        ]
        scores, (start, end), nulls = answer_spans.answers_of_examples(
            scores,
            places,
            self.ends.null_scores(logits, self.preprocessor.null_positions(packed)),
            packed["example"],
            rows,
        )
        nulls = self.ends.compared_nulls(nulls, scores)
        is_there = scores > LOWEST / 2
        return scores, tf.where(is_there, start, 0), tf.where(is_there, end, 0), nulls

    def _logits(self, packed):
        """Return the outputs for windows, (R, …) each, computed some at a time."""
        inputs = {name: packed[name] for name in self.packer.inputs}
        if is_for_lite():
            return self(inputs, training=False)
        size = tf.shape(packed["padding_mask"])
        outputs = self.ends.outputs

        def read(done, *earlier):
            part = {name: x[done : done + WINDOWS_AT_ONCE] for name, x in inputs.items()}
            logits = self(part, training=False)
            joined = [
                tf.concat([rows, tf.ensure_shape(logits[name], [None, *shape])], axis=0)
                for rows, (name, (shape, _)) in zip(earlier, outputs.items(), strict=True)
            ]
            return done + WINDOWS_AT_ONCE, *joined

        empty = [
            tf.zeros(
                [0, *(size[1] if n is None else n for n in shape)],
                tf.int32 if is_int else tf.float32,
            )
            for shape, is_int in outputs.values()
        ]
        _, *all_logits = tf.while_loop(
            lambda done, *_: done < size[0],
            read,
            (0, *empty),
            (
                tf.TensorShape([]),
                *(tf.TensorShape([None, *shape]) for shape, _ in outputs.values()),
            ),
            parallel_iterations=1,
        )
        return dict(zip(outputs, all_logits, strict=True))

    def tune_null_threshold(
        self, x: RawTexts, y: RawLabels = None, batch_size: int = 32, verbose: int | str = "auto"
    ) -> float:
        """Set `null_threshold` to the value with the best F1 on a development set.

        A preset and an export keep it.

        Args:
            x, y, batch_size, verbose: see `score`.

        Returns:
            float, the threshold.

        Raises:
            ValueError: if all questions have an answer, or none has.

        Source: SQuAD 2.0's evaluation script, `find_best_thresh`.
        """
        gold = answer_spans.required_answers(x, y)
        has_answer = np.array([bool(texts) for texts in gold])
        if has_answer.all() or not has_answer.any():
            raise ValueError(
                "y needs questions with an answer and questions without: between these the "
                "threshold decides."
            )
        answers = self.answer_all(
            x, batch_size, lambda columns: self.in_graph(self.best_and_null, columns), verbose
        )
        f1 = [answer_f1(*pair) for pair in zip(answers["text"], gold, strict=True)]
        # What is won by an answer over none, question by question, the surest first.
        order = np.argsort(answers["difference"], kind="stable")
        gains = np.cumsum((np.array(f1) - ~has_answer)[order])
        differences = answers["difference"][order].astype("float64")
        differences = np.concatenate([differences[:1] - 2, differences, differences[-1:] + 2])
        best = int(np.argmax(np.concatenate([[0.0], gains])))
        self.null_threshold = float(differences[best : best + 2].mean())
        return self.null_threshold
