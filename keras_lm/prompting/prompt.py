"""A prompt: an instruction, some examples, and a query for the model to continue."""

import string
from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_lm.prompting.likelihood import choose
from keras_lm.tasks.causal_lm import CausalLM
from keras_lm.tasks.classes import check_classes
from keras_lm.utils.user_arguments import iterable


class Prompt:
    """A task described in text: an instruction, examples (zero, one or a few) and a query.

    The query is written like an example without its last field, the output, so that the model's
    continuation is the answer.

    Args:
        instruction: str, the start of the prompt; may be empty.
        examples: list of `(input, output)` pairs, or of dicts keyed by the fields of `template`.
        template: str with fields in braces, the format of an example. The last field is the output.
            Text after it is part of the examples, and ends an answer.
        separator: str, between instruction, examples and query.

    Raises:
        ValueError: if `template` has fewer than two fields, a field without a name or one twice, or
            an example does not fit it; `examples[i]` says which.

    Example:
        prompt = Prompt(
            "Translate English to French:",
            [("sea otter", "loutre de mer"), ("peppermint", "menthe poivrée")],
        )
        print(prompt.text("cheese"))
        # Translate English to French:
        # sea otter => loutre de mer
        # peppermint => menthe poivrée
        # cheese =>

    Source: GPT-3, https://arxiv.org/abs/2005.14165, section 2 and figure 2.1.
    """

    def __init__(
        self,
        instruction: str = "",
        examples: Sequence[Any] = (),
        template: str = "{input} => {output}",
        separator: str = "\n",
    ):
        self.instruction = instruction
        self.template = template
        self.separator = separator
        self._parts, self.fields, self.tail = _parse(template)
        self.examples: list[dict[str, Any]] = [
            self._fill(self._named(example, self.fields, f"examples[{i}]"), f"examples[{i}]")
            for i, example in enumerate(examples)
        ]

    @property
    def output_names(self) -> list[str]:
        """The different outputs of the examples, sorted."""
        return sorted({example[self.fields[-1]] for example in self.examples})

    @property
    def stop(self) -> str:
        """The text before which an answer ends."""
        return self.tail + self.separator

    @property
    def lead(self) -> str:
        """The spaces between a prompt and its answer, which are part of the answer's first word."""
        before = self._parts[-1]
        return before[len(before.rstrip(" ")) :]

    def shots(self, number: int) -> "Prompt":
        """Return the same prompt with its first `number` examples only; 0 is zero-shot.

        Raises:
            ValueError: if there are fewer examples.
        """
        if not 0 <= number <= len(self.examples):
            raise ValueError(f"number={number}, but the prompt has {len(self.examples)} examples.")
        return Prompt(self.instruction, self.examples[:number], self.template, self.separator)

    def text(self, query: Any, num_examples: int | None = None) -> str:
        """Return the prompt for a query, a str or a dict of all fields except the output.

        By default all examples are used, else the first `num_examples`. Spaces at the end of the
        prompt are left to the answer.

        Raises:
            ValueError: if the query does not fit the template.
        """
        query = self._fill(self._named(query, self.fields[:-1], "query"), "query")
        examples = [self._written(x) + self.tail for x in self.examples[:num_examples]]
        written = [*examples, self._written(query)]
        if self.instruction:
            written = [self.instruction, *written]
        return self.separator.join(written)

    def pack(
        self,
        task: CausalLM,
        queries: Sequence[Any],
        endings: Sequence[str] | None = None,
        max_new_tokens: int = 0,
    ) -> list[str]:
        """Return the prompt for each query, with as many examples as fit; put the best ones first.

        They must fit into the window of `task`, a `CausalLM`, minus its bos token, the new tokens,
        and the longest of the query's `endings`: a list of possible answers to each query.

        Raises:
            ValueError: if a query does not fit even without examples.
        """
        task.require_tokenizer()
        queries = query_list(queries)
        if task.backbone.max_sequence_length is None:
            return [self.text(query) for query in queries]
        endings = [[""]] * len(queries) if endings is None else endings
        starts = np.cumsum([0, *map(len, endings[:-1])])
        begin = len(task.end_ids("bos"))
        room = task.backbone.max_sequence_length - max_new_tokens - begin

        def lengths(numbers):
            texts = [self.text(query, int(n)) for query, n in zip(queries, numbers, strict=True)]
            whole = [text + end for text, ends in zip(texts, endings, strict=True) for end in ends]
            return np.maximum.reduceat(task.tokenize(whole).row_lengths().numpy(), starts)

        fewest = lengths(np.zeros(len(queries), int))
        for i in np.flatnonzero(fewest > room)[:1]:
            raise ValueError(
                f"queries[{i}] needs {fewest[i]} tokens with its instruction, but there is room "
                f"for {room} next to {max_new_tokens} new ones: shorten it, or pass a smaller "
                "max_new_tokens."
            )
        # Binary search, for all queries at once, of the largest number that fits.
        low, high = np.zeros(len(queries), int), np.full(len(queries), len(self.examples))
        while (low < high).any():
            middle = (low + high + 1) // 2
            fits = lengths(middle) <= room
            low, high = np.where(fits, middle, low), np.where(fits, high, middle - 1)
        return [self.text(query, int(n)) for query, n in zip(queries, low, strict=True)]

    def _named(self, value, fields, name):
        if isinstance(value, dict):
            return value
        values = [value] if isinstance(value, str) else value
        if not isinstance(values, (list, tuple)) or len(values) != len(fields):
            raise ValueError(
                f"{name} is {value!r}: pass a dict, or as many texts as the template has fields "
                f"here, {list(fields)}."
            )
        return dict(zip(fields, values, strict=True))

    def _fill(self, values, name):
        needed = self.fields if name != "query" else self.fields[:-1]
        if set(values) != set(needed):
            raise ValueError(f"{name} has the keys {sorted(values)}: pass {list(needed)}.")
        for key, value in values.items():
            if not isinstance(value, str):
                raise ValueError(f"{name} has {key}={value!r}: pass a string.")
        return values

    def _written(self, values):
        """The template with its fields filled in; without the last one for a query."""
        text = ""
        for literal, field in zip(self._parts, self.fields, strict=True):
            text += literal + values.get(field, "")
        return text if self.fields[-1] in values else text.rstrip(" ")

    def __repr__(self):
        return (
            f"Prompt({self.instruction!r}, {len(self.examples)} examples, "
            f"template={self.template!r}, separator={self.separator!r})"
        )


