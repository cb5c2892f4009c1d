#!/usr/bin/env bash
# pyarrow 26.0.1. A Parquet column read with read_dictionary has a dictionary of its own in each
# row group: the same code means another string in the next chunk, and codes put together as labels
# are wrong in silence. Call unify_dictionaries(), or go by the strings.
# Output seen for bad, good, fine in three row groups: codes [0, 0, 0], unified [0, 1, 2]
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet pyarrow==26.0.1 numpy==2.4.6
env/bin/python - <<'END'
import io

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

file = io.BytesIO()
pq.write_table(pa.table({"label": ["bad", "good", "fine"]}), file, row_group_size=1)
column = pq.read_table(file, read_dictionary=["label"])["label"]


def codes(column):
    return np.concatenate([chunk.indices.to_numpy() for chunk in column.chunks]).tolist()


unified = codes(column.unify_dictionaries())
print(f"codes {codes(column)}, unified {unified}")
assert column.to_pylist() == ["bad", "good", "fine"]
assert codes(column) == [0, 0, 0] and unified == [0, 1, 2]
END
