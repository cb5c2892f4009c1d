"""Finding exported SavedModels: a version's folder, or the folder of all versions."""

import click

from keras_lm import files

SAVED_MODEL = "saved_model.pb"


def find_versions(folder):
    """Return a dict of number → folder of the versions with a SavedModel in a folder."""
    versions = files.find_versions(folder)
    return {n: path for n, path in versions.items() if (path / SAVED_MODEL).is_file()}


def find_version(path, version=None):
    """Return the folder of a SavedModel, by default the latest version; None if there is none."""
    if (path / SAVED_MODEL).is_file():
        if version is not None:
            raise click.UsageError(f"{path} is one version already: leave --version out.")
        return path
    versions = find_versions(path)
    if not versions:
        return None
    if version is not None and version not in versions:
        listed = ", ".join(map(str, versions))
        raise click.ClickException(f"{path} has no version {version}; it has {listed}.")
    return versions[max(versions) if version is None else version]
