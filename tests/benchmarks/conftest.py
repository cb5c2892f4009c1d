"""The way to the runner and the peers' programs: scripts beside one another, and no package."""

import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"

sys.path += [str(BENCHMARKS), str(BENCHMARKS / "peers")]
