#!/usr/bin/env bash
# sentence-transformers 6.2.0. MultipleNegativesRankingLoss with directions both ways, in its
# partition_mode "joint", counts the positive pair twice in the denominator: a perfect batch has
# the loss ln 2, not 0. With "per_direction" it is 0.
# Output seen for a perfect batch: joint 0.6931, per_direction 0.0
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


model = model_of(np.eye(4))


def value(mode):
    directions = ("query_to_doc", "doc_to_query")
    loss = losses.MultipleNegativesRankingLoss(
        model, scale=50.0, directions=directions, partition_mode=mode
    )
    columns = [model.preprocess(["0", "1", "2", "3"]) for side in ("queries", "documents")]
    return abs(round(loss(columns, None).item(), 4))


joint, per_direction = value("joint"), value("per_direction")
print(f"joint {joint}, per_direction {per_direction}")
assert joint == 0.6931 and per_direction == 0.0
END
