"""Name tables: our paths to theirs, by the numbers in them."""

import pytest

from keras_lm.converters.converter import NameTable

TABLE = NameTable(
    {
        "norm": "final_norm",
        "block_{i}/norm": "layer.{i}.norm",
        "block_{i}/attention": ("layer.{i}.q", "layer.{i}.k"),
        "block_{i}/layer_{j}/dense": "block.{i}.layer.{j}.dense",
        "cluster_{i}/layer_{j}/head_{k}/dense": "{k}/of/{j}/of/{i}",
        "swap_{i}/part_{j}/dense": "{j}.{i}.{j}",
        "block_{i}/norm/beta": "beta_of_{i}",
    },
    leaves={"kernel": ".weight", "gamma": ".scale", "beta": ".bias"},
)


@pytest.mark.parametrize(
    ("path", "names"),
    [
        ("norm/gamma", ("final_norm.scale",)),
        ("block_3/norm/gamma", ("layer.3.norm.scale",)),
        ("block_12/attention/kernel", ("layer.12.q.weight", "layer.12.k.weight")),
        ("block_3/norm/beta", ("beta_of_3",)),  # a whole path wins over its layer's
        ("block_1/layer_2/dense/kernel", ("block.1.layer.2.dense.weight",)),
        ("cluster_4/layer_5/head_6/dense/kernel", ("6/of/5/of/4.weight",)),
        ("swap_10/part_2/dense/kernel", ("2.10.2.weight",)),
        ("block_1/layer_2/other/kernel", ()),
        ("block_1/layer_2/head_3/more_4/dense/kernel", ()),
        ("block_3/norm/unknown", ()),
    ],
)
def test_numbers_in_their_order(path, names):
    assert TABLE.sources(path) == names
