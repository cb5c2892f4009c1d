#!/usr/bin/env bash
# TensorFlow Text 2.21.1. FastSentencepieceTokenizer follows remove_extra_whitespaces, except for
# the spaces before a text of a model with add_dummy_prefix=false: it turns them into one "▁",
# where SentencepieceTokenizer, and sentencepiece, drop them. Strip the texts of such a model
# first.
# Output seen: fast ['▁', 'a', '▁', 'b'], other ['a', '▁', 'b']
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet tensorflow==2.21.0 tensorflow-text==2.21.1 sentencepiece==0.2.1 \
    keras==3.15.1 protobuf==6.33.5 numpy==2.4.4
env/bin/python - <<'END'
import io

import sentencepiece
import tensorflow_text

model = io.BytesIO()
sentencepiece.SentencePieceTrainer.train(
    sentence_iterator=iter(["a b", "b a", "a", "b"] * 9),
    model_writer=model,
    vocab_size=6,
    hard_vocab_limit=False,
    add_dummy_prefix=False,
    minloglevel=2,
)
data = model.getvalue()
reference = sentencepiece.SentencePieceProcessor(model_proto=data)
text = "  a  b "
fast, other = (
    [reference.id_to_piece(i) for i in kind(data).tokenize([text])[0].numpy().tolist()]
    for kind in (
        tensorflow_text.FastSentencepieceTokenizer,
        tensorflow_text.SentencepieceTokenizer,
    )
)
print(f"fast {fast}, other {other}")
assert other == reference.encode(text, out_type=str) == ["a", "▁", "b"]
assert fast == ["▁", *other]
END
