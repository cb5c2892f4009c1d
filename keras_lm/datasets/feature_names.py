"""Names of classes that a data set of Hugging Face states beside its files of rows.

`datasets` stores labels as numbers. What they mean is in `dataset_info.json`, or of older data sets
in `dataset_infos.json`.
"""

from pathlib import Path

from keras_lm.datasets.text_lines import json_value
from keras_lm.utils import input_files

FILES = ("dataset_info.json", "features.json", "dataset_infos.json")


def class_names_beside(path):
    """Return a dict of column → names of its classes; empty if no file beside `path` states any.

    Raises:
        ValueError: if such a file cannot be read.
    """
    for file in (Path(path).with_name(name) for name in FILES):
        if not file.is_file():
            continue
        try:
            with file.open("rb") as stream:
                stated = json_value(input_files.whole(stream, str(file)).decode("utf-8-sig"))
        except ValueError as error:
            raise ValueError(
                f"{file}: {error}. It should name the classes of {path}: write it "
                "again, or move it to another folder."
            ) from error
        return _names_of_columns(stated)
    return {}


def _names_of_columns(stated):
    if isinstance(stated, dict) and "features" not in stated and len(stated) == 1:
        (stated,) = stated.values()  # dataset_infos.json: one for each subset
    features = stated.get("features", stated) if isinstance(stated, dict) else stated
    if isinstance(features, list):  # as the Hub's viewer has them
        features = {each.get("name"): each.get("type") for each in features}
    if not isinstance(features, dict):
        return {}
    names = {column: names_of_feature(feature) for column, feature in features.items()}
    return {column: found for column, found in names.items() if found}


def names_of_feature(feature):
    """Return the names of the classes of a feature, or of what its sequences hold, or None."""
    while True:
        if isinstance(feature, list) and feature:
            (feature, *_) = feature
        elif isinstance(feature, dict) and "names" not in feature and "feature" in feature:
            feature = feature["feature"]
        else:
            break
    names = feature.get("names") if isinstance(feature, dict) else None
    is_list = isinstance(names, list) and all(isinstance(name, str) for name in names)
    return names if is_list else None


def named(rows, names):
    """Yield rows, (line, dict), in which numbers of classes are replaced by their names.

    Args:
        rows: iterator of (line, dict), or of (line, error).
        names: dict of column → list of names. -1 stands for a missing label.
    """
    for line, row in rows:
        if isinstance(row, dict):
            row = {key: _named(value, names.get(key)) for key, value in row.items()}
        yield line, row


def _named(value, names):
    if names is None or isinstance(value, bool):
        return value
    if isinstance(value, list):
        return [_named(each, names) for each in value]
    if isinstance(value, str) and value not in names:  # of CSV
        value = int(value) if value.isdecimal() or value == "-1" else value
    if value == -1:
        return None
    is_number = isinstance(value, int) and 0 <= value < len(names)
    return names[value] if is_number else value
