"""Writing ELMo's weights as AllenNLP and bilm-tf read them."""

import json
import os
import pathlib
import tempfile

import h5py


def write_allennlp(folder, options, tensors):
    """Write `options.json` and `weights.hdf5`, both or none.

    Args:
        folder: path. Made, if it is not there.
        options: dict, what `options.json` shall hold.
        tensors: dict of a dataset's path in the HDF5 file → array.

    Raises:
        FileExistsError: if there is something at `folder` already; it is left as it is.
    """
    folder = pathlib.Path(folder).expanduser()
    if folder.is_file() or (folder.is_dir() and any(folder.iterdir())):
        raise FileExistsError(f"{folder} exists: choose another folder.")
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=f".{folder.name}-", dir=folder.parent) as temporary:
        new = pathlib.Path(temporary) / "new"
        new.mkdir()
        (new / "options.json").write_text(json.dumps(options, indent=2) + "\n", encoding="utf-8")
        with h5py.File(new / "weights.hdf5", "w") as file:
            for name, array in tensors.items():
                file.create_dataset(name, data=array)
        os.replace(new, folder)
