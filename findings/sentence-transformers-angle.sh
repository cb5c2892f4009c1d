#!/usr/bin/env bash
# sentence-transformers 6.2.0. pairwise_angle_sim, the similarity that AnglELoss trains, is not
# symmetric, and is an absolute value: a vector and its opposite are as similar as can be.
# Output seen: (a, b) 1.3333, (b, a) 0.0, (a, a) 1.0, (a, -a) 1.0
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet sentence-transformers==6.2.0 transformers==5.24.0 torch==2.13.0 \
    tokenizers==0.23.3 numpy==2.4.6
env/bin/python - <<'END'
import torch
from sentence_transformers.util import pairwise_angle_sim

a, b = torch.tensor([[1.0, 2.0, 3.0, 4.0]]), torch.tensor([[4.0, 3.0, 2.0, 1.0]])
pairs = {"(a, b)": (a, b), "(b, a)": (b, a), "(a, a)": (a, a), "(a, -a)": (a, -a)}
seen = {name: round(pairwise_angle_sim(*pair).item(), 4) for name, pair in pairs.items()}
print(", ".join(f"{name} {value}" for name, value in seen.items()))
assert seen == {"(a, b)": 1.3333, "(b, a)": 0.0, "(a, a)": 1.0, "(a, -a)": 1.0}
END
