"""Zero-shot tasks of GPT-2 ("Language Models are Unsupervised Multitask Learners") and GPT-3."""

import re
from collections.abc import Collection, Sequence
from typing import Any

import numpy as np

from keras_lm.prompting.likelihood import choose, compare
from keras_lm.prompting.prompt import Prompt, Prompted, query_list
from keras_lm.tasks.causal_lm import CausalLM

# Words that carry too little meaning to be the last word of a passage.
FUNCTION_WORDS = """
    a about above after again against all am an and any are as at be because been before being
    below between both but by can could did do does doing down during each even every few for from
    further had has have having he her here hers herself him himself his how i if in into is it its
    itself just may me might more most must my myself no nor not now of off on once only or other
    our ours ourselves out over own same shall she should so some such than that the their theirs
    them themselves then there these they this those through to too under until up upon very was we
    were what when where which while who whom whose why will with would you your yours yourself
    yourselves"""
STOP_WORDS = frozenset(FUNCTION_WORDS.split())
SENTENCE_END = re.compile(r"[.!?…]+[\"'”’)\]]*(?:\s+|$)|\s*\n\s*")
WORD = re.compile(r"\w+(?:['’-]\w+)*")


def summarize(
    task: CausalLM,
    texts: Sequence[str],
    max_new_tokens: int = 100,
    num_sentences: int = 3,
    top_k: int = 2,
    cue: str = "\nTL;DR:",
    **options: Any,
) -> list[str]:
    """Summarize texts by continuing them after `TL;DR:`; return a list of str.

    Args:
        task, texts: `keras_lm.tasks.CausalLM`, and list of str, truncated at the end if too long.
        num_sentences: int, how many of the generated sentences to keep.
        top_k: int, how many of the likeliest tokens to sample from.
        cue: str, the text to add after each text.
        max_new_tokens, **options: of `CausalLM.generate`, such as `seed`.

    Raises:
        ValueError: as `CausalLM.generate` does.

    Source: GPT-2, section 3.6.
    """
    task.require_tokenizer()
    window = task.backbone.max_sequence_length
    if window is not None:
        room = window - max_new_tokens - int(task.tokenizer(cue).shape[0])
        if room < 1:
            raise ValueError(
                f"max_new_tokens={max_new_tokens} leaves no room for a text and {cue!r} in the "
                f"window of {window} tokens: pass a smaller number."
            )
        texts = [_first_tokens(task.tokenizer, text, room) for text in query_list(texts)]
    options = {"temperature": 1.0, "top_k": top_k} | options
    prompts = [text + cue for text in texts]
    answers = task.generate(prompts, max_new_tokens=max_new_tokens, **options)
    return [first_sentences(answer, num_sentences) for answer in answers]


def translate(
    task: CausalLM,
    texts: Sequence[str],
    examples: Sequence[Any],
    max_new_tokens: int | None = None,
    **options: Any,
) -> list[str]:
    """Translate by `english = french` pairs; return the first sentence generated for each text.

    Args:
        task, texts: `keras_lm.tasks.CausalLM`, and list of str.
        examples: list of `(text, translation)`, of which as many as fit are used.
        max_new_tokens, **options: of `CausalLM.generate`; greedy by default, as in the paper.

    Raises:
        ValueError: as `Prompted.answer` does.

    Source: GPT-2, section 3.7.
    """
    prompted = Prompted(task, Prompt(examples=examples, template="{input} = {output}"))
    answers = prompted.answer(texts, max_new_tokens, **options)
    return [first_sentences(answer, 1) for answer in answers]


def answer_questions(
    task: CausalLM,
    questions: Sequence[str],
    examples: Sequence[Any] = (),
    context: str = "",
    max_new_tokens: int | None = None,
    **options: Any,
) -> list[str]:
    """Answer questions, each after other questions with their answers; return a list of str.

    Args:
        task, questions: `keras_lm.tasks.CausalLM`, and list of str.
        examples: list of `(question, answer)`, of which as many as fit are used.
        context: str, the text that the questions are about. For reading comprehension, the examples
            are earlier questions about it.
        max_new_tokens, **options: of `CausalLM.generate`; greedy by default, as in the paper.

    Raises:
        ValueError: as `Prompted.answer` does.

    Source: GPT-2, sections 3.5 and 3.8.
    """
    prompt = Prompt(context, examples, template="Q: {question}\nA: {answer}")
    return Prompted(task, prompt).answer(questions, max_new_tokens, **options)


