"""Finding exported SavedModels: a version's folder, or the folder of all versions."""

import click

SAVED_MODEL = "saved_model.pb"


def find_versions(folder):
    """Return a dict of number → folder of the versions in a folder, as TF Serving sees them."""
    folders = [path.parent for path in folder.glob(f"*/{SAVED_MODEL}")]
    numbered = {int(f.name): f for f in folders if f.name.isascii() and f.name.isdigit()}
    return dict(sorted(numbered.items()))


def find_version(path, version=None):
    """Return the folder of a SavedModel, or None where there is none.

    Args:
        path: `Path`.
        version: int, or None for the latest.

    Raises:
        click.ClickException: if there are versions, but not this one.
    """
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
