"""`keras-lm knowledge`: a dump becomes a store, and without one it says how to get it."""

import json

from click.testing import CliRunner

from keras_lm.cli import main
from keras_lm.knowledge import ConceptStore, SchemaGraphs


def run(*arguments):
    return CliRunner().invoke(main, ["knowledge", *map(str, arguments)])


def test_a_dump_becomes_a_store(tmp_path):
    line = "\t".join(["/a/", "/r/IsA", "/c/en/ice", "/c/en/water", json.dumps({"weight": 1.0})])
    (tmp_path / "dump.csv").write_text(f"{line}\n")
    output = tmp_path / "store"
    done = run(tmp_path / "dump.csv", "--output", output, "--epochs", 1, "--dim", 4)
    assert done.exit_code == 0, done.output
    assert "TransE, epoch 1: loss" in done.output and "store-trans-e" in done.output
    graphs = SchemaGraphs(output, tmp_path / "store-trans-e", threshold=0.0)
    assert graphs.find("ice", "water")["path_concepts"].shape == (1, 5)
    again = run(tmp_path / "dump.csv", "--output", output)
    assert again.exit_code and "pass --overwrite" in again.output
    assert run(tmp_path / "dump.csv", "--output", output, "--overwrite").exit_code == 0
    assert ConceptStore(output).num_concepts == 3


def test_without_a_dump(tmp_path):
    done = run(tmp_path / "conceptnet.csv.gz", "--output", tmp_path / "store")
    assert done.exit_code == 1
    assert "curl -LO https://s3.amazonaws.com/conceptnet" in done.output
    assert not (tmp_path / "store").exists()
