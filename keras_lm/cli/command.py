"""A command of the command line: its errors as one message, and where its options come from.

Options come from the command line and from the TOML file of `--config`, which may be a recipe of
the package, or the file that says what a command did. Apache Beam's own follow after `--`.
"""

import contextlib
import errno
import functools
import json
import logging
import math
import re
import tomllib
from pathlib import Path

import click
from click.core import ParameterSource

from keras_lm.utils import optional_dependencies
from keras_lm.utils.files import OF_A_PATH
from keras_lm.utils.quiet_stderr import quiet
from keras_lm.utils.registry import advice

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
            rest = super().parse_args(ctx, args)
            self._refuse_addresses(ctx)
            return rest
        except click.NoSuchOption as error:
            ours = [flag for option in self.params for flag in option.opts]
            wanted = OTHER_NAMES.get(error.option_name.replace("_", "-"), ())
            if known := [flag for flag in wanted if flag in ours]:
                error.possibilities = known
            raise

    def _refuse_addresses(self, ctx):
        """Raise an error if an address stands for a path that must be on this machine."""
        for param in self.params:
            value = ctx.params.get(param.name)
            if isinstance(value, Path) and OF_A_PATH.match(str(value)):
                raise click.BadParameter(
                    f"{value} comes from an address: name a path on this machine.", ctx, param
                )

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
        flags = [flag for option in self.params for flag in option.opts]
        for option in self.params:
            if isinstance(option, click.Option):
                same = f"--{option.name.replace('_', '-')}"  # perhaps another option's
                flag = same if same in flags else option.opts[-1]
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


def takes(options_class):
    """Return a decorator: a command's function takes its options as an instance of a dataclass."""

    def decorate(function):
        """Make the function one of the options by their names, as click calls it."""

        @functools.wraps(function)
        def run(**values):
            return function(options_class(**values))

        return run

    return decorate


# === Options in a file ===

RECIPES = Path(__file__).parents[1] / "recipes"
MOST_BYTES, LONGEST_KEY = 2**20, 80
DEEP_KEY = re.compile(r"""(?<![\w."'-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){20}""")


class ConfiguredCommand(Command):
    """A command whose options, and arguments, may be in the file of `--config`."""

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


def write_config(options, folder):
    """Write what the current command runs with to `run.toml` in a folder, its output.

    `keras-lm COMMAND --config` of the file repeats the run.
    """
    command = click.get_current_context().command
    lines = [f"# keras-lm {command.name} --config {WRITTEN}"]
    for key, param in command.params_of_file().items():
        value = getattr(options, param.name)
        if value not in (None, (), []):
            lines.append(f"{key} = {_as_toml(value, command.is_many(param))}")
    (folder / WRITTEN).write_text("\n".join(lines) + "\n", encoding="utf-8")


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


def recipe_names():
    """Return the names of the recipes that come with the package, sorted."""
    return sorted(path.stem for path in RECIPES.glob("*.toml"))


def find_config(value):
    """Return the path of a file, or of the shipped recipe of this name.

    Raises:
        click.UsageError: if there is neither.
    """
    path = Path(value).expanduser()
    if path.is_file():
        return path
    if value in recipe_names():
        return RECIPES / f"{value}.toml"
    raise click.UsageError(
        f"--config {value}: there is no such file, and no recipe of this name."
        f"{advice(value, recipe_names())} Recipes are {', '.join(recipe_names())}."
    )


def read_config(path, command):
    """Return the options of a command in a TOML file: dict of parameter's name → value.

    Raises:
        click.UsageError: if the file is not TOML, or has a key that is not an option of the
            command, or a value of another type; names the file and the key.
    """
    try:
        table = tomllib.loads(_read(path))
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"{path} is not a TOML file: {error}") from error
    params = command.params_of_file()
    for key, value in table.items():
        if key not in params:
            raise click.UsageError(
                f"{path} has {key[:200]!r}, which is not an option of keras-lm {command.name} "
                f"that a file can hold.{advice(key, params) if len(key) < LONGEST_KEY else ''}"
            )
        fits, wanted = _type_of(params[key], command.is_many(params[key]))
        if not fits(value):
            raise click.UsageError(f"{path} has {key} = {_shown(value)}: it must be {wanted}.")
    return {params[key].name: value for key, value in table.items()}


