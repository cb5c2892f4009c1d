"""A language model with a prompt, which answers, chooses and classifies without training."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from keras_lm.prompting.likelihood import choose
from keras_lm.prompting.prompt import Prompt, query_list
from keras_lm.tasks.causal_lm import CausalLM
from keras_lm.tasks.classes import check_classes


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
        self.prompt = prompt
        self.class_names = class_names and check_classes(None, class_names)[1]
        self.comparison = {"normalization": normalization, "answer_context": answer_context}

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
        found = self.choose(queries, [names] * len(queries), batch_size, verbose)
        return {"labels": np.array(names, object)[found["labels"]], "scores": found["scores"]}
