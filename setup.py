"""What pyproject.toml cannot say: folders of the root that are packages of keras_lm, and links."""

import os
from pathlib import Path

from setuptools import find_packages, setup

# Folders of the root that are packages of keras_lm.
MAPPED = {"keras_lm.export": "export", "keras_lm.lectures": "lectures"}

# The address of the repository, which the workflow of a release knows; else there are no links.
ADDRESS = os.environ.get("KERAS_LM_REPOSITORY", "").rstrip("/")
# The last string of the module, which is not imported: nothing that it needs is installed yet.
VERSION = (Path(__file__).parent / "keras_lm" / "version.py").read_text().split('"')[-2]
PAGES = {
    "Source": "",
    "Issues": "/issues",
    "Changelog": f"/blob/v{VERSION}/CHANGELOG.md",
    "Documentation": f"/tree/v{VERSION}/docs",
}

setup(
    packages=find_packages(include=["keras_lm", "keras_lm.*"]) + [*MAPPED],
    package_dir=MAPPED,
    project_urls={name: ADDRESS + page for name, page in PAGES.items() if ADDRESS},
    license="Apache-2.0",  # its form in pyproject.toml depends on the version of setuptools
)
