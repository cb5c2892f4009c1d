"""A command of the command line: its errors as one message, and its options in a file.

With `--config`, options stand in a TOML file, as they do in the one that says what a command did.
"""

import errno
import json
import re

import click
from click.core import ParameterSource

from keras_lm.cli.config_file import find_config, read_config

WRITTEN = "run.toml"
# What other programs call an option → names here, of which a command may have one.
OTHER_NAMES = {
    "--lr": ("--learning-rate",),
    "--num-epochs": ("--epochs",),
    "--num-train-epochs": ("--epochs",),
    "--per-device-train-batch-size": ("--batch-size",),
    "--train-batch-size": ("--batch-size",),
    "--max-length": ("--max-new-tokens", "--sequence-length"),
    "--max-tokens": ("--max-new-tokens",),
    "--max-seq-length": ("--sequence-length",),
    "--max-sequence-length": ("--sequence-length",),
    "--do-sample": ("--temperature",),
    "--text-column": ("--text",),
    "--label-column": ("--labels",),
    "--label": ("--labels",),
    "--output-dir": ("--output",),
    "--out": ("--output",),
    "--train-file": ("--input",),
    "--file": ("--input",),
}
# What a file cannot hold: it would not be seen on the line that something is replaced.
ONLY_ON_THE_LINE = ("config", "overwrite", "recipes", "help")


class Command(click.Command):
    """A `click.Command` that shows errors as one message, in the words of its options.

    These are errors of our own classes, every `OSError`, a full memory, and what our code raises as
    `ValueError` or `ImportError`. Any other exception is a bug and shows its traceback.
    """

    def parse_args(self, ctx, args):
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            ours = [flag for option in self.params for flag in option.opts]
            wanted = OTHER_NAMES.get(error.option_name.replace("_", "-"), ())
            if found := [flag for flag in wanted if flag in ours]:
                error.possibilities = found
            raise

    def invoke(self, ctx):
        try:
            return super().invoke(ctx)
        except KeyboardInterrupt as error:
            if not str(error):
                raise
            raise click.ClickException(str(error)) from None  # that it can go on
        except Exception as error:
            message = self._message(error)
            if message is None:
                raise
            failure = click.ClickException(message)
            failure.exit_code = getattr(error, "exit_code", failure.exit_code)
            raise failure from error

    def _message(self, error):
        """Return what to tell the user; None if that is the error as it is."""
        if type(error).__name__ == "ResourceExhaustedError":  # TensorFlow's
            flags = [option.opts[-1] for option in self.params]
            lower = [flag for flag in ("--batch-size", "--sequence-length") if flag in flags]
            return f"the memory is full: lower {' or '.join(lower)}." if lower else None
        if type(error).__module__.startswith("tensorflow"):
            # Our own error in a generator is quoted with its traceback, once more by each reader.
            quoted = re.findall(r"^keras_lm[\w.]+: (.+)", str(error), re.MULTILINE)
            return self._in_options(quoted[0]) if quoted else None
        is_message = isinstance(error, OSError) or (
            isinstance(error, (ImportError, ValueError)) and _is_raised_by_us(error)
        )
        if isinstance(error, OSError) and error.errno == errno.EPIPE:
            return None  # our reader has enough: click ends quietly
        is_message = is_message or type(error).__module__.startswith("keras_lm")
        return self._in_options(str(error)) if is_message else None

    def _in_options(self, message):
        """Name the command's options in a message that names the arguments of a function."""
        for option in self.params:
            if isinstance(option, click.Option):
                flag = option.opts[-1]
                if option.is_flag:
                    message = re.sub(rf"(?<![\w./'-]){option.name}=True", flag, message)
                message = re.sub(rf"(?<![\w./'-]){option.name}=", f"{flag} ", message)
                if "_" in option.name and option.metavar != "COLUMN":  # no word, and no column
                    message = re.sub(rf"(?<![\w./'-]){option.name}\b", flag, message)
        return message


def _is_raised_by_us(error):
    """Return whether the innermost frame of an error is ours: then its message is for the user."""
    place = error.__traceback__
    while place.tb_next is not None:
        place = place.tb_next
    return place.tb_frame.f_globals.get("__name__", "").startswith("keras_lm")


# === Options in a file ===


class ConfiguredCommand(Command):
    """A command whose options, and arguments, may stand in the file of `--config`."""

    def parse_args(self, ctx, args):
        try:
            return super().parse_args(ctx, args)
        except click.BadParameter as error:
            name = error.param and error.param.name
            if name and ctx.get_parameter_source(name) is ParameterSource.DEFAULT_MAP:
                error.message = f"{error.message} (It stands in {ctx.meta[__name__]}.)"
            raise

    def params_of_file(self):
        """Return the parameters that a file can hold, by their keys."""
        keys = {
            param.name if isinstance(param, click.Argument) else param.opts[-1].lstrip("-"): param
            for param in self.params
        }
        return {key: param for key, param in keys.items() if key not in ONLY_ON_THE_LINE}

    @staticmethod
    def is_many(param):
        """Whether a parameter takes any number of values."""
        return param.nargs == -1 or getattr(param, "multiple", False)


class Files(click.Argument):
    """An argument of any number of values; those of the file if the line has none."""

    def consume_value(self, ctx, opts):
        given = {name: value for name, value in opts.items() if name != self.name or value}
        return super().consume_value(ctx, given)


def write_config(folder, **resolved):
    """Write what the current command runs with to `folder/run.toml`, and return its path.

    `resolved` are parameters whose values came after the line was read, such as a default that
    follows from the model. `keras-lm COMMAND --config` of the file repeats the run.
    """
    ctx = click.get_current_context()
    lines = [f"# keras-lm {ctx.command.name} --config {WRITTEN}"]
    for key, param in ctx.command.params_of_file().items():
        value = resolved.get(param.name, ctx.params.get(param.name))
        if value not in (None, (), []):
            lines.append(f"{key} = {_as_toml(value, ctx.command.is_many(param))}")
    path = folder / WRITTEN
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _as_toml(value, is_many):
    if is_many:
        return f"[{', '.join(_as_toml(part, False) for part in value)}]"
    if isinstance(value, (list, tuple)):  # as on the line: --class-names, --class-weight
        value = ",".join(value)
    elif isinstance(value, dict):
        value = ",".join(f"{name}={number!r}" for name, number in value.items())
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, (int, float)):
        return repr(value)
    # A text of JSON is one of TOML, but for one character.
    return json.dumps(str(value), ensure_ascii=False).replace("\x7f", "\\u007f")


def _configure(ctx, param, value):
    if value is not None:
        path = find_config(value)
        ctx.meta[__name__] = path
        ctx.default_map = {**(ctx.default_map or {}), **read_config(path, ctx.command)}


config_option = click.option(
    "--config",
    metavar="FILE",
    is_eager=True,
    expose_value=False,
    callback=_configure,
    help="TOML file of options by their names, such as epochs = 3; those on the line win. Relative "
    "paths in it start where you are.",
)
