"""Options of a command that are read from a TOML file, or from a recipe of the package."""

import json
import math
import re
import tomllib
from pathlib import Path

import click

from keras_lm.utils.registry import advice

RECIPES = Path(__file__).parents[1] / "recipes"
MOST_BYTES, LONGEST_KEY = 2**20, 80
DEEP_KEY = re.compile(r"""(?<![\w."'-])(?:(?:[\w-]+|"[^"\n]*"|'[^'\n]*')[ \t]*\.[ \t]*){20}""")


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
