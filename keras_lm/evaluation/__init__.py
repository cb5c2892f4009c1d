"""How well a task does: measures of files, a report of classes, and the rows that are wrong."""

from keras_lm.evaluation.class_reports import ClassReport
from keras_lm.evaluation.embeddings import (
    evaluate_paraphrases,
    evaluate_retrieval,
    evaluate_similarity,
    evaluate_triplets,
)
from keras_lm.evaluation.measures import make_metrics, measure, measure_written
from keras_lm.evaluation.mistakes import Answered, answer_examples, write_confusion, write_errors

__all__ = [
    "Answered",
    "ClassReport",
    "answer_examples",
    "evaluate_paraphrases",
    "evaluate_retrieval",
    "evaluate_similarity",
    "evaluate_triplets",
    "make_metrics",
    "measure",
    "measure_written",
    "write_confusion",
    "write_errors",
]
