#!/usr/bin/env bash
# safetensors 0.8.0. save_model stores a table that two layers share once, under the name that
# comes first in the alphabet: of a language model lm_head.weight, so that the embedding's is
# missing. It stands in the header alone.
# Output seen: tensors ['lm_head.weight'], header {'wte.weight': 'lm_head.weight'}
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet safetensors==0.8.0 torch==2.13.0 numpy==2.4.6
env/bin/python - <<'END'
import torch
from safetensors import safe_open
from safetensors.torch import save_model

model = torch.nn.Module()
model.wte = torch.nn.Embedding(4, 2)
model.lm_head = torch.nn.Linear(2, 4, bias=False)
model.lm_head.weight = model.wte.weight
save_model(model, "model.safetensors")
with safe_open("model.safetensors", "pt") as file:
    names, header = list(file.keys()), file.metadata()
print(f"tensors {names}, header {header}")
assert names == ["lm_head.weight"] and header == {"wte.weight": "lm_head.weight"}
END
