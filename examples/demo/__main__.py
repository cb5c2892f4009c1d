"""`python examples/demo`: fine-tune a small BERT on film reviews, export it, serve it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from demo.command import demo_command

demo_command(prog_name="python examples/demo")
