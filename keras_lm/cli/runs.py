"""Training on windows or rows in a folder of its own, for commands. Imports TensorFlow.

While a run goes on, `OUTPUT.unfinished` holds what it is (`run.json`), its tokens, and how far it
has come; the same command goes on from there, and removes the folder at the end.
"""

import hashlib
import json
import math
import shutil
from pathlib import Path

import click
import keras
import tensorflow as tf

from keras_lm import data, training
from keras_lm.files import replacing
from keras_lm.training.distribution import chief_first, workers_of


class Run:
    """A run that can be interrupted at any time, and continued with the same `settings` only.

    `output` is the `Path` of the preset to be written at the end. Of the workers of a strategy, the
    chief writes, and all see the folder.
    """

    def __init__(self, output, settings, strategy=None):
        self.strategy = strategy or tf.distribute.get_strategy()
        self.folder = output.with_name(f"{output.name}.unfinished")
        about = self.folder / "run.json"
        settings = json.loads(json.dumps(settings, default=str))
        chief_first(self.strategy, lambda: self._begin(about, settings))

    def _begin(self, about, settings):
        if about.is_file():
            stored = json.loads(about.read_text(encoding="utf-8"))
            changed = sorted(
                name for name in {*stored, *settings} if stored.get(name) != settings.get(name)
            )
            if changed:
                raise click.ClickException(
                    f"{self.folder} holds an unfinished run with another {', '.join(changed)}. "
                    "Repeat its command to go on, or remove the folder to begin anew."
                )
            if workers_of(self.strategy).is_chief:  # others find what the chief has just begun
                click.echo(f"Going on with the run in {self.folder}.")
        elif self.folder.exists():
            raise click.ClickException(
                f"{self.folder} exists and is no unfinished run: rename it, or choose another "
                "--output."
            )
        else:
            with replacing(about) as new:
                new.write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")

    def fit(
        self,
        task,
        documents,
        validation=None,
        rows=None,
        minutes=5.0,
        callbacks=(),
        own_shards=False,
        **options,
    ):
        """Train from where an earlier command was interrupted; return a dict of metric → values.

        `documents` and `validation`: see `keras_lm.data.token_windows`, or with `rows`, a dict of
        its settings, `keras_lm.data.pretraining_rows`; or the folder of their shards, of which
        with `own_shards` each worker reads a part of its own for training;
        other arguments: see `keras_lm.training.fit_windows`. The folder of the run is removed if
        training fails before anything was saved, or if the loss is no longer a number.
        """
        state = self.folder / "state.safetensors"
        try:
            if validation is not None:
                validation = self._windows(task, validation, "validation", rows)
            history = training.fit_windows(
                task,
                self._windows(task, documents, "tokens", rows, own_shards),
                validation_windows=validation,
                checkpoint=state,
                minutes=minutes,
                callbacks=[keras.callbacks.TerminateOnNaN(), *callbacks],
                **options,
            )
        except BaseException as error:
            if not state.is_file():
                self.remove()
            elif isinstance(error, KeyboardInterrupt):
                raise click.ClickException(
                    f"interrupted. The same command goes on from what {self.folder} holds."
                ) from None
            if isinstance(error, tf.errors.ResourceExhaustedError):
                raise click.ClickException(
                    "the memory is full: lower --batch-size or --sequence-length."
                ) from error
            raise
        if history and not math.isfinite(history["loss"][-1]):
            self.remove()
            raise click.ClickException(
                "the loss is no longer a number: try a lower --learning-rate. Nothing was written."
            )
        return history

    def _windows(self, task, documents, name, rows, own_shards=False):
        if isinstance(documents, (str, Path)):
            workers = workers_of(self.strategy)
            part = {"worker": workers.index, "num_workers": workers.number} if own_shards else {}
            return data.read_token_shards(documents, task.tokenizer, **part)
        return chief_first(self.strategy, lambda: self._written(task, documents, name, rows))

    def _written(self, task, documents, name, rows):
        folder = self.folder / name
        length = task.packing["sequence_length"]
        if not folder.exists() and rows is None:
            number = data.write_token_shards(documents, task.tokenizer, length, folder)
            click.echo(f"{name}: {number:,} windows of {length} tokens")
        elif not folder.exists():
            template = task.packer.template
            number = data.write_row_shards(
                documents, task.tokenizer, template, length, folder, **rows
            )
            click.echo(f"{name}: {number:,} rows of {length} tokens")
        return data.read_token_shards(folder, task.tokenizer)

    def remove(self):
        if workers_of(self.strategy).is_chief:
            shutil.rmtree(self.folder)


def without_blank(texts):
    """Return the texts that are documents: all but those of white space alone."""
    return [text for text in texts if text.strip()]


def fingerprint(texts):
    """Return what tells a corpus from another: a digest of its texts, str or bytes."""
    digest = hashlib.sha256()
    for text in texts:
        text = text if isinstance(text, bytes) else text.encode("utf-8", "surrogatepass")
        digest.update(len(text).to_bytes(8, "little") + text)
    return digest.hexdigest()
