"""What the readers of all formats share: their exception, configurations, tensors, and entries.

Tensors are read on access. Of those in shards, an index says in which of the files beside it each
of them is.

What a file states is followed, or refused by its name. Files of other libraries state more than one
reader needs; each file that is read has an `Entries` table that gives every entry of it one of four
words:

- read: its value is followed.
- implied: tensors, or other entries, say the same, and they are followed.
- harmless: it changes no output, as what concerns training or bookkeeping does.
- refused: other values than those listed would change outputs in a way that is not followed. Such
  a value is an error.

An entry that no table has is not passed over: its name is part of a warning.
"""

import ast
import dataclasses
import functools
import json
import mmap
import pathlib
import re
import zlib
from collections.abc import Callable, Collection, Iterator, Mapping
from typing import Any, Self

import ml_dtypes
import numpy as np
import safetensors

from keras_lm.utils.files import sum_of
from keras_lm.utils.user_arguments import warn

LFS_START = b"version https://git-lfs"
MOST_JSON_BYTES = 2**27  # more than any vocabulary has
MOST_GIN_BYTES = 2**20  # many times what there is
MOST_TENSORS = 10_000  # many times what the largest model has
LONGEST_MESSAGE = 1400
# A reader's entry for one tensor: its shape, and the function that reads it.
Entry = tuple[tuple[int, ...], Callable[[], np.ndarray]]
# A file name to its reader, in the order of preference within a folder.
Readers = dict[str, Callable[[pathlib.Path], dict[str, Entry]]]


class CheckpointError(ValueError):
    """A checkpoint cannot be read; the message names the file, what is wrong and the remedy."""

    def __str__(self):
        message = super().__str__()
        if len(message) <= LONGEST_MESSAGE:
            return message
        return f"{message[: LONGEST_MESSAGE - 400]} … {message[-300:]}"  # it quotes the file


def require_file(path: pathlib.Path, named_by: str = "") -> pathlib.Path:
    """Return `path`; raise a CheckpointError if it is missing, empty or a git-LFS pointer."""
    if not path.is_file():
        reason = f", named by {named_by}," if named_by else ""
        raise CheckpointError(f"{path}{reason} is missing. Copy it into the folder.")
    with path.open("rb") as file:
        start = file.read(len(LFS_START))
    if start == LFS_START:
        raise CheckpointError(
            f"{path} is a git-LFS pointer, not the file itself. Run `git lfs pull` in the "
            "repository that it comes from, or download the file itself."
        )
    if not start:
        raise CheckpointError(f"{path} is empty. Copy or download it again.")
    return path


def require_few(names, path: pathlib.Path) -> None:
    """Raise a CheckpointError if a file or folder holds more tensors than any model has."""
    if len(names) > MOST_TENSORS:
        raise CheckpointError(
            f"{path} holds {len(names)} tensors, and a checkpoint has {MOST_TENSORS} at most: it "
            "is damaged, or another program's."
        )


# === Configurations: JSON, and gin as mesh_tensorflow and trax leave it ===


def read_json(path: pathlib.Path, kind: type = dict) -> dict | list:
    """Return the JSON object (or list) in a file; raise a CheckpointError if there is none."""
    require_file(path)
    if path.stat().st_size > MOST_JSON_BYTES:
        raise CheckpointError(
            f"{path} has {path.stat().st_size} bytes, and such a file has {MOST_JSON_BYTES} at "
            "most: it is another file. Copy or download it again."
        )
    try:
        value = json.loads(path.read_text(encoding="utf-8"), object_hook=plain_numbers)
    except (OSError, ValueError, RecursionError) as error:
        raise CheckpointError(
            f"{path} is not valid JSON ({error}). Copy or download it again."
        ) from error
    if not isinstance(value, kind):
        raise CheckpointError(
            f"{path} should hold a JSON {'object' if kind is dict else 'list'} and holds a "
            f"{type(value).__name__}. "
            "Copy or download it again."
        )
    return value


