#!/usr/bin/env bash
# sentence-transformers 6.2.0. TripletLoss inside of MatryoshkaLoss sees normalised vectors, also
# at full width. Their distances are at most 2, so the usual margin of 5 is never reached, and the
# loss never gets to 0, however good the vectors are.
# Output seen for a negative 100 away: TripletLoss 0.0, inside of MatryoshkaLoss 3.5858
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet sentence-transformers==6.2.0 transformers==5.24.0 torch==2.13.0 \
    tokenizers==0.23.3 numpy==2.4.6
env/bin/python - <<'END'
import numpy as np
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer import losses
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models, pre_tokenizers


def model_of(table):
    words = {str(i): i for i in range(len(table))}
    tokenizer = Tokenizer(models.WordLevel(words, unk_token="0"))
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    static = StaticEmbedding(tokenizer, embedding_weights=np.array(table, "float32"))
    return SentenceTransformer(modules=[static], device="cpu")


model = model_of([[0, 1], [0, 1], [100, 0]])
triplet = losses.TripletLoss(model, triplet_margin=5)
nested = losses.MatryoshkaLoss(model, triplet, matryoshka_dims=[2])


def value(loss):
    columns = [model.preprocess([text]) for text in ("0", "1", "2")]
    return round(loss(columns, None).item(), 4)


alone, inside = value(losses.TripletLoss(model, triplet_margin=5)), value(nested)
print(f"TripletLoss {alone}, inside of MatryoshkaLoss {inside}")
assert alone == 0.0 and inside == 3.5858
END
