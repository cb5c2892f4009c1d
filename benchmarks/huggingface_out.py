"""What `save_to_huggingface` writes, beside what transformers makes of it.

    python benchmarks/huggingface_out.py write FOLDER --tokenizers TOKENIZERS [--only bert]
    PYTHON_WITH_TRANSFORMERS benchmarks/huggingface_out.py compare FOLDER

`write` makes small random models of every kind with each of their heads, saves each in a folder of
its own, with its answers and the ids of lines of text, and loads it again here, where all answers
must be the same bits. Classifiers and regressors of texts are asked with strings, too: single ones
and pairs. `compare` needs torch, transformers and sentence-transformers, and not
keras_lm: it loads each folder, where a warning is an error, counts the weights that are missing or
left over, and prints the largest difference of an answer (of its largest number, where that is
above 1), of strings also of what transformers makes of them by itself, segments among it, and the
number of lines with other ids. Models that a version of transformers lacks are left out by name:
for Transformer-XL, ask 4.35 to 4.37.
TOKENIZERS has a folder of published vocabulary files for each kind (`wordpiece-uncased`, …), and
`lines.json`, a list of texts.
"""

import argparse
import collections
import contextlib
import json
import logging
import pathlib
import sys
import warnings

import numpy as np

SIZE = {"num_layers": 2, "num_heads": 2, "hidden_dim": 32, "intermediate_dim": 48}
ENCODER_TASKS = {
    "backbone": {},
    "TextClassifier": {"class_names": ["bad", "fair", "good"]},
    "TextClassifier multi": {"num_classes": 3, "multi_label": True},
    "TextRegressor": {},
    "MultipleChoice": {},
    "TokenClassifier": {"class_names": ["O", "B-X", "I-X"]},
    "QuestionAnswerer": {},
    "MaskedLM": {},
    "Pretrainer": {},
}
WITHOUT_PRETRAINER = {name: ENCODER_TASKS[name] for name in [*ENCODER_TASKS][:-1]}
FEATURES = {"FeatureExtractor": {"pooling": "mean", "normalize": True}}
FEATURES["FeatureExtractor more"] = {
    "pooling": ["first", "max"],
    "projections": [{"output_dim": 12, "activation": "tanh"}],
    "prompt": "query: ",
}
FEW = {name: ENCODER_TASKS[name] for name in ("backbone", "TextClassifier", "MaskedLM")}
OF_TEXTS_AND_TOKENS = FEW | {"TokenClassifier": ENCODER_TASKS["TokenClassifier"]} | FEATURES
WRITERS = {"backbone": {}, "CausalLM": {}, "TextClassifier": {"num_classes": 3}}
WITH_CHOICES = WRITERS | {"MultipleChoice": {}}
TRANSLATORS = {"backbone": {}, "Seq2SeqLM": {}}
# Chunks in place of hashes, which are random; as many positions as there are tokens.
REFORMER = {"attention_layers": ["local"], "local_chunk_length": 3, "max_sequence_length": 9}
REFORMER |= {"axial_shape": [3, 3], "axial_dims": [8, 24]}
DEBERTA = {"embedding_dim": 16, "bucket_size": None, "max_distance": 4, "share_projections": False}
DEBERTA |= {"normalize_distances": False, "use_position_embedding": True, "num_segments": 2}
DEBERTA |= {"conv_kernel_size": 3, "classifier_dropout": 0.3, "pooler_activation": "tanh"}
# Transformer-XL's words in clusters, with memories that are shorter than the texts.
CLUSTERS = {"cutoffs": [100, 400], "div_val": 2, "memory_length": 4}
PUBLISHED_XL = CLUSTERS | {"same_length": True, "clamp_length": 6}
ONE_TABLE = CLUSTERS | {"div_val": 1, "embedding_dim": 24, "untie_biases": False}
ONE_TABLE |= {"tie_projections": [True, False, True]}
WIDE_WORDS = CLUSTERS | {"embedding_dim": 48, "tie_projections": [False] * 3}
WIDE_WORDS |= {"tie_embeddings": False, "head_dim": 12}
# Windows that are shorter than the texts.
NEAR = {"attention_windows": [None, 6, 6], "num_layers": 5, "dropout": 0.1}
# A case → its class of backbone, tokenizer, arguments, and tasks with theirs.
CASES = {
    "bert": ("Bert", "wordpiece-uncased", {}, ENCODER_TASKS | FEATURES),
    "bert-cased": ("Bert", "wordpiece-cased", {"activation": "gelu_tanh"}, FEW),
    "bert-no-pooler": ("Bert", "wordpiece-uncased", {"use_pooler": False}, FEW),
    "spanbert": ("SpanBert", "wordpiece-cased", {}, FEW),
    "tinybert": (
        "TinyBert",
        "wordpiece-uncased",
        {},
        {"backbone": {}, "TokenClassifier": {"num_classes": 3}},
    ),
    "distilbert": ("DistilBert", "wordpiece-uncased", {}, ENCODER_TASKS),
    "distilbert-sines": ("DistilBert", "wordpiece-uncased", {"sinusoidal": True}, FEW),
    "roberta": ("Roberta", "bytebpe-roberta", {}, ENCODER_TASKS),
    "roberta-pooler": ("Roberta", "bytebpe-roberta", {"use_pooler": True}, ENCODER_TASKS),
    "roberta-no-segments": ("Roberta", "bytebpe-roberta", {"num_segments": 0}, FEW),
    "mpnet": ("MPNet", "mpnet", {}, ENCODER_TASKS | FEATURES),
    "mpnet-no-pooler": ("MPNet", "mpnet", {"use_pooler": False}, FEW),
    "deberta": ("DebertaV3", "deberta", {}, WITHOUT_PRETRAINER | FEATURES),
    "deberta-v2": ("DebertaV3", "deberta", DEBERTA, WITHOUT_PRETRAINER),
    "deberta-c2p": ("DebertaV3", "deberta", {"position_attention": ["c2p"]}, FEW),
    "deberta-plain": ("DebertaV3", "deberta", {"position_attention": []}, FEW),
    "modernbert": ("ModernBert", "modernbert", NEAR, ENCODER_TASKS | FEATURES),
    "modernbert-mean": ("ModernBert", "modernbert", NEAR | {"classifier_pooling": "mean"}, FEW),
    "gte": ("Gte", "wordpiece-uncased", {}, OF_TEXTS_AND_TOKENS),
    "gte-no-segments": (
        "Gte",
        "wordpiece-uncased",
        {"num_segments": 0, "rope_max_wavelength": 100.0, "activation": "silu"},
        OF_TEXTS_AND_TOKENS,
    ),
    "nomicbert": ("NomicBert", "wordpiece-uncased", {}, OF_TEXTS_AND_TOKENS),
    "nomicbert-wide": (
        "NomicBert",
        "wordpiece-uncased",
        {"head_dim": 10, "rope_max_wavelength": 100.0, "activation": "gelu"},
        OF_TEXTS_AND_TOKENS,
    ),
    "eurobert": ("EuroBert", "bytebpe-roberta", {}, OF_TEXTS_AND_TOKENS),
    "eurobert-shared": (
        "EuroBert",
        "bytebpe-roberta",
        {"num_key_value_heads": 1, "classifier_pooling": "mean", "rope_max_wavelength": 100.0},
        OF_TEXTS_AND_TOKENS,
    ),
    "electra": ("Electra", "wordpiece-uncased", {"embedding_dim": 16}, ENCODER_TASKS),
    "electra-generator": ("ElectraGenerator", "wordpiece-uncased", {}, FEW),
    "albert": ("Albert", "sentencepiece-albert", {"embedding_dim": 16}, ENCODER_TASKS | FEATURES),
    "albert-groups": (
        "Albert",
        "sentencepiece-albert",
        {"embedding_dim": 32, "num_groups": 2, "num_layers": 4, "num_inner_repetitions": 2},
        FEW,
    ),
    "albert-inner": ("Albert", "sentencepiece-albert", {"num_inner_repetitions": 3}, FEW),
    "gpt": ("GPT", "bpe-gpt1", {"intermediate_dim": 128}, WITH_CHOICES),
    "gpt2": ("GPT2", "bytebpe-gpt2", {}, WITH_CHOICES),
    "gpt3-dense": ("GPT3", "bytebpe-gpt2", {"attention_windows": [None]}, WRITERS),
    "gpt-neo": ("GPTNeo", "bytebpe-gpt2", {"attention_windows": [None, 3]}, WRITERS),
    "t5": ("T5", "sentencepiece-t5", {"head_dim": 12, "num_decoder_layers": 3}, TRANSLATORS),
    "t5-1.1": (
        "T5",
        "sentencepiece-t5",
        {"gated": True, "activation": "gelu_tanh", "tie_embeddings": False},
        TRANSLATORS,
    ),
    "t5-encoder": ("T5Encoder", "sentencepiece-t5", {}, {"backbone": {}} | FEATURES),
    "xlnet": (
        "XLNet",
        "sentencepiece-xlnet",
        {"memory_length": 4},
        ENCODER_TASKS | {"QuestionAnswerer": {"conditional_ends": False}} | FEATURES,
    ),
    "xlnet-ends": (
        "XLNet",
        "sentencepiece-xlnet",
        {},
        {"QuestionAnswerer": {"num_starts": 3, "num_ends": 2}},
    ),
    "xlnet-causal": (
        "XLNet",
        "sentencepiece-xlnet",
        {"causal": True, "clamp_length": 4},
        {"backbone": {}, "MaskedLM": {}},
    ),
    "reformer": (
        "Reformer",
        "sentencepiece-t5",
        REFORMER,
        {"backbone": {}, "CausalLM": {}},
    ),
    "reformer-both-sides": (
        "Reformer",
        "sentencepiece-t5",
        REFORMER | {"causal": False, "axial_shape": None, "axial_dims": None},
        {"backbone": {}, "TextClassifier": {"num_classes": 3}, "QuestionAnswerer": {}},
    ),
    "transformer-xl": (
        "TransformerXL",
        "transformer-xl",
        PUBLISHED_XL,
        WRITERS | {"TextRegressor": {}},
    ),
    "transformer-xl-one-table": (
        "TransformerXL",
        "transformer-xl",
        ONE_TABLE,
        {"backbone": {}, "CausalLM": {}},
    ),
    "transformer-xl-wide-words": (
        "TransformerXL",
        "transformer-xl",
        WIDE_WORDS,
        {"backbone": {}, "CausalLM": {}},
    ),
    "transformer-xl-pre-norm": (
        "TransformerXL",
        "transformer-xl",
        {"pre_norm": True, "memory_length": 0},
        WRITERS,
    ),
    "marian": ("Marian", "marian", {}, TRANSLATORS),
    "marian-two": (
        "Marian",
        None,
        {"vocabulary_size": 90, "decoder_vocabulary_size": 70},
        TRANSLATORS,
    ),
}
TEXTS = ["the film was good", "a very nice cast, and a story"]
# Strings, asked one by one, and their pairs.
SINGLES = [*TEXTS, "café 日本 x", "word", "it's 12.50 (or so)! "]
PAIRS = ["was it?", "no", "the end of it all, they said", "b", "y z"]
# What transformers 4 itself fails at: more blocks in a layer of ALBERT's than layers in a group, a
# vocabulary of Marian's decoder of another size; and from its version 4.VERSION on, Transformer-XL.
FAIL_IN_4 = {"albert-inner": 0, "marian-two": 0, "transformer-xl": 38}
# A T5 that is not tied, whatever its configuration says; what Marian's tokenizer recommends; and
# what Transformer-XL's says since 4.36, of pickles, which these folders do not have.
KNOWN_WARNINGS = (
    "The tied weights mapping and config",
    "Recommended: pip install sacremoses",
    "`TransfoXL` was deprecated",
)
# Between a case and its task in the name of a folder, in which transformers 4 minds spaces.
JOIN = "__"
# Our output → transformers'.
OUTPUTS = {
    "sequence_output": "last_hidden_state",
    "pooled_output": "pooler_output",
    "start_logits": "start_logits",
    "end_logits": "end_logits",
    "next_sentence_logits": "seq_relationship_logits",
    "sentence_order_logits": "sop_logits",
    "token_logits": "prediction_logits",
    "replaced_logits": "logits",
    "null_logits": "cls_logits",
    "starts": "start_top_index",
    "memory": "mems",
}


