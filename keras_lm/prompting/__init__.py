"""Prompting: zero- and few-shot tasks for a language model, without training."""

from keras_lm.prompting.detokenizers import Detokenizer, penn_treebank, wikitext
from keras_lm.prompting.likelihood import choose, perplexity
from keras_lm.prompting.prompt import Prompt, Prompted
from keras_lm.prompting.zero_shot import (
    STOP_WORDS,
    answer_questions,
    fill_blank,
    predict_last_words,
    summarize,
    translate,
)

__all__ = [
    "STOP_WORDS",
    "Detokenizer",
    "Prompt",
    "Prompted",
    "answer_questions",
    "choose",
    "fill_blank",
    "penn_treebank",
    "perplexity",
    "predict_last_words",
    "summarize",
    "translate",
    "wikitext",
]
