#!/usr/bin/env bash
# tokenizers 0.23.3 and transformers 5.24.0. StripAccents drops all marks without a width of their
# own, vowels of Thai and Hindi among them, and AlbertTokenizer uses it. ALBERT's own code drops
# only what has a combining class, as accents have.
# Output seen for Thai กิน: AlbertTokenizer กน, ALBERT's rule กิน
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet transformers==5.24.0 tokenizers==0.23.3 sentencepiece==0.2.3
env/bin/python - <<'END'
import unicodedata

from transformers import AlbertTokenizer

pieces = ["<pad>", "<unk>", "[CLS]", "[SEP]", "[MASK]", "▁"]
tokenizer = AlbertTokenizer(vocab=[(piece, 0.0) for piece in pieces])
normalizer = tokenizer.backend_tokenizer.normalizer


def by_rule(text):
    letters = unicodedata.normalize("NFKD", text)
    return "".join(letter for letter in letters if not unicodedata.combining(letter))


text, accented = "กิน", "é"
print(f"AlbertTokenizer {normalizer.normalize_str(text)}, ALBERT's rule {by_rule(text)}")
assert normalizer.normalize_str(text) == "กน" and by_rule(text) == text
assert normalizer.normalize_str(accented) == by_rule(accented) == "e"
END
