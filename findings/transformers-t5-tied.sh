#!/usr/bin/env bash
# transformers 5.24.0. The configuration of an untied T5 (T5 1.1, flan-T5, mT5), once read, says
# tie_word_embeddings true, and a folder saved from it, too: what the entry once said is then in
# scale_decoder_outputs, false for these. Whether a head is tied shows in the tensors alone.
# Output seen for a config.json with false: tie_word_embeddings True, scale_decoder_outputs False
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet transformers==5.24.0
env/bin/python - <<'END'
import json
import pathlib

from transformers import T5Config

for folder in ("published", "saved"):
    pathlib.Path(folder).mkdir()
published = {"model_type": "t5", "feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
pathlib.Path("published/config.json").write_text(json.dumps(published))
T5Config.from_pretrained("published").save_pretrained("saved")
saved = json.loads(pathlib.Path("saved/config.json").read_text())
tied, scaled = saved["tie_word_embeddings"], saved["scale_decoder_outputs"]
print(f"tie_word_embeddings {tied}, scale_decoder_outputs {scaled}")
assert tied is True and scaled is False
END