def write(folder, tokenizers, only):
    import keras_lm

    lines = json.loads((tokenizers / "lines.json").read_text()) if tokenizers else []
    for case, (model, kind, arguments, tasks) in CASES.items():
        if only and not case.startswith(only):
            continue
        tokenizer = _tokenizer(keras_lm, tokenizers, kind)
        if kind and tokenizer is None:
            print(f"{case}: no tokenizer {kind}, left out")
            continue
        sizes = SIZE | arguments
        if tokenizer is not None:
            sizes = {"vocabulary_size": tokenizer.vocabulary_size} | sizes
        for name, options in tasks.items():
            backbone = getattr(keras_lm.models, f"{model}Backbone")(**sizes)
            made = _with_head(keras_lm, backbone, tokenizer, name, options)
            if made is not None:
                _write_one(
                    folder / f"{case}{JOIN}{name.replace(' ', '-')}",
                    made,
                    backbone,
                    tokenizer,
                    lines,
                )


def _tokenizer(keras_lm, tokenizers, kind):
    if kind == "marian":  # two models of another kind, with ids of its own
        model = (tokenizers / "sentencepiece-t5" / "spiece.model").read_bytes()
        pieces = keras_lm.tokenizers.SentencePieceTokenizer(model).vocabulary
        special = ["</s>", "<unk>"]
        entries = [*special, *(p for p in pieces if p not in (*special, "<pad>")), "<pad>"]
        return keras_lm.tokenizers.MarianTokenizer(model, model, entries)
    if kind == "mpnet":  # BERT's vocabulary with entries of its own around it
        entries = _tokenizer(keras_lm, tokenizers, "wordpiece-uncased").vocabulary
        special = {"cls_token": "<s>", "pad_token": "<pad>", "sep_token": "</s>"}
        return keras_lm.tokenizers.WordPieceTokenizer(
            [*special.values(), "<mask>", *entries], True, **special, mask_token="<mask>"
        )
    if kind == "deberta":  # T5's model with entries of its own after it
        special = {"cls_token": "[CLS]", "sep_token": "[SEP]", "mask_token": "[MASK]"}
        return keras_lm.tokenizers.SentencePieceTokenizer(
            tokenizers / "sentencepiece-t5" / "spiece.model",
            **special,
            **{"pad_token": "<pad>", "bos_token": "[CLS]", "eos_token": "[SEP]"},
            additional_special_tokens=["</s>"],
            added_tokens=list(special.values()),
        )
    if kind == "modernbert":  # GPT-2's vocabulary, BERT's special tokens, and a normal form
        entries = _tokenizer(keras_lm, tokenizers, "bytebpe-gpt2").vocabulary
        roles = {role: f"[{role.upper()}]" for role in ("cls", "sep", "pad", "mask")}
        return keras_lm.tokenizers.BytePairTokenizer(
            [*entries, "[UNK]", *roles.values()],
            tokenizers / "bytebpe-gpt2" / "merges.txt",
            unknown_token="[UNK]",
            lstrip_tokens=["[MASK]"],
            normalization="NFC",
            **{f"{role}_token": token for role, token in roles.items()},
        )
    if kind == "transformer-xl":  # the most frequent words of the lines, by its own rules
        from keras_lm.tokenizers.transformer_xl import split_words

        lines = json.loads((tokenizers / "lines.json").read_text())
        words = split_words(lines).flat_values.numpy()
        words = collections.Counter(word.decode() for word in words)
        words = [word for word, _ in words.most_common(2000) if word.split() == [word]]
        entries = dict.fromkeys(["<eos>", "<unk>", "<formula>", *words])
        return keras_lm.tokenizers.TransformerXLTokenizer(
            [*entries],
            "<unk>",
            eos_token="<eos>",
            additional_special_tokens=["<formula>"],
        )
    if kind is None or not (tokenizers / kind).is_dir():
        return None
    return keras_lm.tokenizers.Tokenizer.from_preset(tokenizers / kind)


