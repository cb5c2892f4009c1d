"""The command line, `keras-lm`.

Commands import TensorFlow only once they run, so that `keras-lm --help` answers at once.
"""

import os

os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")  # read by TensorFlow's C++ side when it loads

import click

from keras_lm.cli.convert import convert_command
from keras_lm.cli.demo import demo_command
from keras_lm.cli.distill import distill_command
from keras_lm.cli.evaluate import evaluate_command
from keras_lm.cli.export import export_command
from keras_lm.cli.features import features_command
from keras_lm.cli.finetune import finetune_command
from keras_lm.cli.glue import glue_command
from keras_lm.cli.group import Commands
from keras_lm.cli.inspect import inspect_command
from keras_lm.cli.list_models import models_command
from keras_lm.cli.predict import predict_command
from keras_lm.cli.prepare import prepare_command
from keras_lm.cli.pretrain import pretrain_command
from keras_lm.cli.serve import serve_command
from keras_lm.cli.translate import translate_command
from keras_lm.cli.vocab import vocab_command
from keras_lm.cli.workers import launch_command
from keras_lm.version import __version__


@click.group(
    cls=Commands,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100},
)
@click.version_option(__version__, prog_name="keras-lm")
def main():
    """Fine-tune classic language models on strings; ship one artefact that takes strings.

    \b
    The whole way, from published weights to a server that answers:
      keras-lm convert hf://google-bert/bert-base-uncased bert-base
      keras-lm finetune bert-base train.csv --output film-critic --validation-split 0.1
      keras-lm evaluate film-critic test.csv
      keras-lm export film-critic exported/film-critic
      keras-lm serve exported/film-critic
      keras-lm predict --server http://localhost:8501 --model film-critic "never a dull moment"

    For help on a step: keras-lm COMMAND --help. A CSV needs the columns text and label. A server is
    not needed to try a model: keras-lm predict film-critic "a text".

    \b
    From Python it is as short:
      task = keras_lm.tasks.TextClassifier.from_preset("bert-base", class_names=["bad", "good"])
      task.fit(texts, labels)
      task.export("exported/film-critic")
    """


for command in (
    convert_command,
    finetune_command,
    distill_command,
    evaluate_command,
    export_command,
    serve_command,
    predict_command,
    translate_command,
    features_command,
    inspect_command,
    models_command,
    vocab_command,
    prepare_command,
    pretrain_command,
    glue_command,
    launch_command,
    demo_command,
):
    main.add_command(command)