def plain_numbers(value: dict) -> dict | float:
    """Return a JSON object, or the number that it stands for.

    JSON has no infinity, so transformers 5 writes it as `{"__float__": "Infinity"}`.
    """
    if value.keys() != {"__float__"}:
        return value
    return float(str(value["__float__"]))  # also of "-Infinity" and "NaN"


def read_config(folder: pathlib.Path, name: str) -> dict:
    """Return the JSON object in a file of a folder, `{}` if there is no such file."""
    return read_json(folder / name) if (folder / name).is_file() else {}


GIN = "operative_config.gin"
BINDING = re.compile(r"^([\w./]+)[^\S\n]*=\s*(.+)$", re.MULTILINE)


def read_gin(path: pathlib.Path) -> dict:
    """Return what a gin file binds: `{"num_heads": 8, "decoder/SelfAttention.num_heads": 8}`.

    Macros, `%num_heads`, are replaced; what is not a literal, such as `@SelfAttention`, stays text.
    """
    require_file(path)
    if path.stat().st_size > MOST_GIN_BYTES:
        raise CheckpointError(
            f"{path} has {path.stat().st_size} bytes, and settings have {MOST_GIN_BYTES} at most: "
            "it is another file. Copy or download it again."
        )
    try:
        text = path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise CheckpointError(f"{path} is not UTF-8 text. Copy or download it again.") from error
    text = re.sub(r"^[^\S\n]*#.*", "", text, flags=re.MULTILINE)
    text = re.sub(r"\\[^\S\n]*\n\s*", "", text)  # a long value goes on in the next line
    bound = {name: _literal(value) for name, value in BINDING.findall(text)}

    def resolved(value):
        is_macro = isinstance(value, str) and value.startswith("%")
        return bound.get(value[1:], value) if is_macro else value

    return {name: resolved(value) for name, value in bound.items()}


def _literal(text):
    try:
        return ast.literal_eval(text.strip())
    except (ValueError, SyntaxError, TypeError, MemoryError, RecursionError):
        return text.strip()


# === Tensors ===


class LazyTensors(Mapping):
    """Names and shapes at once, values on access: `tensors["bert/pooler/dense/kernel"]`.

    Values are not cached, so that memory never holds a large checkpoint, and no file is kept open.
    """

    def __init__(self, entries: dict[str, Entry]):
        self._entries = entries

    def __getitem__(self, name: str) -> np.ndarray:
        value = self._entries[name][1]()
        # V are bfloat16 and the like, or records.
        if value.dtype.kind not in "fiubV" or value.dtype.names:
            raise CheckpointError(
                f"{name!r} holds values of the type {value.dtype}, which cannot be weights. The "
                "checkpoint is damaged: copy or download it again."
            )
        return value

    def __contains__(self, name) -> bool:
        # Mapping's own version would read the tensor to find out.
        return name in self._entries

    def __iter__(self) -> Iterator[str]:
        return iter(self._entries)

    def __len__(self) -> int:
        return len(self._entries)

    def __repr__(self) -> str:
        return f"LazyTensors({len(self)} tensors)"

    def renamed(self, names: dict[str, str]) -> "LazyTensors":
        """Return the same tensors, those in `names` under the name that it gives them."""
        return LazyTensors({names.get(name, name): entry for name, entry in self._entries.items()})

    def shape(self, name: str) -> tuple[int, ...]:
        """Return the shape of a tensor without reading it."""
        return self._entries[name][0]


def read_first(folder: pathlib.Path, readers: Readers) -> dict[str, Entry]:
    """Read the first of the files that exists; raise a CheckpointError if none does."""
    for name, read in readers.items():
        if (folder / name).is_file():
            return read(folder / name)
    raise CheckpointError(
        f"{folder} has a configuration and no weights that go with it. Put one of these beside it: "
        f"{', '.join(readers)}."
    )