def _with_head(keras_lm, backbone, tokenizer, name, options):
    if name == "backbone":
        return backbone
    try:
        return getattr(keras_lm.tasks, name.split()[0])(backbone, tokenizer=tokenizer, **options)
    except ValueError as error:
        print(f"{type(backbone).__name__} has no {name}: {str(error)[:100]}")
        return None


def _write_one(folder, made, backbone, tokenizer, lines):
    import keras

    import keras_lm

    generator = np.random.default_rng(0)
    for variable in made.weights:
        if variable.trainable or variable.path.endswith("/bias"):  # Marian's is not trained
            variable.assign_add(generator.normal(0, 0.1, variable.shape).astype("float32"))
    is_bare = made is backbone
    if is_bare:
        made.save_to_huggingface(folder, tokenizer=tokenizer)
    else:
        made.save_to_huggingface(folder)
    inputs = _inputs(made, backbone, tokenizer, generator)
    again = (keras_lm.models.Backbone if is_bare else type(made)).from_preset(folder)
    first, second = (_answers(model, inputs) for model in (made, again))
    for name, value in first.items():
        if not np.array_equal(value, second[name]):
            largest = np.abs(value - second[name]).max()
            print(f"{folder.name}: {name} is another after loading, by {largest}")
    if type(made).__name__ == "FeatureExtractor":
        first = {"embeddings": made.predict(TEXTS, verbose=0)}
        inputs = {}
    np.savez(
        folder / "answers.npz",
        **{f"in.{n}": v for n, v in inputs.items()},
        **{f"out.{n}": v for n, v in first.items()},
    )
    if tokenizer is not None and type(made).__name__ in ("TextClassifier", "TextRegressor"):
        (folder / "strings.json").write_text(json.dumps(_of_strings(made)))
    if tokenizer is not None and is_bare:
        ids = tokenizer(lines, parse_special=True).to_list()
        (folder / "ids.json").write_text(json.dumps({"lines": lines, "ids": ids}))
    print(f"{folder.name}: written")
    keras.backend.clear_session()


