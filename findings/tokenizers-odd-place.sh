#!/usr/bin/env bash
# tokenizers 0.23.3. Where both texts of a pair are cut to an odd number of places, the one left
# over goes to the longer text or, if they are equally long, to the second. BERT's own code, and
# the slow tokenizers of transformers 4, leave it to the first: other ids for the same pair.
# Output seen for "a b c d", "e f g h" at 5 places: a b | e f g
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet tokenizers==0.23.3
env/bin/python - <<'END'
from tokenizers import Tokenizer, models, pre_tokenizers

tokenizer = Tokenizer(models.WordLevel({word: i for i, word in enumerate("?abcdefgh")}, "?"))
tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
tokenizer.enable_truncation(5)
encoding = tokenizer.encode("a b c d", "e f g h")
texts = [
    " ".join(t for t, row in zip(encoding.tokens, encoding.type_ids, strict=True) if row == side)
    for side in (0, 1)
]
print(" | ".join(texts))
assert texts == ["a b", "e f g"]
END
