"""PyTorch files without PyTorch: equal to what it wrote, deaf to what else a pickle may ask for."""

import io
import json
import pathlib
import pickle
import shutil
import time
import zipfile

import ml_dtypes
import numpy as np
import pytest

from keras_lm.converters import CheckpointError, open_checkpoint
from keras_lm.converters.torch_pickle import read_torch

GOLDENS = pathlib.Path(__file__).parents[1] / "goldens" / "torch-formats"
DTYPES = {
    "f16": np.float16, "bf16": ml_dtypes.bfloat16, "i64": np.int64, "mask": np.bool_,
    "u8": np.uint8, "uint16": np.uint16,
}  # fmt: skip


# A few instructions of the pickle machine, to write by hand what no well-meaning program writes.


def data(value) -> bytes:
    """Instructions that push plain data."""
    return pickle.dumps(value, 2)[2:-1]


def named(module, name) -> bytes:
    return b"c" + f"{module}\n{name}\n".encode()


def tuple_of(*items) -> bytes:
    return b"(" + b"".join(items) + b"t"


def call(function, *arguments) -> bytes:
    return function + tuple_of(*arguments) + b"R"


def storage(key="0", kind="FloatStorage") -> bytes:
    return tuple_of(data("storage"), named("torch", kind), *map(data, (key, "cpu", 4))) + b"Q"


def tensor(offset=0, shape=(2, 2), strides=(2, 1), kept=None) -> bytes:
    rebuild = named("torch._utils", "_rebuild_tensor_v2")
    rest = (data(False), data(None))
    places = (data(offset), data(shape), data(strides))
    return call(rebuild, kept or storage(), *places, *rest)


