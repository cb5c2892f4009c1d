"""A command of the command line: what goes wrong for its user is one message."""

import errno
import re

import click


class Command(click.Command):
    """A `click.Command` that shows errors as one message, in the words of its options.

    These are the `ValueError`s that our code raises, and every `OSError`. Any other exception is a
    bug and shows its traceback.
    """

    def invoke(self, ctx):
        try:
            return super().invoke(ctx)
        except OSError as error:
            if (
                error.errno == errno.EPIPE
            ):  # the reader of our output has enough: click ends quietly
                raise
            raise click.ClickException(self._in_options(str(error))) from error
        except ValueError as error:
            if not _is_raised_by_us(error):
                raise
            raise click.ClickException(self._in_options(str(error))) from error

    def _in_options(self, message):
        """Name the command's options in a message that names the arguments of a function."""
        for option in self.params:
            if isinstance(option, click.Option):
                flag = option.opts[-1]
                message = re.sub(rf"(?<![\w./'-]){option.name}=", f"{flag} ", message)
                if "_" in option.name:  # not a word of the language
                    message = re.sub(rf"(?<![\w./'-]){option.name}\b", flag, message)
        return message


def _is_raised_by_us(error):
    """Return whether the innermost frame of an error is ours: then its message is for the user."""
    place = error.__traceback__
    while place.tb_next is not None:
        place = place.tb_next
    return place.tb_frame.f_globals.get("__name__", "").startswith("keras_lm")
