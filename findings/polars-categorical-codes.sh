#!/usr/bin/env bash
# polars 2.1.0. The codes of a Categorical follow what the whole process has seen first, also in
# other columns and frames: labels by to_physical() depend on what ran before, and a script and a
# server number the same column differently. Go by the strings, or take an Enum.
# Output seen for good, fine in a new process: [0, 1]; after another series: [1, 2]
set -euo pipefail
folder=$(mktemp -d) && trap 'rm -rf "$folder"' EXIT && cd "$folder"
python3 -m venv env
env/bin/pip install --quiet polars==2.1.0
env/bin/python - <<'END'
import subprocess
import sys

code = '''
import polars as pl
{before}
print(pl.Series(["good", "fine"], dtype=pl.Categorical).to_physical().to_list())
'''


def codes(before=""):
    program = code.format(before=before)
    return subprocess.check_output([sys.executable, "-c", program], text=True).strip()


alone, after = codes(), codes('other = pl.Series(["bad", "good"], dtype=pl.Categorical)')
print(f"in a new process: {alone}; after another series: {after}")
assert alone == "[0, 1]" and after == "[1, 2]"
END
