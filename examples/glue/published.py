"""Published scores on GLUE, to compare yours with."""

import dataclasses

from glue.tasks import TASKS


@dataclasses.dataclass(frozen=True)
class ScoredRow:
    """A row of the table.

    Args:
        name: str, the model.
        measured_on: str, `"dev"` or `"test"`.
        scores: dict of a task → dict of a measure → the score, in percent.
        note: str, where the figures are from, or what to know of them.
    """

    name: str
    measured_on: str
    scores: dict
    note: str = ""

    def average(self, names):
        """Return the mean over tasks, each the mean of its measures; None if a task is missing."""
        if not names or not set(names) <= self.scores.keys():
            return None
        means = [sum(self.scores[name].values()) / len(self.scores[name]) for name in names]
        return sum(means) / len(means)


def _row(name, measured_on, scores, note):
    """Scores stand in the order of `TASKS`, with `-` for what was not published."""
    results = {}
    for task, cell in zip(TASKS.values(), scores.split(), strict=True):
        values = zip(task.measures, cell.split("/"), strict=cell != "-")
        values = {measure: float(value) for measure, value in values if value not in "-"}
        results |= {task.name: values} if values else {}
    return ScoredRow(name, measured_on, results, note)


GLUE_PAPER = "Wang et al. 2018, https://arxiv.org/abs/1804.07461, table 4, {}"
LEADERBOARD = "the leaderboard in March 2019, https://gluebenchmark.com/leaderboard"
A_YEAR_LATER = LEADERBOARD.replace("2019", "2020")
BERT_PAPER = "Devlin et al. 2018, https://arxiv.org/abs/1810.04805, table 1, which has one measure"
ALBERT_PAPER = "Lan et al. 2019, https://arxiv.org/abs/1909.11942, table 9, single models"

#           CoLA SST-2 MRPC STS-B QQP MNLI QNLI RTE WNLI
PUBLISHED_ROWS = [
    _row(
        "mean of word vectors (CBoW)",
        "test",
        "0.0 80.0 81.5/73.4 61.2/58.7 51.4/79.1 56.0/56.4 72.1 54.1 65.1",
        GLUE_PAPER.format("GloVe, one sentence encoder for all tasks"),
    ),
    _row(
        "BiLSTM + attention",
        "test",
        "15.7 85.9 80.3/68.5 59.3/55.8 62.9/83.5 74.2/73.8 77.2 51.9 65.1",
        GLUE_PAPER.format("GloVe, a model for each task"),
    ),
    _row(
        "BiLSTM + attention, CoVe",
        "test",
        "14.5 88.5 79.7/68.6 57.2/53.6 60.1/84.1 71.6/71.5 74.5 52.7 65.1",
        GLUE_PAPER.format("a model for each task"),
    ),
    _row(
        "BiLSTM + attention, ELMo",
        "test",
        "35.0 90.2 80.2/68.8 55.5/52.5 66.1/86.5 76.9/76.7 76.7 50.4 65.1",
        GLUE_PAPER.format("a model for each task"),
    ),
    _row(
        "BiLSTM+ELMo+Attn",
        "test",
        "36.0 90.4 84.9/77.9 75.1/73.3 64.8/84.7 76.4/76.1 79.8 56.8 65.1",
        f"{LEADERBOARD}, one model for all tasks; QNLI from BERT's paper",
    ),
    _row(
        "the best of each before GPT",
        "test",
        "35.0 93.2 86.0/- -/81.0 66.1/- 80.6/80.1 82.3 61.7 -",
        BERT_PAPER,
    ),
    _row(
        "GPT",
        "test",
        "45.4 91.3 82.3/75.7 82.0/80.0 70.3/88.5 82.1/81.4 87.4 56.0 53.4",
        f"{LEADERBOARD}; QNLI from BERT's paper",
    ),
    _row("BERT-base", "test", "52.1 93.5 88.9/- -/85.8 71.2/- 84.6/83.4 90.5 66.4 -", BERT_PAPER),
    _row(
        "BERT-large",
        "test",
        "60.5 94.9 89.3/85.4 87.6/86.5 72.1/89.3 86.7/85.9 92.7 70.1 65.1",
        LEADERBOARD,
    ),
    _row(
        "ELECTRA",
        "test",
        "71.7 97.1 93.1/90.7 92.9/92.5 75.6/90.8 91.3/90.8 95.8 89.8 91.8",
        A_YEAR_LATER,
    ),
    _row(
        "T5",
        "test",
        "71.6 97.5 92.8/90.4 93.1/92.8 75.1/90.6 92.2/91.9 96.9 92.8 94.5",
        A_YEAR_LATER,
    ),
    _row(
        "people",
        "test",
        "66.4 97.8 86.3/80.8 92.7/92.6 59.5/80.4 92.0/92.8 91.2 93.6 95.9",
        LEADERBOARD,
    ),
    *(
        _row(name, "dev", scores, ALBERT_PAPER)
        for name, scores in {
            "BERT-large": "60.6 93.2 -/88.0 90.0/- -/91.3 86.6/- 92.3 70.4 -",
            "XLNet-large": "63.6 95.6 -/89.2 91.8/- -/91.8 89.8/- 93.9 83.8 -",
            "RoBERTa-large": "68.0 96.4 -/90.9 92.4/- -/92.2 90.2/- 94.7 86.6 -",
            "ALBERT-xxlarge": "71.4 96.9 -/90.9 93.0/- -/92.2 90.8/- 95.3 89.2 -",
        }.items()
    ),
]
