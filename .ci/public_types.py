#!/usr/bin/env python
"""Check that the types of what users call are known: print the share of each package.

Counted are the classes and functions in the `__all__` of our packages, the classes that these
derive from, and their public methods, properties and attributes. A symbol is known if basedpyright
knows the types of its parameters and of what it returns, or of its value. An attribute may leave
its type to what is assigned. What other packages do not say does not count, nor does a type that is
ours and counted itself. Fails if less than 95 % are known; `--unknown` lists the others.
"""

import importlib
import inspect
import json
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

LEAST = 0.95
ROOT = Path(__file__).parents[1]
# Its type is unknown, so that pyright would not look at the classes under it.
DECORATOR = re.compile(r"^ *@keras\.saving\.register_keras_serializable\(.*\)\n", re.MULTILINE)
# Not "is partially unknown" alone, as it says of a class of ours that one of its members is.
UNKNOWN = re.compile(
    r"annotation (for .*)?is missing$| is unknown|has unknown type|Type unknown for|\bUnknown\b",
    re.MULTILINE,
)


def public_names():
    """Return the full names of what users can reach: classes, their bases, and functions."""
    os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
    sys.path.insert(0, str(ROOT))
    names = set()
    modules = {f"keras_lm.{each.name}" for each in pkgutil.iter_modules([ROOT / "keras_lm"])}
    for module in map(importlib.import_module, sorted(modules | {"keras_lm.export"})):
        for member in (getattr(module, name) for name in getattr(module, "__all__", [])):
            if inspect.isclass(member) or inspect.isfunction(member):
                family = member.__mro__ if inspect.isclass(member) else [member]
                names |= {f"{each.__module__}.{each.__qualname__}" for each in family}
    return {name for name in names if name.startswith("keras_lm.")}


def checked_symbols():
    """Return what basedpyright says about each symbol of a copy that lies as it is installed."""
    with tempfile.TemporaryDirectory() as folder:
        package = shutil.copytree(ROOT / "keras_lm", Path(folder, "keras_lm"))
        for name in ("export", "lectures"):
            shutil.copytree(ROOT / name, package / name)
        for path in package.rglob("*.py"):
            path.write_text(DECORATOR.sub("", path.read_text("utf-8")), "utf-8")
        command = [Path(sys.executable).with_name("basedpyright"), "--verifytypes", "keras_lm"]
        command += ["--ignoreexternal", "--outputjson", "--pythonpath", sys.executable]
        environment = {**os.environ, "PYTHONPATH": folder}
        result = subprocess.run(
            command, env=environment, cwd=folder, capture_output=True, text=True
        )
    return json.loads(result.stdout)["typeCompleteness"]["symbols"]


def is_private(name):
    """Return whether users neither call nor read what has this name."""
    return name.startswith("_") and name not in ("__init__", "__call__")


def problems(symbol):
    """Return what is unknown of a symbol, as a list of messages."""
    messages = [diagnostic["message"] for diagnostic in symbol["diagnostics"]]
    return [message for message in messages if UNKNOWN.search(message)]


def main():
    names, total, unknown = public_names(), Counter(), Counter()
    for symbol in checked_symbols():
        parts = symbol["name"].split(".")
        owners = {".".join(parts[:count]) for count in range(2, len(parts) + 1)}
        if not owners & names or any(map(is_private, parts)):
            continue
        total[parts[1]] += 1
        if messages := problems(symbol):
            unknown[parts[1]] += 1
            if "--unknown" in sys.argv:
                print(symbol["name"], *messages, sep="\n    ")
    for package, number in sorted(total.items()):
        print(f"{package:<12}{1 - unknown[package] / number:>7.1%} of {number}")
    share = 1 - unknown.total() / total.total()
    print(f"{share:.1%} of {total.total()} public types are known; at least {LEAST:.0%} must be.")
    sys.exit(share < LEAST)


if __name__ == "__main__":
    main()
