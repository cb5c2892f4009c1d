"""Film reviews, as the demo reads them."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))

from demo.reviews import CLASS_NAMES, load_reviews

__all__ = ["CLASS_NAMES", "load_reviews"]