def _read(path):
    """Return the text of a file; raise an error if it is larger than options can be."""
    if path.stat().st_size > MOST_BYTES:
        raise ValueError(f"it has more than {MOST_BYTES} bytes.")
    text = path.read_text(encoding="utf-8")
    if DEEP_KEY.search(text):  # each part would take as much memory as all before it
        raise ValueError("it has a key of many parts, and options have one.")
    return text


def _shown(value):
    try:
        return json.dumps(value, default=str)[:200]
    except (ValueError, RecursionError):
        return "a number with very many digits"


def _type_of(param, is_many):
    """Return whether a TOML value is of a parameter's type, as a function, and what that is."""
    if is_many:
        return lambda v: isinstance(v, list) and all(isinstance(x, str) for x in v), (
            'a list of texts, ["…", "…"]'
        )
    if getattr(param, "is_flag", False):
        return lambda v: isinstance(v, bool), "true or false"
    if isinstance(param.type, (click.IntRange, click.types.IntParamType)):
        return lambda v: type(v) is int and abs(v) < 2**63, "a whole number"
    if isinstance(param.type, (click.FloatRange, click.types.FloatParamType)):
        return lambda v: type(v) in (int, float) and math.isfinite(v), "a number, and finite"
    return lambda v: isinstance(v, str), 'a text, in "quotes"'


def _list_recipes(ctx, param, value):
    if value:
        names = recipe_names()
        for name in names:
            first = (RECIPES / f"{name}.toml").read_text(encoding="utf-8").partition("\n")[0]
            click.echo(f"{name:<{max(map(len, names))}}  {first.lstrip('# ')}")
        ctx.exit()


recipes_option = click.option(
    "--recipes",
    is_flag=True,
    is_eager=True,
    expose_value=False,
    callback=_list_recipes,
    help="List the published recipes that --config knows by name, and exit.",
)


# === Options of Apache Beam ===

RUNNER = "--runner"
BEAM = "beam_flags"


class BeamCommand(Command):
    """A command on whose line Beam's own options may follow after `--`.

    If `only_with_runner`, they do so only where `--runner` is given; else `--` means what it always
    means: that no option follows.
    """

    only_with_runner = False

    def parse_args(self, ctx, args):
        flags = []
        given = any(arg.partition("=")[0] == RUNNER for arg in args)
        if "--" in args and (given or not self.only_with_runner):
            border = args.index("--")
            args, flags = args[:border], args[border + 1 :]
        ctx.meta[BEAM] = flags
        return super().parse_args(ctx, args)


class PerhapsBeamCommand(BeamCommand):
    """A `BeamCommand` that runs on Beam only with `--runner`."""

    only_with_runner = True


def beam_flags(runner, processes):
    """Return Beam's options: those of ours, in its words, and those after `--`."""
    if processes > 1 and runner != "DirectRunner":
        raise click.UsageError(
            f"--processes is for --runner DirectRunner; {runner} has options of its own, after --."
        )
    flags = [f"--runner={runner}"]
    if processes > 1:
        flags += ["--direct_running_mode=multi_processing", f"--direct_num_workers={processes}"]
    return [*flags, *click.get_current_context().meta[BEAM]]


@contextlib.contextmanager
def beam(purpose, runner):
    """Import Beam for a command, and keep its remarks off the terminal.

    Workers of the DirectRunner print the traceback of any error there, which is raised besides.
    Other runners may say there how far they are.
    """
    log = logging.getLogger()
    level = log.level
    log.setLevel(logging.ERROR)
    try:
        with quiet() if runner == "DirectRunner" else contextlib.nullcontext():
            optional_dependencies.require("apache_beam", purpose)
            yield
    except ImportError as error:
        raise click.ClickException(str(error)) from error
    finally:
        log.setLevel(level)
