"""`hf://owner/name[@revision]`: fetching and uploading folders through huggingface_hub."""

import pathlib
import re

from keras_lm.converters.checked_files import CheckpointError
from keras_lm.utils.argument_types import PathLike
from keras_lm.utils.files import as_local

PREFIX = "hf://"
NAME = re.compile(r"(\w[\w.-]*/)?\w[\w.-]*", re.ASCII)
REVISION = re.compile(r"(\w[\w./+-]*)?", re.ASCII)
# Configurations, vocabularies and indexes: small, and they determine what else is needed; the card,
# which states the licence; and the layers of sentence-transformers.
SMALL_FILES = [
    "*.json",
    "*.txt",
    "*.bpe",
    "*.model",
    "*.spm",
    "assets/*",
    "checkpoint",
    "README.md",
]
SMALL_FILES += ["adapter_model.safetensors", "adapter_model.bin"]
SMALL_FILES += [
    f"*_{kind}/{name}"
    for kind in ("Dense", "LayerNorm")
    for name in ("model.safetensors", "pytorch_model.bin")
]
# Exports for other runtimes, which repeat the weights or the configuration.
OTHER_RUNTIMES = ["onnx/*", "openvino/*", "coreml/*", "*.onnx", "*.msgpack"]
# In the order of preference; the first whose files are in the repository is taken.
WEIGHTS = [
    ["model.safetensors", "model-*-of-*.safetensors"],
    ["model.weights.h5", "model_*.weights.h5", "task.weights.h5"],
    ["pytorch_model.bin", "pytorch_model-*-of-*.bin"],
    ["*weights.hdf5"],
    ["*.ckpt*.index", "*.ckpt*.data-*-of-*"],
    ["model.pt"],
    ["tf_model.h5", "tf_model-*-of-*.h5"],
    ["0_Transformer/model.safetensors", "*_0_Transformer/model.safetensors"],
    ["0_Transformer/pytorch_model.bin", "*_0_Transformer/pytorch_model.bin"],
]


def upload(folder: PathLike, target: str, private: bool = True) -> None:
    """Upload a folder to the Hugging Face hub, where its repository is made if there is none.

    Args:
        folder: path of a folder, such as `save_to_huggingface` or `save_to_preset` writes.
        target: str, `hf://owner/name`, or `hf://owner/name@branch`.
        private: bool. Whether only its owner sees a new repository.

    Raises:
        FileNotFoundError: if there is no such folder.
        ValueError: if `target` is not the name of a repository, or the hub refuses the files.
    """
    folder = as_local(folder)
    if not folder.is_dir():
        raise FileNotFoundError(f"There is no folder {str(folder)!r}: save a model there first.")
    name, _, branch = target.removeprefix(PREFIX).partition("@")
    is_name = target.startswith(PREFIX) and "/" in name and NAME.fullmatch(name)
    if not is_name or not REVISION.fullmatch(branch) or ".." in target:
        raise ValueError(
            f"target={target[:200]!r} is not the name of a repository: give hf://owner/name, or "
            "hf://owner/name@branch."
        )
    import huggingface_hub

    hub = huggingface_hub.HfApi()
    try:
        hub.create_repo(name, private=private, exist_ok=True)
        hub.upload_folder(repo_id=name, folder_path=str(folder), revision=branch or None)
    except Exception as error:  # network, permission and name errors share no base class
        raise ValueError(
            f"{target} could not be uploaded ({type(error).__name__}: {str(error)[:300]}). Log in "
            "with a token that may write, or set HF_TOKEN, and check the name and the connection."
        ) from error


def fetch(source: str) -> pathlib.Path:
    """Download a repository's configuration, vocabulary and weights; return their folder.

    Only one set of weights is downloaded, and nothing that is in huggingface_hub's cache. Its
    environment variables (HF_HOME, HF_HUB_OFFLINE, HF_TOKEN …) apply.
    """
    name, _, revision = source.removeprefix(PREFIX).partition("@")
    # A revision is looked up as a file in the cache, and what that holds names a folder.
    if not NAME.fullmatch(name) or not REVISION.fullmatch(revision) or ".." in source:
        raise CheckpointError(
            f"{source[:200]!r} could not be fetched, as it is not the name of a repository: give "
            "hf://owner/name, or hf://owner/name@revision with a branch, a tag or a commit."
        )
    try:
        import huggingface_hub
    except ImportError as error:
        raise CheckpointError(
            f"{source} needs huggingface_hub: pip install huggingface_hub, or download the files "
            "by hand and give their folder."
        ) from error

    try:
        for weights in WEIGHTS:
            folder = pathlib.Path(
                huggingface_hub.snapshot_download(
                    name,
                    revision=revision or None,
                    allow_patterns=SMALL_FILES + weights,
                    ignore_patterns=OTHER_RUNTIMES,
                )
            )
            if any(any(folder.glob(pattern)) for pattern in weights):
                break
    except Exception as error:  # Network, cache, permission and name errors share no base class.
        reason = str(error).strip().splitlines()[0] if str(error).strip() else "no reason given"
        raise CheckpointError(
            f"{source} could not be fetched ({type(error).__name__}: {reason}). Check the name "
            "(hf://owner/name, or hf://owner/name@revision) and the connection; log in or set "
            "HF_TOKEN if the repository is private; with HF_HUB_OFFLINE=1 only what is in the "
            "cache can be had. Or download the files elsewhere and give their folder."
        ) from error
    return folder
