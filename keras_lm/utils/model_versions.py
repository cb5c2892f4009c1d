"""SavedModels in folders: the numbered versions of one, as TF Serving has them, and its name."""

import re

from keras_lm.utils.files import numbered


def find_versions(folder):
    """Return the numbered subfolders of a folder by number; these are TF Serving's versions."""
    return {number: path for number, path in numbered(folder).items() if path.is_dir()}


def find_saved_models(folder):
    """Return the versions in a folder that hold a SavedModel, a dict of number → `Path`."""
    versions = find_versions(folder)
    return {n: path for n, path in versions.items() if (path / "saved_model.pb").is_file()}


def find_saved_model(path, version=None):
    """Return the folder of a SavedModel, by default the latest version; None if there is none.

    Raises:
        ValueError: if `path` is one version already, or has no such version.
    """
    if (path / "saved_model.pb").is_file():
        if version is not None:
            raise ValueError(f"{path} is one version already: leave version={version} out.")
        return path
    versions = find_saved_models(path)
    if not versions:
        return None
    if version is not None and version not in versions:
        listed = ", ".join(map(str, versions))
        raise ValueError(f"{path} has no version {version}; it has {listed}.")
    return versions[max(versions) if version is None else version]


def find_models(path):
    """Return the paths of the models that a path stands for: its own, or those in the folder.

    A folder without versions stands for the folders of versions and the `.tflite`s in it, if there
    are any.
    """
    files = ("saved_model.pb", "keras_lm.json")
    if not path.is_dir() or any((path / file).is_file() for file in files):
        return [path]  # one version, or a preset
    if find_saved_models(path):
        return [path]
    inner = [
        entry
        for entry in sorted(path.glob("[!.]*"))
        if find_saved_models(entry) or (entry.suffix == ".tflite" and entry.is_file())
    ]
    return inner or [path]


def check_name(name):
    """Raise a `ValueError` if a name cannot be part of a URL or of a protocol buffer."""
    if not isinstance(name, str) or not re.fullmatch(r"[^/:\x00-\x1f\x7f\ud800-\udfff]+", name):
        raise ValueError(
            f"name={name!r} cannot be a model's name: pass one without /, : and control "
            "characters, and not empty."
        )


def default_name(path):
    """Return the name of a model that is given none: its folder's, or its file's."""
    return path.stem if path.is_file() else path.name