def _parse(template: str) -> tuple[list[str], tuple[str, ...], str]:
    """Split a template into the texts before its fields, the fields, and the text after them."""
    parts, fields, tail = [], [], ""
    try:
        pieces = list(string.Formatter().parse(template))
    except ValueError as error:
        raise ValueError(f"template={template!r} is not well formed: {error}.") from None
    for literal, field, form, conversion in pieces:
        tail += literal
        if field is None:
            continue
        if not field.isidentifier() or form or conversion or field in fields:
            raise ValueError(
                f"template={template!r} has the field {{{field}}}: a field is a plain name, once."
            )
        parts.append(tail)
        fields.append(field)
        tail = ""
    if len(fields) < 2:
        raise ValueError(
            f"template={template!r} has the fields {fields}: it needs one for the input and, last, "
            "one for the output, such as '{input} => {output}'."
        )
    return parts, tuple(fields), tail


def query_list(queries):
    """Return queries as a list; raise a ValueError for a single query, or none."""
    if isinstance(queries, (str, bytes, dict)):
        raise ValueError(f"queries={queries!r} is a single query: pass a list, such as [query].")
    queries = list(iterable(queries, "queries"))
    if not queries:
        raise ValueError("queries is empty: pass at least one.")
    return queries


class Prompted:
    """A causal language model with a prompt; each query gets as many of its examples as fit.

    Args:
        task: `keras_lm.tasks.CausalLM`.
        prompt: `Prompt`.
        class_names: list of str, for `classify`; by default the outputs of the examples, sorted.
        normalization, answer_context: see `choose`.

    Example:
        prompt = Prompt(
            examples=[("a joy", "good"), ("dull and loud", "bad")],
            template="Review: {text}\\nIt was {label}.",
            separator="\\n\\n",
        )
        prompted = Prompted(task, prompt)
        prompted.classify(["never a dull moment"])  # {"labels": ["good"], "scores": [[0.4, 0.6]]}

    Source: GPT-3, https://arxiv.org/abs/2005.14165, section 2.4.
    """

    def __init__(
        self,
        task: CausalLM,
        prompt: Prompt,
        class_names: Sequence[str] | None = None,
        normalization: str = "tokens",
        answer_context: str = "Answer:",
    ):
        self.task = task
        self.prompt: Prompt = prompt
        self.class_names: Sequence[str] | None = class_names and check_classes(None, class_names)[1]
        self.comparison: dict[str, Any] = {
            "normalization": normalization,
            "answer_context": answer_context,
        }

    def answer(
        self, queries: Sequence[Any], max_new_tokens: int | None = None, **options: Any
    ) -> list[Any]:
        """Return a list of answers in the model's own words, stripped of white space.

        An answer ends before the separator of the prompt's examples. Queries are as in
        `Prompt.text`, and options as in `CausalLM.generate`; GPT-3 used `num_beams=4,
        length_penalty=0.6`. If there are several sequences, each query has a list of answers.

        Raises:
            ValueError: if there is no room for a query, or as `CausalLM.generate` does.
        """
        if max_new_tokens is None:
            max_new_tokens = self.task.default_max_new_tokens
        prompts = self.prompt.pack(self.task, queries, max_new_tokens=max_new_tokens)
        options = {"stop": self.prompt.stop or None} | options
        answers = self.task.generate(prompts, max_new_tokens=max_new_tokens, **options)
        return [x.strip() if isinstance(x, str) else [y.strip() for y in x] for x in answers]

    def choose(
        self,
        queries: Sequence[Any],
        choices: Sequence[Any],
        batch_size: int = 8,
        verbose: int | str = "auto",
    ) -> dict[str, Any]:
        """Choose the likeliest of some answers to each query; return what `choose` returns.

        Queries are as in `Prompt.text`; `choices` is a list of strings for each, without spaces
        before them. `verbose`: see `Task.answer_all`.

        Raises:
            ValueError: if a query and its choices do not fit, or as `choose` does.
        """
        queries, choices = query_list(queries), list(choices)
        if len(queries) != len(choices):
            raise ValueError(
                f"choices has {len(choices)} rows for {len(queries)} queries: pass one per query."
            )
        for i, row in enumerate(choices):
            if isinstance(row, (str, bytes)) or not len(row):
                raise ValueError(f"choices[{i}] is {row!r}: pass a list of at least one choice.")
        lead = self.prompt.lead
        choices = [[lead + choice for choice in row] for row in choices]
        contexts = self.prompt.pack(self.task, queries, endings=choices)
        options = {"batch_size": batch_size, "verbose": verbose} | self.comparison
        return choose(self.task, contexts, choices, **options)

    def classify(
        self, queries: Sequence[Any], batch_size: int = 8, verbose: int | str = "auto"
    ) -> dict[str, Any]:
        """Choose the likeliest class of each query, as `TextClassifier.classify` does of each text.

        Returns `labels` (B,), names, and `scores` (B, classes) in the order of `class_names`.
        `verbose`: see `Task.answer_all`.

        Raises:
            ValueError: if there is no class, or no room for a query.
        """
        names = self.class_names or self.prompt.output_names
        if not names:
            raise ValueError("class_names is missing, and the prompt has no examples: pass them.")
        queries = query_list(queries)
        chosen = self.choose(queries, [names] * len(queries), batch_size, verbose)
        return {"labels": np.array(names, object)[chosen["labels"]], "scores": chosen["scores"]}
