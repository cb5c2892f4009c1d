#!/usr/bin/env bash
# sentencepiece 0.2.3. `alpha` of sampled segmentation means opposite things: with a unigram model
# it sharpens (10 gives the best split, 0 any), with BPE it is the share of merges that are dropped
# (0 gives the best split, 1 single letters). A value for the one is noise for the other.
# Output seen, different splits in 100: unigram 3 at 0.0 and 1, the best, at 10.0;
# bpe 1, the best, at 0.0 and 1, of single letters, at 1.0
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet sentencepiece==0.2.3
env/bin/python - <<'END'
import io
import random

import sentencepiece

random.seed(0)
words = "under stand standing understand able notable ability stable unstable".split()
lines = [" ".join(random.choices(words, k=5)) for _ in range(500)]


def splits(kind, alpha):
    model = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(
        sentence_iterator=iter(lines),
        model_writer=model,
        model_type=kind,
        vocab_size=40,
        hard_vocab_limit=False,
        minloglevel=2,
    )
    processor = sentencepiece.SentencePieceProcessor(model_proto=model.getvalue())
    options = {"out_type": str, "enable_sampling": True, "nbest_size": -1, "alpha": alpha}
    found = {tuple(processor.encode("understandable", **options)) for _ in range(100)}
    return found, tuple(processor.encode("understandable", out_type=str))


for kind, alpha in (("unigram", 0.0), ("unigram", 10.0), ("bpe", 0.0), ("bpe", 1.0)):
    found, best = splits(kind, alpha)
    print(f"{kind} at {alpha}: {len(found)}, {' '.join(min(found))}")
    if (kind, alpha) == ("unigram", 0.0):
        assert len(found) > 1
    elif (kind, alpha) == ("bpe", 1.0):
        assert found == {("▁", *"understandable")}
    else:
        assert found == {best}
END
