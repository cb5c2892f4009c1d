#!/usr/bin/env bash
# sacrebleu 2.6.0. corpus_bleu of translations that equal their references is 0 if none has four
# tokens, since there are no 4-grams to count; sentence_bleu of the same is 100.
# Output seen for "the cat": corpus_bleu 0, sentence_bleu 100
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet sacrebleu==2.6.0
env/bin/python - <<'END'
import sacrebleu

corpus = sacrebleu.corpus_bleu(["the cat", "a dog"], [["the cat", "a dog"]]).score
sentence = sacrebleu.sentence_bleu("the cat", ["the cat"]).score
print(f"corpus_bleu {corpus:.0f}, sentence_bleu {sentence:.0f}")
assert corpus == 0.0 and round(sentence) == 100
END