def read_shard_index(path: pathlib.Path) -> dict:
    """Return the `weight_map` of an index file: tensor names to the files beside it."""
    weight_map = read_json(path).get("weight_map")
    if not isinstance(weight_map, dict):
        raise CheckpointError(f'{path} has no "weight_map". Copy or download it again.')
    for shards in weight_map.values():
        for shard in shards if isinstance(shards, list) else [shards]:
            # A downloaded index must not make us open files elsewhere on the disk.
            if not isinstance(shard, str) or pathlib.PureWindowsPath(shard).name != shard:
                raise CheckpointError(
                    f"{path} names the shard {shard!r}, which is not a file name. Shards lie "
                    "beside their index: put them there and correct the name."
                )
    return weight_map


def read_shards(
    index: pathlib.Path,
    read_file: Callable[..., dict[str, Entry]],
    stored_name: Callable[[str], str] = lambda name: name,
) -> dict[str, Entry]:
    """Open the shards that an index names, each with `read_file(path, named_by=index)`.

    `stored_name` returns the name in the shard of a name in the index.
    """
    weight_map = {stored_name(name): shard for name, shard in read_shard_index(index).items()}
    shards = {
        shard: read_file(index.parent / shard, named_by=str(index))
        for shard in sorted(set(weight_map.values()))
    }
    for name, shard in weight_map.items():
        if name not in shards[shard]:
            raise CheckpointError(
                f"{index} places {name!r} in {shard}, which has no such tensor. The files are of "
                "different checkpoints or versions: copy or download them together."
            )
    return {name: shards[shard][name] for name, shard in weight_map.items()}


# === Entries ===

READ, IMPLIED, HARMLESS, REFUSED = "read", "implied", "harmless", "refused"
LONGEST_VALUE = 200  # characters of a value in a message


@dataclasses.dataclass(frozen=True)
class Entries:
    """What the entries of one kind of file mean.

    Args:
        read, implied, harmless: collections of names.
        refused: dict of name → a tuple of the only values that are followed. A missing entry, and
            None, are always fine.

    Example:

        table = Entries(read={"num_beams"}, refused={"num_beam_groups": (1,)})
        table.check({"num_beam_groups": 2}, "model/generation_config.json", "CausalLM")  # raises
    """

    read: Collection[str] = ()
    implied: Collection[str] = ()
    harmless: Collection[str] = ()
    refused: Mapping[str, tuple] = dataclasses.field(default_factory=dict)

    def __or__(self, other: Self) -> Self:
        """Return the entries of both tables; where both have one, `other` decides."""

        def rest(names):
            return {name for name in names if other.word(name) is None}

        return type(self)(
            rest(self.read) | {*other.read},
            rest(self.implied) | {*other.implied},
            rest(self.harmless) | {*other.harmless},
            {name: self.refused[name] for name in rest(self.refused)} | dict(other.refused),
        )

    def word(self, name: str) -> str | None:
        """Return "read", "implied", "harmless" or "refused"; None for an entry of no row."""
        words = {
            READ: self.read,
            IMPLIED: self.implied,
            HARMLESS: self.harmless,
            REFUSED: self.refused,
        }
        return next((word for word, names in words.items() if name in names), None)

    def unknown(self, stated: Mapping[str, Any]) -> list[str]:
        """Return the names, sorted, of entries with a value that are in no row."""
        return sorted(
            name
            for name, value in stated.items()
            if value is not None and self.word(name) is None and not name.startswith("_")
        )

    def check(self, stated: Mapping[str, Any], where: str, reader: str) -> None:
        """Raise an error for a value that is refused, and warn of entries that are in no row.

        Args:
            stated: dict, the file's entries.
            where: str, the file, for messages.
            reader: str, what would have to follow the entry, such as a class.

        Raises:
            CheckpointError: if an entry has a value that would change outputs and is not followed.
        """
        for name, values in self.refused.items():
            value = stated.get(name)
            if value is not None and value not in values:
                known = " or ".join(map(repr, values)) or "folders without it"
                raise CheckpointError(
                    f"{where} has {name}={str(repr(value))[:LONGEST_VALUE]}, which would change "
                    f"the outputs: {reader} supports only {known}."
                )
        unknown = self.unknown(stated)
        if unknown:
            warn(
                f"{where} has entries that {reader} does not know and does not follow: "
                f"{', '.join(unknown[:12])}{' and others' if len(unknown) > 12 else ''}."
            )


