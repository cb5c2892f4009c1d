"""Writing ELMo's weights as AllenNLP and bilm-tf read them."""

import json
import pathlib

import h5py

from keras_lm.utils import files


def write_allennlp(folder, options, tensors):
    """Write `options.json` and `weights.hdf5`, both or none, to a new or empty folder."""
    folder = pathlib.Path(folder).expanduser()
    files.require_free(folder, "is not empty")
    with files.replacing(folder) as new:
        new.mkdir()
        (new / "options.json").write_text(json.dumps(options, indent=2) + "\n", encoding="utf-8")
        with h5py.File(new / "weights.hdf5", "w") as file:
            for name, array in tensors.items():
                file.create_dataset(name, data=array)
