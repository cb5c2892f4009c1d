"""Numbers of options: `nan` and `inf`, which are of any range for click, are none."""

import math

import click


class _Finite:
    def convert(self, value, param, ctx):
        """Return the number, or fail."""
        number = super().convert(value, param, ctx)
        if not math.isfinite(number):
            self.fail(f"{value} is not a finite number.", param, ctx)
        return number


class Float(_Finite, click.types.FloatParamType):
    """Any finite number."""


class FloatRange(_Finite, click.FloatRange):
    """A finite number of a range; see `click.FloatRange`."""
