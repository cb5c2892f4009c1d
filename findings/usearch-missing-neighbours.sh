#!/usr/bin/env bash
# usearch 2.26.6 and faiss-cpu 1.15.1. If an index has fewer rows than are asked for, a search of
# several queries by usearch fills up with key 0, which is a row, at distance NaN; faiss fills up
# with -1. Cut each row at `counts`.
# Output seen, 2 rows, 3 asked for: usearch [1, 0, 0], faiss [1, 0, -1]
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet usearch==2.26.6 faiss-cpu==1.15.1 numpy==2.4.6
env/bin/python - <<'END'
import faiss
import numpy as np
from usearch.index import Index

rows = np.eye(2, dtype="float32")
queries = np.array([[0, 1], [0.1, 1]], "float32")
index = Index(ndim=2, metric="ip", dtype="f32")
index.add(np.arange(2), rows)
found = index.search(queries, 3)
flat = faiss.IndexFlatIP(2)
flat.add(rows)
by_usearch, by_faiss = found.keys[0].tolist(), flat.search(queries, 3)[1][0].tolist()
print(f"usearch {by_usearch}, faiss {by_faiss}")
assert by_usearch == [1, 0, 0] and by_faiss == [1, 0, -1]
assert np.isnan(found.distances[0, 2]) and found.counts.tolist() == [2, 2]
END
