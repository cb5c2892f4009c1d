import importlib
import sys
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path

# keras-lm is not on the package index yet. This is a wheel, which `make wheel` builds in a clone, or
# a folder with a clone; it is found by itself if this notebook stands in one.
KERAS_LM = ".." if Path("../setup.py").exists() else "keras_lm-0.1.0-py3-none-any.whl"

before = version("tensorflow") if find_spec("tensorflow") else None
if find_spec("keras_lm") is None:
    if "google.colab" in sys.modules and not Path(KERAS_LM).exists():
        from google.colab import files

        print("Choose the wheel, or cancel.")
        files.upload()
    if not Path(KERAS_LM).exists():
        raise FileNotFoundError(f"KERAS_LM = {KERAS_LM!r}: upload a wheel, or name a clone.")
    # Else pip takes the newest TensorFlow, and Colab's other packages may want the one that is here.
    keep = f"tensorflow=={before}" if (before or "").startswith(("2.20.", "2.21.")) else ""
    %pip install --quiet "{KERAS_LM}[{EXTRAS}]" {keep}
for package, what in PACKAGES.items():
    if find_spec(package) is None:
        %pip install --quiet {what}
importlib.invalidate_caches()
if before and version("tensorflow") != before:
    print(f"TensorFlow {before} became {version('tensorflow')}. Restart the session (menu Runtime),")
    print("and run the notebook from the top.")