# === What the entries mean that configurations of all of Hugging Face's models have ===

# What `generate` reads there where a folder has no generation_config.json.
GENERATION = {
    "assistant_confidence_threshold",
    "assistant_early_exit",
    "assistant_ensemble_weight",
    "assistant_lookbehind",
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "cache_config",
    "cache_implementation",
    "compile_config",
    "constraints",
    "continuous_batching_config",
    "decoder_start_token_id",
    "disable_compile",
    "diversity_penalty",
    "do_sample",
    "dola_layers",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "encoder_repetition_penalty",
    "eos_token_id",
    "epsilon_cutoff",
    "eta_cutoff",
    "exponential_decay_length_penalty",
    "force_words_ids",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "guidance_scale",
    "is_assistant",
    "length_penalty",
    "low_memory",
    "max_cache_len",
    "max_length",
    "max_matching_ngram_size",
    "max_new_tokens",
    "max_time",
    "min_length",
    "min_new_tokens",
    "min_p",
    "no_repeat_ngram_size",
    "num_assistant_tokens",
    "num_assistant_tokens_schedule",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_logits",
    "output_scores",
    "pad_token_id",
    "penalty_alpha",
    "prefill_chunk_size",
    "prompt_lookup_num_tokens",
    "remove_invalid_values",
    "renormalize_logits",
    "repetition_penalty",
    "return_dict_in_generate",
    "return_legacy_cache",
    "sequence_bias",
    "speculation_type",
    "stop_strings",
    "suppress_tokens",
    "target_length",
    "target_lookbehind",
    "temperature",
    "token_healing",
    "top_h",
    "top_k",
    "top_p",
    "typical_p",
    "use_mtp",
    "watermarking_config",
}
HUGGINGFACE = Entries(
    read=GENERATION
    | {
        "architectures",
        "id2label",
        "model_type",
        "problem_type",
        "quantization_config",
        "sbert_ce_default_activation_function",
        "sentence_transformers",
        "tokenizer_class",
    },
    # The classes follow from the names and the tensors; whether the output matrix is the token
    # embedding, from the tensors.
    implied={"label2id", "num_labels", "tie_word_embeddings"},
    harmless={
        "attn_implementation",  # ways to the same numbers
        "auto_map",  # code of the authors for a model that is known by its model_type
        "chunk_size_feed_forward",
        "cls_token_id",  # tokenizer files say which tokens there are
        "dtype",  # of the file; the user chooses that of the model
        "finetuning_task",
        "gradient_checkpointing",
        "initializer_range",
        "mask_token_id",
        "output_attentions",
        "output_hidden_states",
        "output_past",
        "prefix",  # of pipelines, as the next
        "return_dict",
        "sep_token_id",
        "task_specific_params",
        "tf_legacy_loss",
        "torch_dtype",
        "torchscript",
        "transformers_version",
        "unk_token_id",
        "use_bfloat16",
        "use_cache",
    },
    refused={
        "add_cross_attention": (False,),
        "cross_attention_hidden_size": (),
        "is_decoder": (False,),
        "is_encoder_decoder": (False,),
        "pruned_heads": ({},),  # versions before 5 leave such heads out of the weights
        "tie_encoder_decoder": (False,),
    },
)
# What encoders could be there, and are not here.
PLAIN_ENCODER = Entries(refused={"position_embedding_type": ("absolute",)})
# Of heads that drop as the network does, see `ConfigTable.rates`.
CLASSIFIER_RATE = {"classifier_dropout": ("hidden_dropout_prob",)}


# The types of tensors that are read, by their names in a `.safetensors` file.
SAFETENSORS_TYPES = {
    "F64": np.float64,
    "F32": np.float32,
    "F16": np.float16,
    "BF16": ml_dtypes.bfloat16,
    **{
        f"{kind}{bits}": f"{of}{bits // 8}" for kind, of in ("Ii", "Uu") for bits in (8, 16, 32, 64)
    },
    "BOOL": np.bool_,
}


