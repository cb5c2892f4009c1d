"""`python examples/glue`: a model's scores on GLUE, beside published ones."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))

from glue.command import glue_command

glue_command(prog_name="python examples/glue")
