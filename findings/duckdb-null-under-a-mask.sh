#!/usr/bin/env bash
# DuckDB 2.0.1. fetchnumpy returns a column with NULL as a masked array of integers, not of floats
# with NaN: numpy.asarray, which Keras calls, drops the mask, and a missing label trains as 0.
# Output seen for 1, NULL, 2: int32 [1, 0, 2]
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet duckdb==2.0.1 numpy==2.4.6
env/bin/python - <<'END'
import duckdb
import numpy as np

rows = duckdb.sql("select * from (values (1), (NULL), (2)) rows(label)")
column = rows.fetchnumpy()["label"]
plain = np.asarray(column)
print(f"{plain.dtype} {plain.tolist()}")
assert column.mask.tolist() == [False, True, False]
assert plain.dtype == "int32" and plain.tolist() == [1, 0, 2]
END