def write_zip(path, program, compression=zipfile.ZIP_STORED, length=16, **extra):
    """Write a file as torch.save does, with `program` as its pickle and one storage of floats."""
    with zipfile.ZipFile(path, "w", compression) as archive:
        archive.writestr("x/data.pkl", b"\x80\x02" + program + b".")
        archive.writestr("x/data/0", np.arange(length // 4, dtype=np.float32).tobytes())
        for name, content in extra.items():
            archive.writestr(f"x/{name}", content)
    return path


def state_dict(value, name="w") -> bytes:
    return b"}" + data(name) + value + b"s"


def read_all(path):
    return {name: read() for name, (_, read) in read_torch(path).items()}


def test_what_fastai_saves_beside_the_weights(tmp_path):
    """A learner's file: the weights under "model", and the optimizer's lists and NumPy numbers."""
    numbers = call(
        named("numpy._core.multiarray", "scalar"),
        call(named("numpy", "dtype"), data("f8"), data(False), data(True))
        + data((3, "<", None, None, None, -1, -1, 0))
        + b"b",
        call(named("_codecs", "encode"), data("x"), data("latin1")),
    )
    rates = b"}" + data("lr") + numbers + b"s"
    listed = named("fastcore.foundation", "L") + b")\x81" + b"}" + data("items") + rates + b"sb"
    optimizer = b"}" + data("hypers") + listed + b"s"
    program = b"}" + data("model") + state_dict(tensor()) + b"s" + data("opt") + optimizer + b"s"
    path = write_zip(tmp_path / "learner.pth", program)
    np.testing.assert_array_equal(read_all(path)["w"], [[0, 1], [2, 3]])


@pytest.mark.parametrize("file", ["zip.bin", "legacy.bin", "uint16.bin"])
def test_equals_what_torch_wrote(file):
    tensors = read_torch(GOLDENS / file)
    with np.load(GOLDENS / "expected.npz") as expected:
        names = set(expected.files)
        assert set(tensors) == ({"uint16"} if file == "uint16.bin" else names - {"uint16"})
        for name, (shape, read) in tensors.items():
            value = read()
            assert value.shape == shape == expected[name].shape
            assert value.dtype == DTYPES.get(name, np.float32)
            assert value.flags.c_contiguous
            np.testing.assert_array_equal(value.astype(expected[name].dtype), expected[name])


def test_hugging_face_folder_and_shards(tmp_path):
    (tmp_path / "config.json").write_text('{"architectures": ["BertModel"]}')
    shutil.copy(GOLDENS / "legacy.bin", tmp_path / "pytorch_model.bin")
    checkpoint = open_checkpoint(tmp_path)
    assert checkpoint.format == "huggingface"
    assert checkpoint.tensors["sliced"].shape == checkpoint.tensors.shape("sliced") == (3, 2)

    (tmp_path / "pytorch_model.bin").rename(tmp_path / "pytorch_model-00001-of-00002.bin")
    index = tmp_path / "pytorch_model.bin.index.json"
    weight_map = {"dense.weight": "pytorch_model-00001-of-00002.bin"}
    index.write_text(json.dumps({"weight_map": weight_map}))
    assert list(open_checkpoint(tmp_path).tensors) == ["dense.weight"]
    weight_map["uint16"] = "pytorch_model-00002-of-00002.bin"
    index.write_text(json.dumps({"weight_map": weight_map}))
    with pytest.raises(CheckpointError, match=r"00002-of-00002\.bin, named by .*, is missing"):
        open_checkpoint(tmp_path)
    shutil.copy(GOLDENS / "zip.bin", tmp_path / "pytorch_model-00002-of-00002.bin")
    with pytest.raises(CheckpointError, match=r"'uint16' in .*, which has no such tensor"):
        open_checkpoint(tmp_path)


def test_hand_written_file_is_read(tmp_path):
    tensors = read_all(write_zip(tmp_path / "a.bin", state_dict(tensor(strides=(1, 2)))))
    np.testing.assert_array_equal(tensors["w"], [[0, 2], [1, 3]])
    wrapped = b"}" + data("model") + state_dict(tensor(), "module.w") + b"s"
    assert set(read_all(write_zip(tmp_path / "b.bin", wrapped))) == {"w"}
    prefix_of_some = b"}" + data("module.w") + tensor() + b"s" + data("v") + tensor() + b"s"
    assert set(read_all(write_zip(tmp_path / "c.bin", prefix_of_some))) == {"module.w", "v"}


class Attack:
    """Pickles as a call of any function."""

    def __init__(self, function, *arguments):
        self.function, self.arguments = function, arguments

    def __reduce__(self):
        return self.function, self.arguments


@pytest.mark.parametrize("protocol", [0, 2, 4])
@pytest.mark.parametrize(
    ("attack", "name"),
    [
        (lambda flag: Attack(pathlib.os.system, f"touch {flag}"), "system"),
        (lambda flag: Attack(eval, f"open({str(flag)!r}, 'w')"), "builtin.*eval"),
        (lambda flag: Attack(getattr, pathlib.Path(flag), "touch"), "getattr|pathlib"),
        (lambda flag: Attack(pathlib.Path.touch, pathlib.Path(flag)), "getattr|pathlib"),
        (lambda flag: np.zeros(3), r"numpy\..*(_reconstruct|_frombuffer)|encode"),
        (lambda flag: Attack(bytearray, 10**12), "bytearray"),
    ],
)
def test_code_is_refused(tmp_path, attack, name, protocol):
    flag = tmp_path / "flag"
    program = io.BytesIO()
    pickle.Pickler(program, protocol).dump({"w": attack(flag)})
    program = program.getvalue()
    for path in (tmp_path / "zip.bin", tmp_path / "legacy.bin"):
        if path.name == "zip.bin":
            with zipfile.ZipFile(path, "w") as archive:
                archive.writestr("x/data.pkl", program)
        else:
            # The attack stands where the tensors do, after the first three pickles.
            start = (GOLDENS / "legacy.bin").read_bytes()
            stream = io.BytesIO(start)
            for _ in range(3):
                pickle.load(stream)
            path.write_bytes(start[: stream.tell()] + program)
        with pytest.raises(CheckpointError, match=name) as caught:
            read_torch(path)
        assert str(path) in str(caught.value)
    assert not flag.exists()


@pytest.mark.parametrize(
    "program",
    [
        named("torch._utils", "_rebuild_tensor_v2.__globals__"),
        named("torch._utils", "_rebuild_device_tensor_from_numpy"),
        named("torch.storage", "_load_from_bytes"),
        named("torch", "load"),
        named("torch.hub", "float32"),
        named("collections", "OrderedDict.__init__"),
        named("builtins", "__import__"),
        named("argparse", "Namespace") + data("x") + b"\x85\x81",  # Namespace("x")
        call(named("torch", "float32"), data(1)),
        call(named("torch", "FloatStorage"), data(10**12)),
        call(named("torch._utils", "_rebuild_tensor_v2"), data("not a storage")),
        call(named("torch._utils", "_rebuild_tensor_v2"), *[data(0)] * 6),
        call(named("torch._utils", "_rebuild_tensor_v3"), storage(), *[data(())] * 7),
        call(named("torch._utils", "_rebuild_parameter")),
        call(named("collections", "OrderedDict"), data(5)),
        named("torch._utils", "_rebuild_tensor_v2") + data({"__call__": 1}) + b"b",
        named("torch._utils", "_rebuild_tensor_v2") + data((None, {"_function": 1})) + b"b",
        named("torch", "float32") + data((None, {"dtype": "object"})) + b"b",
        tensor() + data((None, {"offset": -1})) + b"b",
        storage() + data((None, {"key": "/etc/passwd"})) + b"b",
        data(("storage", "FloatStorage", "0", "cpu", 4)) + b"Q",
        data("module") + b"Q",
        tensor(kept=storage("lost")),
        tensor(
            kept=tuple_of(data("storage"), named("torch", "FloatStorage"), *[data(0)] * 3) + b"Q"
        ),
    ],
)
def test_misuse_of_what_is_admitted(tmp_path, program):
    with pytest.raises(CheckpointError, match=r"a\.bin"):
        read_torch(write_zip(tmp_path / "a.bin", state_dict(program)))
    # The refusal must not have broken the reader for the files that follow.
    assert "dense.weight" in read_all(GOLDENS / "zip.bin")


def doubled(depth=64):
    """Instructions that push a tuple of tuples, each of which has the one before twice."""
    return b")" + b"q\x01h\x01\x86" * depth


@pytest.mark.parametrize(
    "program",
    [
        b"}" + doubled() + b"K\x01s",  # as a key
        b"}(" + doubled() + b"K\x01u",
        b"(" + doubled() + b"K\x01d",
        b"(" + doubled() + b"\x91",  # in a frozenset, and a set
        b"\x8f(" + doubled() + b"\x90",
        call(named("builtins", "frozenset"), b"]" + doubled() + b"a"),
        call(named("builtins", "set"), b"]" + doubled() + b"a"),
        call(named("collections", "OrderedDict"), b"]" + doubled() + b"K\x01\x86a"),
        b"}" + data(2**61 - 1) + b"K\x01s",  # of the same hash as 0
        b"\x96" + (2**40).to_bytes(8, "little"),  # a bytearray
        tensor(offset=0).replace(data((2, 2)), doubled()),  # as a shape
        data(10**5000),
        data(dict.fromkeys((i, i) for i in range(1001))),  # tuples may all have the same hash
        b"]" + b"".join(b"}" + data((i, i)) + b"K\x01sa" for i in range(1001)),  # in many dicts
        # Copied as often as a pickle likes.
        data([0] * 300) + b"q\x010" + call(named("torch", "Size"), b"h\x01") * 1000,
        data([0] * 300) + b"q\x010" + call(named("builtins", "set"), b"h\x01") * 1000,
        b"(" + data([0] * 300) + b"q\x01" + call(named("torch", "device"), b"h\x01") * 1000,
        b"Ir\xff\xff\xff\x7f",  # a place in the memo
    ],
)
def test_small_pickles_take_no_time(tmp_path, program):
    start = time.monotonic()
    with pytest.raises(CheckpointError, match=r"a\.bin"):
        read_torch(write_zip(tmp_path / "a.bin", program))
    legacy = (GOLDENS / "legacy.bin").read_bytes()
    stream = io.BytesIO(legacy)
    for _ in range(3):
        pickle.load(stream)
    # As the tensors, and as the list of storages after none.
    for between in (b"", b"\x80\x02]."):
        content = legacy[: stream.tell()] + between + b"\x80\x02" + program + b"."
        (tmp_path / "b.bin").write_bytes(content)
        with pytest.raises(CheckpointError, match=r"b\.bin"):
            read_torch(tmp_path / "b.bin")
    assert time.monotonic() - start < 5


@pytest.mark.parametrize(
    "places",
    [
        {"offset": 1},
        {"shape": (2**20 + 1,), "strides": (0,)},
        {"offset": -1},
        {"shape": (3, 2)},
        {"shape": (2, 3), "strides": (3, 1)},
        {"strides": (3, 1)},
        {"strides": (-1, 1)},
        {"strides": (2**61, 1)},
        {"shape": (2**70, 2)},
        {"shape": (2**40, 2**40), "strides": (0, 0)},
        {"shape": (2, 2, 2)},
        {"shape": (True, 2)},
        {"shape": (2.0, 2)},
        {"shape": "ab", "strides": "cd"},
    ],
)
def test_beyond_the_storage(tmp_path, places):
    with pytest.raises(CheckpointError, match=r"a\.bin: 'w'"):
        read_torch(write_zip(tmp_path / "a.bin", state_dict(tensor(**places))))


def test_compressed_and_foreign_archives(tmp_path):
    path = tmp_path / "a.bin"
    program = state_dict(tensor())
    with pytest.raises(CheckpointError, match="is compressed"):
        read_torch(write_zip(path, program, zipfile.ZIP_DEFLATED, length=2**20))
    with pytest.raises(CheckpointError, match="TorchScript"):
        read_torch(write_zip(path, program, **{"constants.pkl": b""}))
    with pytest.raises(CheckpointError, match="big-endian"):
        read_torch(write_zip(path, program, byteorder=b"big"))
    assert read_all(write_zip(path, program, byteorder=b"little"))["w"].shape == (2, 2)
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("readme.txt", "no pickle")
    with pytest.raises(CheckpointError, match=r"0 data\.pkl"):
        read_torch(path)


@pytest.mark.parametrize("file", ["zip.bin", "legacy.bin"])
@pytest.mark.parametrize("kept", [0.1, 0.3, 0.5, 0.7, 0.95, 0.999])
def test_truncated(tmp_path, file, kept):
    content = (GOLDENS / file).read_bytes()
    path = tmp_path / "a.bin"
    path.write_bytes(content[: int(len(content) * kept)])
    with pytest.raises(CheckpointError, match=r"a\.bin"):
        read_torch(path)


@pytest.mark.parametrize("file", ["zip.bin", "legacy.bin"])
def test_flipped_bytes_never_do_more_than_raise(tmp_path, file):
    content = (GOLDENS / file).read_bytes()
    path = tmp_path / "a.bin"
    generator = np.random.default_rng(0)
    for _ in range(150):
        damaged = bytearray(content)
        for position in generator.integers(0, len(content), 3):
            damaged[position] = generator.integers(256)
        path.write_bytes(damaged)
        try:
            read_all(path)
        except CheckpointError as error:
            assert str(path) in str(error)


def test_no_state_dict_and_a_file_that_shrinks(tmp_path):
    path = write_zip(tmp_path / "a.bin", data({"epoch": 3}))
    with pytest.raises(CheckpointError, match=r"no state dict: found \['epoch'\]"):
        read_torch(path)
    shutil.copy(GOLDENS / "legacy.bin", path)
    tensors = read_torch(path)
    path.write_bytes(path.read_bytes()[:1000])
    with pytest.raises(CheckpointError, match="shorter since it was opened"):
        [read() for _, read in tensors.values()]


def test_containers_of_a_checkpoint_are_copied(tmp_path):
    """As many as a large one has: they are not what the bounds are for."""
    items = data([[f"w{i}", None] for i in range(5000)])
    copied = call(named("collections", "OrderedDict"), items)
    path = write_zip(
        tmp_path / "a.bin", b"}" + data("w") + tensor() + b"s" + data("x") + copied + b"s"
    )
    assert list(read_torch(path)) == ["w"]
