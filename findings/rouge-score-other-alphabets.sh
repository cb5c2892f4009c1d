#!/usr/bin/env bash
# rouge-score 0.1.2. Its tokenizer keeps a to z and digits alone: a summary in Russian, Greek or
# Chinese that equals the reference scores 0, and accented letters are lost. Pass a tokenizer.
# Output seen, ROUGE-1 of a text with itself: Russian 0.0, English 1.0; "café" beside "caf" 1.0
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet rouge-score==0.1.2
env/bin/python - <<'END'
from rouge_score.rouge_scorer import RougeScorer


def rouge(reference, text):
    return RougeScorer(["rouge1"]).score(reference, text)["rouge1"].fmeasure


russian, english = rouge("кошка спит", "кошка спит"), rouge("a cat sleeps", "a cat sleeps")
accented = rouge("café", "caf")
print(f'Russian {russian}, English {english}; "café" beside "caf" {accented}')
assert russian == 0.0 and english == 1.0 and accented == 1.0
END
