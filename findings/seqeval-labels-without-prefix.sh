#!/usr/bin/env bash
# seqeval 1.2.2. Labels without B- and I- are not refused: the first letter is taken for the
# prefix. So EVENT and ISLAND are entities (of types VENT and SLAND), while LOC is found only where
# it ends and ORG, whose O means outside, never. Scores come out, of some classes.
# Output seen: EVENT [('VENT', 0, 0)], LOC LOC [('OC', 0, 1)], ORG []
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
cd "$folder"
python3 -m venv env
env/bin/pip install --quiet seqeval==1.2.2 numpy==2.4.6
env/bin/python - <<'END'
import warnings

from seqeval.metrics.sequence_labeling import get_entities

warnings.simplefilter("ignore")
seen = {text: get_entities(text.split()) for text in ("EVENT", "LOC LOC", "ORG")}
print(", ".join(f"{text} {entities}" for text, entities in seen.items()))
assert seen == {"EVENT": [("VENT", 0, 0)], "LOC LOC": [("OC", 0, 1)], "ORG": []}
END
