"""`keras-lm models`: the sizes that there are."""

import json

import click

from keras_lm.cli.command import Command


@click.command(
    "models", cls=Command, short_help="The sizes of models, and where their weights are."
)
@click.argument("words", metavar="[WORD]...", nargs=-1)
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object a line.")
def models_command(words, as_json):
    """List the sizes of models: name, class, parameters, and where the weights are published.

    \b
      keras-lm models
      keras-lm models bert multi

    With WORDs, only names that contain all of them. A size says how large a model is: `inspect`
    tells what it needs, `pretrain --size` trains one from random weights. Weights are loaded from
    where they are published, or from a folder with a copy of them.
    """
    rows = find_sizes(words)
    if not rows:
        raise click.ClickException(f"No name of a size contains {' and '.join(words)}.")
    if as_json:
        for row in rows:
            click.echo(json.dumps(row))
        return
    name, model = (max(len(row[key]) for row in rows) for key in ("size", "model"))
    for row in rows:
        click.echo(
            f"{row['size']:<{name}}  {row['model']:<{model}}  {row['parameters']:>15,}  "
            f"{row['published'] or 'not published'}"
        )


def find_sizes(words=()):
    """Return a dict for each size whose name contains all of some words."""
    from keras_lm import models, registry  # imports TensorFlow; the models register themselves
    from keras_lm.models.sizes import parameters_of

    return [
        {
            "size": name,
            "model": cls.__name__.removesuffix(models.Backbone.__name__),
            "parameters": parameters_of(name),
            "published": cls.PUBLISHED.get(name),
        }
        for name, cls in registry.sizes().items()
        if all(word.lower() in name for word in words)
    ]
