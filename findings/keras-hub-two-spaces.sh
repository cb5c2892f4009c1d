#!/usr/bin/env bash
# KerasHub 0.32.0 and tokenizers 0.23.3. Over the same vocabulary, KerasHub's byte-pair tokenizer
# splits two spaces before a word in another way than GPT-2's regular expression, which leaves the
# last one to the word: other ids, so other logits, for indented or doubly spaced text.
# Output seen for "a  b": KerasHub a ĠĠ b, tokenizers a Ġ Ġb
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet keras==3.15.1 jax==0.10.2 tokenizers==0.23.3 sentencepiece==0.2.3 \
    regex==2026.11.19 kagglehub==1.0.2 numpy==2.4.6
env/bin/pip install --quiet --no-deps keras-hub==0.32.0
KERAS_BACKEND=jax env/bin/python - <<'END'
from keras_hub.tokenizers import BytePairTokenizer
from tokenizers import Tokenizer, models, pre_tokenizers

vocabulary = {token: i for i, token in enumerate(["<|endoftext|>", "a", "b", "Ġ", "ĠĠ", "Ġb"])}
merges = [("Ġ", "Ġ"), ("Ġ", "b")]
keras_hub = BytePairTokenizer(vocabulary=vocabulary, merges=[" ".join(pair) for pair in merges])
reference = Tokenizer(models.BPE(vocab=vocabulary, merges=merges))
reference.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
theirs = " ".join(keras_hub.id_to_token(int(i)) for i in keras_hub("a  b"))
usual = " ".join(reference.encode("a  b").tokens)
print(f"KerasHub {theirs}, tokenizers {usual}")
assert theirs == "a ĠĠ b" and usual == "a Ġ Ġb"
END