def _inputs(made, backbone, tokenizer, generator):
    """Return packed inputs of two rows, the second padded on the side that the model pads on."""
    shape = (2, 3, 9) if type(made).__name__ == "MultipleChoice" else (2, 9)
    inputs = {}
    for name in backbone.input_names:
        if name.endswith("token_ids"):
            rows = backbone.vocabulary_size
            if name.startswith("decoder"):
                rows = backbone.config.get("decoder_vocabulary_size") or rows
            inputs[name] = generator.integers(6, rows - 2, shape).astype("int32")
        elif name.endswith("padding_mask"):
            inputs[name] = np.ones(shape, "int32")
        elif name == "segment_ids":
            number = backbone.config.get("num_segments") or 1
            inputs[name] = (
                (np.arange(9) > 4).astype("int32") * (number > 1) * np.ones(shape, "int32")
            )
    pad = 0 if tokenizer is None else getattr(getattr(made, "packer", None), "pad_id", 0)
    if tokenizer is not None and "pad" in tokenizer.special_tokens:
        pad = tokenizer.special_id("pad")
    is_left = backbone.TEMPLATE.padding_side == "left" and not backbone.config["causal"]
    padding = slice(0, 3) if is_left else slice(6, 9)
    for name in inputs:
        if name.endswith("padding_mask") and not name.startswith("decoder"):
            inputs[name][1, ..., padding] = 0
            inputs[name.replace("padding_mask", "token_ids")][1, ..., padding] = pad
    return inputs


