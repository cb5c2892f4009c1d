"""The version of the library, stated here alone: `pyproject.toml` and `setup.py` read this file."""

__version__ = "0.1.0"
