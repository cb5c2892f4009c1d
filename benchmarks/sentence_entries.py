"""The entries that sentence-transformers writes, for a test of what we know of them.

In an environment with sentence-transformers 6:

    python benchmarks/sentence_entries.py > tests/goldens/sentence_entries.json
"""

import importlib
import json
import pathlib
import pkgutil
import tempfile

import sentence_transformers
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.base.modules import Module, Router
from tokenizers import Tokenizer, models
from torch import nn


def modules():
    """Return a dict of each module's name → the entries of its file."""
    for results in pkgutil.walk_packages(sentence_transformers.__path__, "sentence_transformers."):
        if ".modules" in results.name:
            importlib.import_module(results.name)
    left, results = [Module], {}
    while left:
        cls = left.pop()
        left += cls.__subclasses__()
        if cls.__module__.startswith("sentence_transformers.") and cls.config_keys:
            results[cls.__name__] = sorted({*cls.config_keys, *cls.config_key_renames})
    return dict(sorted(results.items()))


def files():
    """Return a dict of the other files → their entries."""
    modules = sentence_transformers.sentence_transformer.modules
    static = modules.StaticEmbedding(
        Tokenizer(models.BPE()), embedding_weights=None, embedding_dim=2
    )
    routes = {"query": [modules.Normalize()], "document": [modules.Normalize()]}
    model = SentenceTransformer(modules=[static, Router(routes)], truncate_dim=1, device="cpu")
    results = {"CrossEncoder": []}
    with tempfile.TemporaryDirectory() as folder:
        model.save(folder, create_model_card=False)
        for name in ("modules", "config_sentence_transformers", "1_Router/router_config"):
            content = json.loads(pathlib.Path(folder, f"{name}.json").read_text())
            content = content[0] if isinstance(content, list) else content
            results[name.rpartition("/")[2]] = sorted(content)
            if "parameters" in content:
                results["routes"] = sorted(content["parameters"])
    encoder = CrossEncoder(modules=[static], activation_fn=nn.Sigmoid(), device="cpu")
    encoder.keep_in_fp32_modules = ["a"]
    results["CrossEncoder"] = sorted(encoder._get_model_config())
    return results


if __name__ == "__main__":
    about = {"version": sentence_transformers.__version__, "of_modules": modules(), **files()}
    print(json.dumps(about, indent=1))