def read_safetensors(path: pathlib.Path, named_by: str = "") -> dict[str, Entry]:
    """Open a `.safetensors` file, of which only the header is read."""
    require_file(path, named_by)
    try:
        with safetensors.safe_open(path, framework="numpy") as file:  # checks the whole header
            names = list(file.keys())
            require_few(names, path)
            shapes = {name: tuple(file.get_slice(name).get_shape()) for name in names}
            expected = stated_checksums(path, file.metadata())
        begin, header = _header(path)
        return {
            name: (shape, functools.partial(_map, path, name, begin, header[name], expected))
            for name, shape in shapes.items()
        }
    except (safetensors.SafetensorError, OSError, ValueError, KeyError) as error:
        if isinstance(error, CheckpointError):
            raise
        raise _damaged(path, error) from error


def _header(path):
    """Return where the values of a `.safetensors` file begin, and what its header describes."""
    with path.open("rb") as file:
        size = int.from_bytes(file.read(8), "little")
        return 8 + size, json.loads(file.read(size))


def _map(path: pathlib.Path, name: str, begin: int, entry: dict, expected: dict):
    """Return an array in the memory of the file, which can be read and not written."""
    if entry["dtype"] not in SAFETENSORS_TYPES:
        raise CheckpointError(
            f"{path}: {name!r} has a type that is not supported ({entry['dtype']}), such as the "
            "float8 of quantized models. Take the checkpoint in float32, float16 or bfloat16."
        )
    start, end = (begin + place for place in entry["data_offsets"])
    dtype = np.dtype(SAFETENSORS_TYPES[entry["dtype"]])
    first = start - start % mmap.ALLOCATIONGRANULARITY
    try:
        if start == end:
            return np.zeros(entry["shape"], dtype)
        with path.open("rb") as file:
            mapped = mmap.mmap(file.fileno(), end - first, access=mmap.ACCESS_READ, offset=first)
        array = np.frombuffer(mapped, dtype, (end - start) // dtype.itemsize, start - first)
        array = array.reshape(entry["shape"])
    except (OSError, ValueError) as error:
        raise _damaged(path, error, f" at {name!r}") from error
    check_tensor(path, name, array, expected)
    return array


PART = 2**20  # bytes, many times the `BLOCK` of checksums


def in_parts(array: np.ndarray) -> Iterator[tuple[int, np.ndarray]]:
    """Yield where a part of an array begins on the first axis, and the part: `PART` bytes or more.

    What of a mapped file was read is not kept in memory.
    """
    mapped = array
    while isinstance(mapped, np.ndarray | memoryview):
        mapped = mapped.base if isinstance(mapped, np.ndarray) else mapped.obj
    can_forget = isinstance(mapped, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED")
    array = array.reshape(1) if not array.ndim else array
    rows = max(PART * len(array) // max(array.nbytes, 1), 1)
    for start in range(0, len(array), rows):
        yield start, array[start : start + rows]
        if can_forget:
            mapped.madvise(mmap.MADV_DONTNEED)


def save_checked(arrays: dict, path: pathlib.Path, metadata: dict | None = None) -> None:
    """Write a dict of arrays with their checksums, and `metadata`, in the header."""
    _save(arrays, path, with_checksums(metadata or {}, arrays))


def _save(arrays, path, metadata):
    """Write a dict of arrays as the package safetensors does, without a copy of them."""
    names = {np.dtype(of): name for name, of in SAFETENSORS_TYPES.items()}
    header, size = {"__metadata__": metadata}, 0
    # The largest types come first, so that all values lie at multiples of their size.
    order = sorted(arrays, key=lambda name: (-arrays[name].dtype.itemsize, name))
    for name in order:
        array = arrays[name]
        entry = {"dtype": names[array.dtype], "shape": array.shape}
        header[name] = entry | {"data_offsets": (size, size := size + array.nbytes)}
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with path.open("wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        for name in order:
            file.write(np.ascontiguousarray(arrays[name]).reshape(-1).view(np.uint8))


def read_checked(path: pathlib.Path) -> tuple[dict, dict]:
    """Return the metadata and the arrays of a file by `save_checked`, compared.

    Raises:
        CheckpointError: if a tensor is not the one that was written.
        SafetensorError, OSError: if it is not such a file.
    """
    with safetensors.safe_open(path, framework="numpy") as file:
        metadata = file.metadata() or {}
        expected = stated_checksums(path, metadata)
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    for name, array in arrays.items():
        check_tensor(path, name, array, expected)
    return metadata, arrays


def write_safetensors(
    folder: pathlib.Path, arrays: dict, max_shard_bytes: int, metadata: dict | None = None
) -> None:
    """Write `model.safetensors`, or shards of it and their index, into an existing folder.

    `arrays` is a dict of NumPy arrays; one larger than `max_shard_bytes` has a file of its own.
    `metadata` is a dict of str, for the header of each file; without it, that has checksums.
    """
    shards, size = [{}], 0
    for name, array in arrays.items():
        if shards[-1] and size + array.nbytes > max_shard_bytes:
            shards.append({})
            size = 0
        shards[-1][name] = array
        size += array.nbytes
    # Other programs may keep a header whose tensors they have changed.
    save = save_checked if metadata is None else _save
    if len(shards) == 1:
        save(shards[0], folder / "model.safetensors", metadata)
        return
    weight_map = {}
    for number, shard in enumerate(shards, start=1):
        file = f"model-{number:05d}-of-{len(shards):05d}.safetensors"
        save(shard, folder / file, metadata)
        weight_map |= dict.fromkeys(shard, file)
    total = sum(array.nbytes for array in arrays.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    text = json.dumps(index, indent=2)
    (folder / "model.safetensors.index.json").write_text(f"{text}\n")


def _damaged(path, error, where="") -> CheckpointError:
    return CheckpointError(
        f"{path} cannot be read as safetensors{where}: {error}. It is damaged, incomplete or of "
        "another format: copy or download it again."
    )


# === Checksums ===

CHECKSUMS = "checksums"  # of the header
OF_HEADER = ""  # stands for its other entries, beside the names of tensors


def tensor_checksum(name: str, array: np.ndarray) -> int:
    """Return the checksum of a tensor: of its name, type, shape and values."""
    checksum = zlib.crc32(f"{name} {array.dtype} {array.shape}".encode())
    for _, part in in_parts(np.ascontiguousarray(array).reshape(-1).view(np.uint8)):
        checksum = sum_of(part, checksum)
    return checksum


def header_checksum(metadata: dict) -> int:
    """Return the CRC-32 of the other entries of a header."""
    others = {name: value for name, value in metadata.items() if name != CHECKSUMS}
    return zlib.crc32(json.dumps(others, sort_keys=True).encode())


def with_checksums(metadata: dict, arrays: dict) -> dict[str, str]:
    """Return a header with the checksums of itself and a dict of tensors."""
    checksums = {name: tensor_checksum(name, array) for name, array in arrays.items()}
    return metadata | {CHECKSUMS: json.dumps({OF_HEADER: header_checksum(metadata)} | checksums)}


def stated_checksums(path: pathlib.Path, metadata: dict | None) -> dict[str, int]:
    """Return the checksums that a header states, `{}` if the file is older or not ours.

    Raises:
        CheckpointError: if the header is not the one that was written.
    """
    if CHECKSUMS not in (metadata or {}):
        return {}
    try:
        checksums = json.loads(metadata[CHECKSUMS])
    except (ValueError, RecursionError) as error:
        raise _changed(path) from error
    if not isinstance(checksums, dict) or checksums.get(OF_HEADER) != header_checksum(metadata):
        raise _changed(path)
    return checksums


def check_tensor(path: pathlib.Path, name: str, array: np.ndarray, expected: dict) -> None:
    """Raise a CheckpointError if a tensor of a file is not the one that was written."""
    if expected and tensor_checksum(name, array) != expected.get(name):
        raise _changed(path, f" at {name!r}")


def _changed(path, where=""):
    return CheckpointError(
        f"{path} is damaged{where}: its checksum differs from that in its header. Copy or download "
        "it again."
    )