def predict_last_words(
    task: CausalLM,
    texts: Sequence[str],
    stop_words: Collection[str] = (),
    num_candidates: int = 20,
    max_new_tokens: int = 5,
    verbose: int | str = "auto",
) -> list[str]:
    """Predict the missing last word of passages; it is empty if the model generates no word.

    The likeliest next tokens are each completed to a word, greedily; the answer is the likeliest of
    these words that is not a stop word.

    Args:
        task, texts: `keras_lm.tasks.CausalLM`, and list of str without a space at the end.
        stop_words: collection of str in lower case, such as `STOP_WORDS`, which are never last
            words. Without any, the answer is the greedy one.
        num_candidates: int, how many tokens to try if there are stop words.
        max_new_tokens: int, the maximum number of tokens of a word.
        verbose: see `Task.answer_all`; a bar for each step, of which stop words need three.

    Raises:
        ValueError: as `CausalLM.generate` does.

    Source: GPT-2, section 3.3 (LAMBADA), which does not describe how its filter finds other words.
    """
    texts = query_list(texts)
    if not stop_words:
        generated = task.generate(texts, max_new_tokens=max_new_tokens, verbose=verbose)
        return [first_word(text) for text in generated]
    if num_candidates < 2 or max_new_tokens < 1:
        raise ValueError(
            f"num_candidates={num_candidates} and max_new_tokens={max_new_tokens}: stop words need "
            "2 candidates or more, of 1 token or more."
        )
    # With a single step, beam search returns the likeliest tokens.
    search = {"num_beams": num_candidates, "num_return_sequences": num_candidates}
    begun = task.generate(texts, max_new_tokens=1, verbose=verbose, **search)
    # One that begins with a letter would continue the passage's last given word.
    begun = [[x for x in row if x and not x[0].isalnum()] for row in begun]
    prompts = [text + x for text, row in zip(texts, begun, strict=True) for x in row]
    rest = iter(task.generate(prompts, max_new_tokens=max_new_tokens - 1, verbose=verbose))
    words = []
    for row in begun:
        candidates = dict.fromkeys(first_word(x + next(rest)) for x in row)
        candidates.pop("", None)
        words.append(
            [word for word in candidates if word.lower() not in stop_words] or [*candidates]
        )
    answers = [""] * len(texts)
    rows = [i for i, row in enumerate(words) if row]
    if rows:
        choices = [[f" {word}" for word in words[i]] for i in rows]
        contexts = [texts[i] for i in rows]
        best = choose(task, contexts, choices, normalization=None, verbose=verbose)["labels"]
        for i, label in zip(rows, best, strict=True):
            answers[i] = words[i][label]
    return answers


def fill_blank(
    task: CausalLM,
    texts: Sequence[str],
    choices: Sequence[Any],
    blank: str = "_",
    partial: bool = False,
    batch_size: int = 8,
    verbose: int | str = "auto",
) -> dict[str, Any]:
    """Choose what fills the blank in a text, by likelihood; return what `choose` returns.

    Args:
        task, batch_size, verbose: see `choose`.
        texts, blank: list of B strings, each with one `blank` in it.
        choices: list of B lists of str.
        partial: bool. False compares the likelihood of a choice and all text after it, given the
            text before (the Children's Book Test); True only that of the text after the choice, for
            choices that differ in frequency (Winograd schemas).

    Raises:
        ValueError: if a text does not have one blank, or as `choose` does.

    Example:
        text = "The trophy does not fit into the suitcase because the _ is too big."
        fill_blank(task, [text], [["trophy", "suitcase"]], partial=True)["labels"]

    Source: GPT-2, sections 3.2 and 3.4; GPT-3, https://arxiv.org/abs/2005.14165, section 3.4;
    partial: https://arxiv.org/abs/1806.02847, section 3.1.
    """
    parts = [text.split(blank) for text in query_list(texts)]
    for i, part in enumerate(parts):
        if len(part) != 2:
            raise ValueError(f"texts[{i}] has {len(part) - 1} blanks {blank!r}: pass one blank.")
        if partial and not part[1]:
            raise ValueError(f"texts[{i}] has nothing after its blank: pass partial=False.")
    choices = list(choices)
    if len(choices) != len(parts):
        raise ValueError(
            f"choices has {len(choices)} rows for {len(parts)} texts: pass one per text."
        )
    if not partial:
        endings = [[choice + end for choice in row] for (_, end), row in zip(parts, choices)]
        contexts = [begin for begin, _ in parts]
        options = {"batch_size": batch_size, "verbose": verbose}
        return choose(task, contexts, endings, normalization=None, **options)
    contexts = [begin + choice for (begin, _), row in zip(parts, choices) for choice in row]
    endings = [[end] for (_, end), row in zip(parts, choices) for _ in row]
    scored = task.score_continuations(contexts, endings, batch_size, verbose)
    is_choice = np.arange(max(map(len, choices))) < np.array([[len(row)] for row in choices])
    scores = np.full(is_choice.shape, -np.inf, "float32")
    num_tokens = np.zeros(is_choice.shape, "int32")
    scores[is_choice], num_tokens[is_choice] = scored["scores"][:, 0], scored["num_tokens"][:, 0]
    return compare(scores, {"scores": scores, "num_tokens": num_tokens})


def first_sentences(text, number):
    """Return the first sentences of a text; the end of a line ends a sentence, too."""
    text = text.strip()
    ends = [match.end() for match in SENTENCE_END.finditer(text)]
    return text[: ends[number - 1]].rstrip() if len(ends) >= number else text


def first_word(text):
    """Return the first word of a text, without punctuation; empty if there is none."""
    match = WORD.search(text)
    return match.group() if match else ""


def _first_tokens(tokenizer, text, number):
    ids = tokenizer(text)
    if int(ids.shape[0]) <= number:
        return text
    cut = tokenizer.detokenize(ids[:number]).numpy().decode("utf-8", "replace")
    return cut.rstrip("\ufffd")  # half a character
