"""Run the Python of a page from top to bottom, as a reader would: python run_page.py README.md

It needs only what the page says to install: `make package` runs the README in an environment that
has nothing but the wheel. What the page says that a block prints has to be printed.
"""

import contextlib
import io
import re
import sys

PYTHON = re.compile(r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.M | re.S)


def run(page):
    namespace = {"__name__": "__main__"}
    for block, expected in PYTHON.findall(page):
        printed = io.StringIO()
        with contextlib.redirect_stdout(printed):
            exec(compile(block, "block", "exec"), namespace)
        print(printed.getvalue(), end="", flush=True)
        if expected and printed.getvalue() != expected:
            sys.exit(f"{block}\nprinted what is above, and the page says:\n{expected}")


if __name__ == "__main__":
    with open(sys.argv[1], encoding="utf-8") as file:
        run(file.read())
