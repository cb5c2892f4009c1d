"""A command of the command line: what goes wrong for its user is one message."""

import errno
import re

import click


class Command(click.Command):
    """A `click.Command` that shows errors as one message, in the words of its options.

    These are errors of our own classes, every `OSError`, a full memory, and what our code raises as
    `ValueError` or `ImportError`. Any other exception is a bug and shows its traceback.
    """

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