def _answers(model, inputs):
    results = model(inputs)
    results = results if isinstance(results, dict) else {"logits": results}
    return {name: np.asarray(value) for name, value in results.items() if hasattr(value, "shape")}


def _of_strings(task):
    """Return what a task makes of single texts and of pairs: dicts of a row's lists and outputs."""
    results = []
    for text, other in [*((text, None) for text in SINGLES), *zip(SINGLES, PAIRS, strict=True)]:
        columns = {"text": [text]} if other is None else {"text": [text], "text_pair": [other]}
        packed = task.preprocess(columns)
        row = {name: np.asarray(value)[0].tolist() for name, value in packed.items()}
        outputs = np.asarray(task(packed)).reshape(-1).tolist()
        results.append({"text": text, "text_pair": other, "packed": row, "outputs": outputs})
    return results


def compare(folder, only):
    import transformers

    transformers.utils.logging.disable_progress_bar()
    print(f"transformers {transformers.__version__}")
    worst, wrong = 0.0, 0
    for path in sorted(folder.glob(f"{only or ''}*")):
        is_sentences = (path / "modules.json").is_file()
        try:
            largest, said, is_wrong = (_sentences if is_sentences else _one)(path)
        except _NoSuchModelError as error:
            print(f"{path.name}: left out, as transformers {transformers.__version__} {error}")
            continue
        except Exception as error:
            last = (str(error).splitlines() or [""])[-1].strip()
            largest, said, is_wrong = 0, f"{type(error).__name__} {last}", True
            if _fails_itself(path.name.partition(JOIN)[0], transformers.__version__):
                said, is_wrong = f"fails in this transformers itself: {said}", False
        worst, wrong = max(worst, largest), wrong + is_wrong
        print(f"{'WRONG ' if is_wrong else ''}{path.name}: {said}", flush=True)
    print(f"largest difference {worst:.1e}; wrong: {wrong}")
    return wrong


