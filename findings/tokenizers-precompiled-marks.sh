#!/usr/bin/env bash
# tokenizers 0.23.3 and sentencepiece 0.2.3. Both read the same map of characters (nmt_nfkc), the
# first as the normalizer Precompiled, as of XLM-R, T5 and ALBERT. Where the map has an entry for
# the beginning of a grapheme, tokenizers replaces all of the grapheme, and its further marks are
# lost; SentencePiece goes on after the entry.
# Output seen: "ﬁ" with an acute accent: tokenizers 'fi', sentencepiece 'fí'; "a" with a diaeresis
# and a dot below: 'ä' and 'ạ̈'
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet tokenizers==0.23.3 sentencepiece==0.2.3 protobuf==7.36.2
env/bin/python - <<'END'
from sentencepiece import SentencePieceProcessor, SentencePieceTrainer, sentencepiece_model_pb2
from tokenizers import normalizers

sentences = ["a fine day by the sea", "the sea is near and the day is fine"] * 20
with open("texts", "w") as file:
    file.write("\n".join(sentences))
options = {"hard_vocab_limit": False, "minloglevel": 2, "normalization_rule_name": "nmt_nfkc"}
SentencePieceTrainer.train(input="texts", model_prefix="m", vocab_size=25, **options)
model = sentencepiece_model_pb2.ModelProto.FromString(open("m.model", "rb").read())
normalizer = normalizers.Precompiled(model.normalizer_spec.precompiled_charsmap)
processor = SentencePieceProcessor(model_file="m.model")
for text, ours, theirs in (
    ("\ufb01\u0301", "fi", "fi\u0301"),
    ("a\u0308\u0323", "\u00e4", "\u00e4\u0323"),
    ("\ufb01", "fi", "fi"),
):
    found = normalizer.normalize_str(text), processor.normalize(text).lstrip("\u2581")
    print(f"{text}: tokenizers {found[0]!r}, sentencepiece {found[1]!r}")
    assert found == (ours, theirs), found
END
