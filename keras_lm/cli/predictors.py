"""What `keras-lm predict` can ask: a task, an export, a server; all by one method `answer`.

TensorFlow is imported only by those that need it.
"""

from pathlib import Path

import click

from keras_lm.cli.saved_models import find_version
from keras_lm.cli.terminal import first_line, plain
from keras_lm.litert import open_interpreter
from keras_lm.standard_error import quiet

KNOWN_ORDER = ("text", "text_pair")


def open_model(model, options):
    """Return what answers for MODEL, told by what lies there."""
    signature = options["signature"] or "serving_default"
    path = Path(model).expanduser()
    folder = find_version(path, options["version"])
    if folder is not None:
        return SavedModel(folder, signature)
    if options["version"] is not None:
        raise click.UsageError(f"{model} has no versions: leave --version out.")
    if path.suffix == ".tflite":
        return LiteRTModel(path, signature)
    if options["signature"]:
        raise click.UsageError(f"{model} is not exported, so --signature means nothing to it.")

    from keras_lm.cli.sources import load_task

    return TaskModel(load_task(model), text_pair=options["text_pair"] is not None)


def answers_by_row(model, texts, batch_size):
    """Return the answer to each row of texts by its place; rows of like lengths run together."""
    found = {}
    for places, batch in by_length(texts, batch_size):
        answer = model.answer(batch)
        for row, place in enumerate(places):
            found[place] = {name: plain(answer[name][row]) for name in sorted(answer)}
    return found


def by_length(texts, batch_size):
    """Yield `(places, texts)` of batches, the longest texts first."""
    # By characters: an export or a server may have the only tokenizer.
    sizes = [sum(map(len, row)) for row in zip(*texts.values(), strict=True)]
    order = sorted(range(len(sizes)), key=lambda place: -sizes[place])
    for start in range(0, len(order), batch_size):
        places = order[start : start + batch_size]
        yield places, {name: [column[n] for n in places] for name, column in texts.items()}


class TaskModel:
    """A `keras_lm.tasks.Task`; `text_pair` only matters if it takes both texts and pairs."""

    def __init__(self, task, text_pair=False):
        self.task = task
        takes_pairs = text_pair if task.text_pair is None else task.text_pair
        self.inputs = list(task.text_names if takes_pairs else task.answer_names)

    def answer(self, columns):
        """Return a dict of arrays, a row per text, for a dict of lists of strings."""
        # Its caller shows progress, over all batches.
        return self.task.answer_all(columns, batch_size=len(columns[self.inputs[0]]), verbose=0)


class SavedModel:
    """A signature of an exported SavedModel; `folder` is that of one version."""

    def __init__(self, folder, signature):
        import tensorflow as tf
        import tensorflow_text  # noqa: F401 - registers the tokenizer's operations

        try:
            self.model = tf.saved_model.load(str(folder))  # its signatures do not keep it alive
        except Exception as error:  # damaged files raise whatever the part that meets them raises
            raise click.ClickException(
                f"{folder} cannot be loaded: {first_line(error)} Export it again."
            ) from error
        if signature not in self.model.signatures:
            raise no_signature(folder, signature, self.model.signatures)
        self.function = self.model.signatures[signature]
        specs = self.function.structured_input_signature[1]
        self.inputs = string_inputs(signature, {n: spec.dtype.name for n, spec in specs.items()})

    def answer(self, columns):
        import tensorflow as tf

        tensors = {name: tf.constant(encoded(column)) for name, column in columns.items()}
        try:
            return {name: value.numpy() for name, value in self.function(**tensors).items()}
        except tf.errors.OpError as error:
            raise refused(error) from error


class LiteRTModel:
    """A `.tflite` file under LiteRT's interpreter."""

    def __init__(self, path, signature):
        import numpy as np

        try:
            interpreter = open_interpreter(path)
            names = interpreter.get_signature_list()
        except ImportError as error:
            raise click.ClickException(str(error)) from error
        except (RuntimeError, ValueError) as error:
            raise click.ClickException(
                f"{path} cannot be loaded: {first_line(error)} Export it again."
            ) from error
        if signature not in names:
            raise no_signature(path, signature, names)
        self.interpreter = interpreter  # the runner does not keep it alive
        with quiet():  # which delegate it has
            self.runner = interpreter.get_signature_runner(signature)
        details = self.runner.get_input_details()
        dtypes = {
            n: "string" if d["dtype"] is np.bytes_ else str(d["dtype"]) for n, d in details.items()
        }
        self.inputs = string_inputs(signature, dtypes)

    def answer(self, columns):
        import numpy as np

        arrays = {name: np.array(encoded(column)) for name, column in columns.items()}
        for name, array in arrays.items():
            if not array.size:  # the interpreter would end the process
                raise click.ClickException(f"the model cannot answer: {name} is empty.")
        try:
            return self.runner(**arrays)
        except (RuntimeError, ValueError) as error:
            raise refused(error) from error


class ServedModel:
    """A model that a `Client` asks; over REST it needs no TensorFlow."""

    def __init__(self, client, signature):
        self.client = client
        self.signature = signature
        signatures = self._ask(client.metadata)
        if signature not in signatures:
            raise no_signature("the server's model", signature, signatures)
        specs = signatures[signature]["inputs"]
        dtypes = {
            name: spec["dtype"].removeprefix("DT_").lower()
            for name, spec in specs.items()
            if "default" not in spec
        }
        self.inputs = string_inputs(signature, dtypes)

    def answer(self, columns):
        return self._ask(self.client.predict, columns, self.signature)

    def _ask(self, method, *arguments):
        from keras_lm.serving.client import ServerError

        try:
            return method(*arguments)
        except ServerError as error:
            raise click.ClickException(str(error)) from error


def string_inputs(signature, dtypes):
    """Return the names of a signature's inputs, `text` first; all have to be strings."""
    if set(dtypes.values()) != {"string"}:
        listed = ", ".join(f"{name} ({dtype})" for name, dtype in dtypes.items())
        raise click.ClickException(
            f"the signature {signature!r} takes {listed}, and predict has strings only: choose "
            "another with --signature."
        )
    return sorted(dtypes, key=lambda name: (name not in KNOWN_ORDER, name))


def refused(error):
    """Return the error for texts that an export does not take."""
    return click.ClickException(f"the model cannot answer: {first_line(error)}")


def no_signature(what, signature, known):
    """Return the error for a signature that is not there."""
    return click.ClickException(
        f"{what} has no signature {signature!r}; it has {', '.join(known) or 'none'}."
    )


def encoded(column):
    """Return strings as UTF-8; half a surrogate pair becomes bytes that the tokenizers replace.

    Lists are made equally long by empty strings.
    """
    if any(isinstance(row, list) for row in column):
        width = max(map(len, column))
        return [encoded([*row, *[""] * (width - len(row))]) for row in column]
    return [text.encode("utf-8", "surrogatepass") for text in column]