def _fails_itself(case, version):
    major, minor = map(int, version.split(".")[:2])
    since = [least for name, least in FAIL_IN_4.items() if case.startswith(name)]
    return major == 4 and any(minor >= least for least in since)


class _NoSuchModelError(Exception):
    """This version of transformers lacks the model."""


def _sentences(path):
    """Return the largest difference of an embedding, what to print, and whether it is too large."""
    from sentence_transformers import SentenceTransformer

    theirs = SentenceTransformer(str(path), device="cpu").encode(TEXTS)
    largest = float(np.abs(np.load(path / "answers.npz")["out.embeddings"] - theirs).max())
    return largest, f"SentenceTransformer {largest:.1e}", not largest < 1e-5


def _one(path):
    """Return the largest difference of an answer, what to print, and whether anything is wrong."""
    import torch
    import transformers

    stored = np.load(path / "answers.npz")
    config = json.loads((path / "config.json").read_text())
    (name,) = config["architectures"]
    cls = getattr(transformers, name, None)
    if cls is None:
        raise _NoSuchModelError(f"has no {name}")
    case = path.name.partition(JOIN)[0]
    lacks_pooler = cls.__name__.endswith("Model") and "no-pooler" in case
    lacks_pooler |= cls.__name__ == "RobertaModel" and case in ("roberta", "roberta-no-segments")
    lacks_pooler |= cls.__name__ == "BertModel" and case == "spanbert"
    options = {"add_pooling_layer": False} if lacks_pooler else {}
    tokenizer = None
    with _no_warnings():
        model, info = cls.from_pretrained(path, output_loading_info=True, **options)
        if (path / "tokenizer_config.json").is_file():
            tokenizer = transformers.AutoTokenizer.from_pretrained(path)
    with torch.no_grad():
        theirs = model.eval()(**_renamed(stored, path.name, model))
    problems = {name: sorted(value) for name, value in info.items() if value}
    names = [name.removeprefix("out.") for name in stored.files if name.startswith("out.")]
    differences = [_difference(stored, name, theirs, path.name) for name in names]
    largest = max((d for d in differences if d is not None), default=float("nan"))
    tokens, are_wrong = "", False
    if (path / "ids.json").is_file():
        tokens = _other_ids(path, tokenizer)
    if (path / "strings.json").is_file():
        tokens, are_wrong = _other_strings(path, tokenizer, model)
    said = f"{cls.__name__} {largest:.1e} {problems or ''} {tokens}"
    return largest, said, bool(problems) or are_wrong or not largest < 1e-5


