"""The version of the library, stated here alone: `setup.py` reads this file."""

__version__ = "0.1.0"
