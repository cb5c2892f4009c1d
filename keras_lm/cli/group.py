"""The group of commands: their order in `--help`, and the handling of errors."""

import errno
import os
import re

import click

SECTIONS = {
    "From weights to answers": ["convert", "finetune", "evaluate", "export", "serve", "predict"],
    "Besides": [
        *("translate", "features", "distill", "inspect", "models", "vocab", "prepare"),
        *("pretrain", "glue", "launch", "demo"),
    ],
}


class Commands(click.Group):
    """A `click.Group` that lists its commands by section.

    A user's mistake ends in one message: a `ValueError` raised by our code, or an `OSError`. Any
    other exception is a bug and shows its traceback.
    """

    def list_commands(self, ctx):
        ordered = [name for names in SECTIONS.values() for name in names if name in self.commands]
        return ordered + sorted(set(self.commands) - set(ordered))

    def format_commands(self, ctx, formatter):
        width = formatter.width - 6 - max(map(len, self.commands))
        others = sorted(set(self.commands) - {n for names in SECTIONS.values() for n in names})
        for title, names in [*SECTIONS.items(), ("Others", others)]:
            rows = [
                (name, self.commands[name].get_short_help_str(width))
                for name in names
                if name in self.commands
            ]
            if rows:
                with formatter.section(title):
                    formatter.write_dl(rows)

    def invoke(self, ctx):
        backend = os.environ.setdefault("KERAS_BACKEND", "tensorflow")
        if backend != "tensorflow":
            raise click.UsageError(
                f"KERAS_BACKEND={backend}: the commands run on TensorFlow. Leave it out, or train "
                "from Python."
            )
        try:
            return super().invoke(ctx)
        except OSError as error:
            if error.errno == errno.EPIPE:  # whoever read our output has enough: click ends quietly
                raise
            raise click.ClickException(self._as_options(ctx, str(error))) from error
        except ValueError as error:
            if not _is_raised_by_us(error):
                raise
            raise click.ClickException(self._as_options(ctx, str(error))) from error

    def _as_options(self, ctx, message):
        """Name the command's options in a message that names the arguments of a function."""
        command = self.get_command(ctx, ctx.invoked_subcommand)
        for option in command.params if command else ():
            if isinstance(option, click.Option):
                flag = option.opts[-1]
                message = re.sub(rf"(?<![\w./'-]){option.name}=", f"{flag} ", message)
                if "_" in option.name:  # no word of its own
                    message = re.sub(rf"(?<![\w./'-]){option.name}\b", flag, message)
        return message


def _is_raised_by_us(error):
    """Whether the innermost frame of the error is in keras_lm: then its message is for the user."""
    place = error.__traceback__
    while place.tb_next is not None:
        place = place.tb_next
    return place.tb_frame.f_globals.get("__name__", "").startswith("keras_lm")