@contextlib.contextmanager
def _no_warnings():
    """Raise an error for what is warned of while a folder is loaded, by Python or in the log."""

    class Refuse(logging.Handler):
        def emit(self, record):
            if not record.getMessage().startswith(KNOWN_WARNINGS):
                raise UserWarning(record.getMessage())

    handler, log = Refuse(logging.WARNING), logging.getLogger("transformers")
    log.addHandler(handler)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for start in KNOWN_WARNINGS:
                warnings.filterwarnings("ignore", message=start)
            yield
    finally:
        log.removeHandler(handler)


def _renamed(stored, name, model):
    import inspect

    import torch

    names = {
        "token_ids": "input_ids",
        "segment_ids": "token_type_ids",
        "padding_mask": "attention_mask",
        "encoder_token_ids": "input_ids",
        "encoder_padding_mask": "attention_mask",
        "decoder_token_ids": "decoder_input_ids",
        "decoder_padding_mask": "decoder_attention_mask",
    }
    results = {}
    for ours, theirs in names.items():
        if f"in.{ours}" in stored.files:
            results[theirs] = torch.tensor(stored[f"in.{ours}"]).long()
    parameters = inspect.signature(model.forward).parameters
    results = {name: value for name, value in results.items() if name in parameters}
    if getattr(model.config, "attn_type", None) == "uni":
        results.pop(
            "attention_mask"
        )  # with which it fails, and needs none for padding on the right
    if "DoubleHeads" in type(model).__name__:
        # It takes masks of single texts only, and needs none for padding on the right.
        results["mc_token_ids"] = results.pop("attention_mask").sum(-1) - 1
    if "p_mask" in parameters:
        # An answer is in the first text, and `<cls>` is last.
        barred = stored["out.start_logits"] < -1e20
        results |= {"p_mask": torch.tensor(barred).float(), "cls_index": torch.tensor([8, 8])}
    return results


