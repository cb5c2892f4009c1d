#!/usr/bin/env bash
# seqeval 1.2.2. Labels without B- and I- are not refused: the first letter is taken as the prefix.
# An ORG is outside, as O is; EVENT is an entity at each token, since E ends one; LOC is one over
# all of its tokens. Scores come out, of other entities than the file has.
# Output seen: EVENT EVENT [('VENT', 0, 0), ('VENT', 1, 1)], LOC LOC [('OC', 0, 1)], ORG ORG []
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet seqeval==1.2.2 numpy==2.4.6
env/bin/python - <<'END'
import warnings

from seqeval.metrics.sequence_labeling import get_entities

warnings.simplefilter("ignore")
seen = {text: get_entities(text.split()) for text in ("EVENT EVENT", "LOC LOC", "ORG ORG")}
print(", ".join(f"{text} {entities}" for text, entities in seen.items()))
assert seen["EVENT EVENT"] == [("VENT", 0, 0), ("VENT", 1, 1)]
assert seen["LOC LOC"] == [("OC", 0, 1)] and seen["ORG ORG"] == []
END
