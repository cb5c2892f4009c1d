"""The comparison of objectives: what a file of results keeps, and the tables made of it."""

import objectives
import tensorflow as tf

from keras_lm import models, tasks
from keras_lm.tokenizers import WordPieceTokenizer

POINT = {"step": 10, "val_loss": 5.0, "val_accuracy": 0.25}


def test_results_are_computed_once(tmp_path):
    path = tmp_path / "results.jsonl"
    objectives.Results(path).add({"step": "corpus"}, lambda: {"entropy": 6.5})
    again = objectives.Results(path)
    again.add({"step": "corpus"}, lambda: 1 / 0)
    assert again.find(step="corpus")[0]["entropy"] == 6.5
    assert len(path.read_text("utf-8").splitlines()) == 1


def test_report_of_an_unfinished_run(tmp_path):
    results = objectives.Results(tmp_path / "results.jsonl")
    results.add({"step": "corpus"}, lambda: {"entropy": 6.5})
    for name, row in (("none", {"steps": 0}), (objectives.PLAIN, {"steps": 10, "curve": [POINT]})):
        results.add({"step": "pretraining", "objective": name}, lambda row=row: row)
    key = {"step": "fine-tuning", "objective": objectives.PLAIN, "set": "TREC"}
    results.add(key, lambda: {"accuracies": [0.5, 0.6, 0.7]})
    objectives.write_report(results, tmp_path)
    report = (tmp_path / "table.md").read_text("utf-8")
    assert "6.50 nats" in report
    assert "| none | 0 |  |  |  |  |" in report
    assert "| masked LM | 10 | 5.00 |  | 60.0 ± 10.0 |  |" in report
    assert "| 10 % | 10 | 5.00 | 25.0 |" in report


def test_a_discriminator_is_measured_on_what_its_generator_replaced():
    special = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    tokenizer = WordPieceTokenizer([*special, *"abcdefgh"], lowercase=True)
    size = {"num_layers": 1, "num_heads": 1, "hidden_dim": 8, "intermediate_dim": 8}
    backbone = models.ElectraBackbone(tokenizer.vocabulary_size, **size, max_sequence_length=16)
    parts = objectives.replaced(backbone, tokenizer)
    task = tasks.Pretrainer(backbone, parts, tokenizer=tokenizer, sequence_length=16)
    task.compile()
    packed = task.preprocess({"text": tf.constant(["a b c d e f g h a b c d"] * 8)})
    assert 0 < objectives.area_under_curve(task, [packed]) < 1


def test_a_second_stage_begins_with_the_weights_of_the_first():
    size = {"vocabulary_size": 9, "num_layers": 1, "num_heads": 1, "hidden_dim": 8}
    bert, electra = (
        cls(**size, intermediate_dim=8, max_sequence_length=16)
        for cls in (models.BertBackbone, models.ElectraBackbone)
    )
    objectives.begin_with(electra, bert)
    inputs = {"token_ids": [[1, 2, 3]], "padding_mask": [[1, 1, 1]], "segment_ids": [[0, 0, 1]]}
    inputs = {name: tf.constant(rows) for name, rows in inputs.items()}
    one, other = (backbone(inputs)["sequence_output"] for backbone in (bert, electra))
    tf.debugging.assert_near(one, other)
