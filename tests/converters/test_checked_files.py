"""What mesh_tensorflow's runs say of themselves."""

import time

import pytest

from keras_lm.converters import CheckpointError
from keras_lm.converters.checked_files import read_gin

TEXT = """\
import mesh_tensorflow.optimize
# d_ff = 1
d_ff = 64
rate = 1e-06
encoder/DenseReluDense.activation = ['gelu', 'linear']
encoder/DenseReluDense.hidden_size = %d_ff
run.schedule = \\
    [@learning_rate_schedules.constant]
run.layout_rules = \\
    'batch:batch,d_ff:model'
other.value = %unknown
"""


def test_bindings_and_macros(tmp_path):
    (tmp_path / "operative_config.gin").write_text(TEXT)
    assert read_gin(tmp_path / "operative_config.gin") == {
        "d_ff": 64,
        "rate": 1e-6,
        "encoder/DenseReluDense.activation": ["gelu", "linear"],
        "encoder/DenseReluDense.hidden_size": 64,
        "run.schedule": "[@learning_rate_schedules.constant]",
        "run.layout_rules": "batch:batch,d_ff:model",
        "other.value": "%unknown",
    }


@pytest.mark.parametrize(
    ("data", "says"),
    [
        (b"\xff\xfe", "is not UTF-8"),
        (b"", "is empty"),
        (None, "is missing"),
        (b"#" * (2**20 + 1), r"x\.gin has 1048577 bytes"),
    ],
)
def test_damaged(tmp_path, data, says):
    if data is not None:
        (tmp_path / "x.gin").write_bytes(data)
    with pytest.raises(CheckpointError, match=says):
        read_gin(tmp_path / "x.gin")


@pytest.mark.parametrize("blank", ["\n", " \n", "a\n", "a = \\\n\n", "\\ "])
def test_time_is_that_of_the_size(tmp_path, blank):
    (tmp_path / "x.gin").write_text("x = 1\n" + blank * 100_000)
    start = time.monotonic()
    assert read_gin(tmp_path / "x.gin")["x"] == 1
    assert time.monotonic() - start < 10