def _difference(stored, ours, theirs, case):
    value = stored[f"out.{ours}"]
    name = OUTPUTS.get(ours, ours)
    if case.endswith("MultipleChoice") and hasattr(theirs, "mc_logits"):
        name = "mc_logits"
    if name == "prediction_logits" and not hasattr(theirs, name):
        name = "logits"
    if ours == "end_logits" and hasattr(theirs, "end_top_log_probs"):
        # The likeliest ends (B, K, E) for K starts, as probabilities; theirs are in the order of E.
        likely = np.exp(value - value.max(-1, keepdims=True))
        likely = np.sort(likely / likely.sum(-1, keepdims=True))[..., ::-1]
        others = theirs.end_top_log_probs.numpy().reshape(len(value), -1, value.shape[1])
        likely = likely[..., : others.shape[1]].transpose(0, 2, 1)
        return float(np.abs(likely - others).max())
    if not hasattr(theirs, name) or getattr(theirs, name) is None:
        return None
    other = getattr(theirs, name)
    if ours == "memory":  # (B, L, M, D); theirs is L of (M, B, D), with padding in the second row
        if not case.startswith("transformer-xl"):
            return None
        value, other = value[:1], np.stack(other).transpose(2, 0, 1, 3)[:1]
    other = np.asarray(other)
    if value.ndim > 1 and value.shape[1] == 9:  # by token: padding may hold anything
        mask = stored[
            "in.padding_mask" if "in.padding_mask" in stored.files else "in.decoder_padding_mask"
        ]
        value, other = value[mask > 0], other[mask > 0]
    return float(np.abs(value - other).max() / max(1, np.abs(value).max()))


def _other_ids(path, tokenizer):
    known = json.loads((path / "ids.json").read_text())
    results = [tokenizer(line, add_special_tokens=False)["input_ids"] for line in known["lines"]]
    others = [
        i for i, (one, two) in enumerate(zip(results, known["ids"], strict=True)) if one != two
    ]
    return f"{type(tokenizer).__name__}: {len(others)} of {len(results)} lines differ {others[:8]}"


def _other_strings(path, tokenizer, model):
    """Ask with strings, as its users do: tokenizer, then the model with all that it returned."""
    import torch

    ids, segments, ties, largest = 0, 0, 0, 0.0
    for known in json.loads((path / "strings.json").read_text()):
        texts = [text for text in (known["text"], known["text_pair"]) if text is not None]
        encoded = tokenizer(*texts, truncation=True, return_tensors="pt")
        packed = {name: np.array(value) for name, value in known["packed"].items()}
        real = packed["padding_mask"] > 0
        if _is_tie(tokenizer, texts):  # the model is asked with our ids
            ties += 1
            for theirs, ours in (("input_ids", "token_ids"), ("token_type_ids", "segment_ids")):
                if theirs in encoded:
                    encoded[theirs] = torch.tensor(packed[ours][real])[None]
        ids += encoded["input_ids"][0].tolist() != packed["token_ids"][real].tolist()
        if "segment_ids" in packed:
            none = torch.zeros_like(encoded["input_ids"])
            theirs = encoded.get("token_type_ids", none)[0].tolist()
            segments += theirs != packed["segment_ids"][real].tolist()
        try:
            with torch.no_grad():
                results = model(**encoded).logits.reshape(-1).numpy()
        except TypeError as error:  # it takes no segments, and its tokenizer returned some
            return f"strings: {error}", True
        other, size = np.array(known["outputs"]), max(1, np.abs(results).max())
        largest = max(largest, float(np.abs(results - other).max() / size))
    said = f"strings: {ids} with other ids, {segments} with other segments, {largest:.1e}"
    said += f", {ties} cut at a tie" if ties else ""
    return said, bool(ids or segments or not largest < 1e-5)


def _is_tie(tokenizer, texts):
    """Whether transformers leaves the second text a token more than we do; see docs/sources.md."""
    if len(texts) == 1:
        return False
    first, second = (len(tokenizer.tokenize(text)) for text in texts)
    room = tokenizer.model_max_length - tokenizer.num_special_tokens_to_add(pair=True)
    return room % 2 == 1 and room // 2 < first <= second


def main():
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("step", choices=["write", "compare"])
    parser.add_argument("folder", type=pathlib.Path)
    parser.add_argument("--tokenizers", type=pathlib.Path)
    parser.add_argument("--only")
    options = parser.parse_args()
    if options.step == "compare":
        sys.exit(1 if compare(options.folder, options.only) else 0)
    write(options.folder, options.tokenizers, options.only)


if __name__ == "__main__":
    main()
