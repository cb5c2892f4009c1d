"""Folders of transformers with unusual options, beside what is read of them here.

    PYTHON_WITH_TRANSFORMERS benchmarks/huggingface_in.py write FOLDER [--only bert]
    python benchmarks/huggingface_in.py compare FOLDER [--only bert]
    PYTHON_WITH_TRANSFORMERS benchmarks/huggingface_in.py entries FILE

`write` needs torch and transformers, and not keras_lm: it makes small random models of every family
with options that are not the usual ones, saves each in a folder of its own, with its outputs.
`compare` loads each folder and counts those with equal outputs, those that are refused, and those
that are wrong: whose outputs differ. `entries` adds to a JSON file what this version of
transformers writes into a configuration of each family, with its defaults: the file that
`tests/converters/test_huggingface_entries.py` compares with the tables of entries.
"""

import argparse
import collections
import json
import pathlib
import sys
import warnings

import numpy as np

# What is equal in all cases of a family: a small network.
ENCODER = {"vocab_size": 60, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
ENCODER |= {"intermediate_size": 24, "max_position_embeddings": 40}
GPT = {"vocab_size": 60, "n_embd": 16, "n_layer": 2, "n_head": 2, "n_positions": 40}
GPT |= {"bos_token_id": 1, "eos_token_id": 2, "pad_token_id": 3}
T5 = {"vocab_size": 60, "d_model": 16, "d_kv": 4, "d_ff": 24, "num_layers": 2, "num_heads": 2}
T5 |= {"decoder_start_token_id": 0}
MARIAN = {"vocab_size": 60, "decoder_vocab_size": 60, "d_model": 16, "encoder_layers": 2}
MARIAN |= {"decoder_layers": 2, "encoder_attention_heads": 2, "decoder_attention_heads": 2}
MARIAN |= {"encoder_ffn_dim": 24, "decoder_ffn_dim": 24, "max_position_embeddings": 40}
MARIAN |= {"pad_token_id": 59, "decoder_start_token_id": 59, "eos_token_id": 0}
MARIAN |= {"forced_eos_token_id": 0}
REFORMER = {"vocab_size": 60, "hidden_size": 16, "num_attention_heads": 2, "feed_forward_size": 24}
REFORMER |= {"attention_head_size": 8, "axial_pos_shape": [3, 3], "axial_pos_embds_dim": [4, 12]}
REFORMER |= {"attn_layers": ["local", "local"], "local_attn_chunk_length": 3}
REFORMER |= {"max_position_embeddings": 9, "is_decoder": True, "hash_seed": 0}
DISTILBERT = {"vocab_size": 60, "dim": 16, "n_layers": 2, "n_heads": 2, "hidden_dim": 24}
DISTILBERT |= {"max_position_embeddings": 40}
XLNET = {"vocab_size": 60, "d_model": 16, "n_layer": 2, "n_head": 2, "d_inner": 24, "d_head": 8}
XLNET |= {"mem_len": None}
NEO = {"vocab_size": 60, "hidden_size": 16, "num_layers": 2, "num_heads": 2, "window_size": 4}
NEO |= {"attention_types": [[["global", "local"], 1]], "max_position_embeddings": 40}
NEO |= {"bos_token_id": 1, "eos_token_id": 2}
BERT_IDS = {"pad_token_id": 0}
EURO = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "mask_token_id": 3}
MODERN = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1}
MODERN |= {"sep_token_id": 2, "local_attention": 4, "num_hidden_layers": 4}

ACTIVATIONS = [
    "gelu_new",
    "gelu_python",
    "gelu_fast",
    "gelu_accurate",
    "relu",
    "silu",
    "quick_gelu",
]
ACTIVATIONS += ["leaky_relu", "relu2", "gelu_10", "relu6", "hardswish", "laplace", "mish"]
# Options that all encoders of BERT's kind have.
COMMON = [
    {},
    *({"hidden_act": name} for name in ACTIVATIONS),
    {"layer_norm_eps": 1e-3},
    {"hidden_dropout_prob": 0.3, "attention_probs_dropout_prob": 0.0},
    {"tie_word_embeddings": False},
    {"is_decoder": True},
    {"chunk_size_feed_forward": 3},
    {"type_vocab_size": 3},
    {"num_labels": 1},
    {"num_labels": 4, "problem_type": "multi_label_classification"},
    {"classifier_dropout": 0.4},
    {"pruned_heads": {0: [1]}},
    {"position_embedding_type": "relative_key"},
    {"output_hidden_states": True, "return_dict": False},
]
HEADS = ["Model", "MaskedLM", "SequenceClassification", "TokenClassification", "QuestionAnswering"]
HEADS += ["MultipleChoice"]
GPT_HEADS = ["Model", "LMHeadModel", "SequenceClassification", "DoubleHeadsModel"]
GPT_OPTIONS = [
    {},
    {"n_inner": 40},
    {"layer_norm_epsilon": 1e-3},
    {"embd_pdrop": 0.3},
    {"summary_type": "last"},
    {"summary_proj_to_labels": False, "summary_activation": "tanh"},
    {"num_labels": 5},
    {"tie_word_embeddings": False},
]
# A family → what its classes begin with, its heads, sizes, and options.
FAMILIES = {
    "bert": ("Bert", HEADS, ENCODER, COMMON),
    "roberta": ("Roberta", HEADS, ENCODER, [*COMMON, {"pad_token_id": 4}]),
    "xlm-roberta": (
        "XLMRoberta",
        HEADS,
        ENCODER,
        [{}, {"pad_token_id": 0}, {"layer_norm_eps": 1e-3}],
    ),
    "electra": (
        "Electra",
        HEADS,
        ENCODER | {"embedding_size": 8},
        [
            *COMMON,
            {"embedding_size": 16},
            {"summary_type": "mean"},
            {"summary_use_proj": False},
            {"summary_activation": "tanh"},
            {"summary_last_dropout": 0.4},
        ],
    ),
    "albert": (
        "Albert",
        HEADS,
        ENCODER | {"embedding_size": 8} | BERT_IDS,
        [
            *COMMON,
            {"num_hidden_groups": 2},
            {"inner_group_num": 2},
            {"embedding_size": 16},
            {"classifier_dropout_prob": 0.4},
        ],
    ),
    "mpnet": (
        "MPNet",
        HEADS,
        ENCODER,
        [
            {},
            {"hidden_act": "gelu_new"},
            {"hidden_act": "leaky_relu"},
            {"relative_attention_num_buckets": 16},
            {"layer_norm_eps": 1e-3},
            {"pad_token_id": 4},
            {"num_labels": 1},
            {"tie_word_embeddings": False},
        ],
    ),
    "distilbert": (
        "DistilBert",
        HEADS,
        DISTILBERT,
        [
            {},
            {"sinusoidal_pos_embds": True},
            {"activation": "relu"},
            {"activation": "quick_gelu"},
            {"qa_dropout": 0.4},
            {"seq_classif_dropout": 0.5},
            {"tie_word_embeddings": False},
            {"num_labels": 1},
        ],
    ),
    "deberta-v2": (
        "DebertaV2",
        HEADS,
        ENCODER | {"relative_attention": True, "pos_att_type": ["p2c", "c2p"]},
        [
            {},
            {"position_buckets": 4, "norm_rel_ebd": "layer_norm", "share_att_key": True},
            {"position_biased_input": False},
            {"pos_att_type": ["c2p"]},
            {"pos_att_type": "p2c|c2p"},
            {"pos_att_type": ["p2p"]},
            {"relative_attention": False, "pos_att_type": None},
            {"conv_kernel_size": 3, "conv_act": "gelu"},
            {"conv_kernel_size": 3, "conv_groups": 2},
            {"embedding_size": 8},
            {"pooler_hidden_act": "tanh"},
            {"pooler_hidden_act": "leaky_relu"},
            {"type_vocab_size": 2},
            {"max_relative_positions": 8},
            {"legacy": False},
            {"cls_dropout": 0.3, "pooler_dropout": 0.2},
            {"hidden_act": "gelu_new"},
            {"attention_head_size": 4},
            {"tie_word_embeddings": False},
        ],
    ),
    "eurobert": (
        "EuroBert",
        ["Model", "MaskedLM", "SequenceClassification", "TokenClassification"],
        ENCODER | EURO,
        [
            {},
            {"num_key_value_heads": 1},
            {"head_dim": 6},
            {"classifier_pooling": "mean"},
            {"classifier_pooling": "bos"},
            {"hidden_act": "gelu"},
            {"hidden_act": "leaky_relu"},
            {"rms_norm_eps": 1e-3},
            {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}},
            {"rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0}},
            {"attention_bias": True},
            {"mlp_bias": True},
            {"tie_word_embeddings": True},
            {"num_labels": 1},
        ],
    ),
    "gte": (
        "Gte",
        ["Model", "MaskedLM", "SequenceClassification", "TokenClassification"],
        ENCODER | {"pad_token_id": 0},
        [
            {},
            {"hidden_act": "silu"},
            {"hidden_act": "leaky_relu"},
            {"layer_norm_eps": 1e-3},
            {"type_vocab_size": 0},
            {"type_vocab_size": 3},
            {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}},
            {"rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0}},
            {"hidden_dropout_prob": 0.3},
            {"classifier_dropout": 0.4},
            {"num_labels": 1},
        ],
    ),
    "nomic_bert": (
        "NomicBert",
        ["Model", "MaskedLM", "SequenceClassification", "TokenClassification"],
        ENCODER,
        [
            {},
            {"head_dim": 6},
            {"hidden_act": "gelu"},
            {"hidden_act": "leaky_relu"},
            {"layer_norm_eps": 1e-3},
            {"type_vocab_size": 3},
            {"rope_parameters": {"rope_type": "default", "rope_theta": 100.0}},
            {"rope_parameters": {"rope_type": "linear", "rope_theta": 100.0, "factor": 2.0}},
            {"hidden_dropout_prob": 0.3},
            {"classifier_dropout": 0.4},
            {"num_labels": 1},
        ],
    ),
    "modernbert": (
        "ModernBert",
        HEADS,
        ENCODER | MODERN,
        [
            {},
            {"classifier_pooling": "mean"},
            {"classifier_activation": "relu"},
            {"classifier_activation": "leaky_relu"},
            {"hidden_activation": "silu"},
            {"norm_eps": 1e-3},
            {"norm_bias": True},
            {"attention_bias": True},
            {"mlp_bias": True},
            {"decoder_bias": False},
            {"classifier_bias": True},
            {"global_attn_every_n_layers": 2},
            {"global_rope_theta": 1000.0, "local_rope_theta": 100.0},
            {"local_attention": 6},
            {"sparse_prediction": True},
            {"tie_word_embeddings": False},
            {"num_labels": 1},
        ],
    ),
    "xlnet": (
        "XLNet",
        ["Model", "LMHeadModel", "SequenceClassification", "TokenClassification"]
        + ["QuestionAnsweringSimple", "MultipleChoice"],
        XLNET,
        [
            {},
            {"ff_activation": "relu"},
            {"ff_activation": "gelu_new"},
            {"attn_type": "uni"},
            {"bi_data": True},
            {"clamp_len": 3},
            {"same_length": True},
            {"summary_type": "first"},
            {"summary_type": "mean"},
            {"summary_use_proj": False},
            {"summary_activation": None},
            {"layer_norm_eps": 1e-3},
            {"untie_r": False},
            {"mem_len": 4},
            {"tie_word_embeddings": False},
        ],
    ),
    "gpt2": (
        "GPT2",
        [*GPT_HEADS, "TokenClassification", "QuestionAnswering"],
        GPT,
        [
            *GPT_OPTIONS,
            {"scale_attn_weights": False},
            {"scale_attn_by_inverse_layer_idx": True},
            {"reorder_and_upcast_attn": True},
            {"add_cross_attention": True},
            {"activation_function": "relu"},
            {"activation_function": "quick_gelu"},
        ],
    ),
    "openai-gpt": (
        "OpenAIGPT",
        GPT_HEADS,
        {k: v for k, v in GPT.items() if not k.endswith("_id")} | {"pad_token_id": 3},
        [*(o for o in GPT_OPTIONS if "n_inner" not in o), {"afn": "relu"}, {"afn": "silu"}],
    ),
    "gpt_neo": (
        "GPTNeo",
        ["Model", "CausalLM", "SequenceClassification", "TokenClassification", "QuestionAnswering"],
        NEO,
        [
            {},
            {"attention_types": [[["local"], 2]]},
            {"window_size": 2},
            {"intermediate_size": 40},
            {"activation_function": "gelu"},
            {"layer_norm_epsilon": 1e-3},
            {"embed_dropout": 0.2},
            {"classifier_dropout": 0.3},
            {"tie_word_embeddings": False},
        ],
    ),
    "reformer": (
        "Reformer",
        ["Model", "ModelWithLMHead", "MaskedLM", "SequenceClassification", "QuestionAnswering"],
        REFORMER,
        [
            {},
            {"axial_pos_embds": False},
            {"local_num_chunks_before": 0},
            {"local_num_chunks_after": 1, "is_decoder": False},
            {"is_decoder": False},
            {"hidden_act": "gelu"},
            {"hidden_act": "leaky_relu"},
            {"attention_head_size": 4},
            {"tie_word_embeddings": True},
            {"layer_norm_eps": 1e-3},
        ],
    ),
    "t5": (
        "T5",
        ["Model", "ConditionalGeneration", "EncoderModel"]
        + ["SequenceClassification", "TokenClassification", "QuestionAnswering"],
        T5,
        [
            {},
            {"tie_word_embeddings": False},
            {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False},
            {"feed_forward_proj": "gated-silu"},
            {"feed_forward_proj": "gelu"},
            {"feed_forward_proj": "gated-relu"},
            {"feed_forward_proj": "leaky_relu"},
            {"num_decoder_layers": 3},
            {"relative_attention_num_buckets": 8, "relative_attention_max_distance": 16},
            {"layer_norm_epsilon": 1e-3},
            {"dense_act_fn": "silu"},
            {"classifier_dropout": 0.3},
        ],
    ),
    "mt5": (
        "MT5",
        ["Model", "ConditionalGeneration", "EncoderModel"],
        T5,
        [{}, {"tie_word_embeddings": True}, {"tie_word_embeddings": False}, {"d_kv": 8}],
    ),
    "marian": (
        "Marian",
        ["Model", "MTModel"],
        MARIAN,
        [
            {},
            {"scale_embedding": True},
            {"activation_function": "swish"},
            {"activation_function": "relu"},
            {"activation_function": "leaky_relu"},
            {"share_encoder_decoder_embeddings": False, "tie_word_embeddings": False},
            {"encoder_layers": 1},
            {"decoder_ffn_dim": 40},
            {"activation_dropout": 0.1, "encoder_layerdrop": 0.1},
            {"tie_word_embeddings": False},
        ],
    ),
}
# How the name of a class ends → the task that reads it here.
TASKS = {
    "MaskedLM": "MaskedLM",
    "LMHeadModel": "CausalLM",
    "CausalLM": "CausalLM",
    "ModelWithLMHead": "CausalLM",
    "SequenceClassification": "TextClassifier",
    "TokenClassification": "TokenClassifier",
    "QuestionAnswering": "QuestionAnswerer",
    "QuestionAnsweringSimple": "QuestionAnswerer",
    "MultipleChoice": "MultipleChoice",
    "DoubleHeadsModel": "MultipleChoice",
    "ConditionalGeneration": "Seq2SeqLM",
    "MTModel": "Seq2SeqLM",
}
OTHER_TASKS = {"XLNetLMHeadModel": "MaskedLM"}
WHOLE_NAMES = ("Model", "LMHeadModel", "DoubleHeadsModel", "MTModel", "EncoderModel")
WHOLE_NAMES += ("ModelWithLMHead",)
LENGTH = 9


# === In Python with transformers ===


def write(folder, only):
    import torch
    import transformers

    transformers.utils.logging.set_verbosity_error()
    major = transformers.__version__.split(".")[0]
    for family, (prefix, heads, sizes, options) in FAMILIES.items():
        if only and family != only:
            continue
        for number, option in enumerate(options):
            # Each option with two heads, in turns; heads of the classes with options for these.
            chosen = [heads[number % len(heads)], heads[(number + 2) % len(heads)]]
            if any(name.startswith("summary") for name in option):
                chosen += [h for h in heads if h in ("MultipleChoice", "DoubleHeadsModel")]
            if "num_labels" in option or any(n.startswith("classifier") for n in option):
                chosen += ["SequenceClassification"] * ("SequenceClassification" in heads)
            for head in dict.fromkeys(chosen):
                name = f"{family}__{number}__{head}__v{major}"
                try:
                    _write_one(folder / name, family, prefix, head, sizes | option, torch)
                except Exception as error:  # of transformers itself
                    print(f"{name}: not written, {type(error).__name__} {str(error)[:100]}")
    print(f"written by transformers {transformers.__version__}")


def _write_one(folder, family, prefix, head, config, torch):
    import transformers

    name = prefix + (head if head in WHOLE_NAMES else f"For{head}")
    torch.manual_seed(0)
    config = transformers.AutoConfig.for_model(family, **config)
    model = getattr(transformers, name)(config).eval()
    for parameter in model.parameters():
        if parameter.requires_grad:  # Marian's positions are computed
            parameter.data += 0.2 * torch.randn_like(parameter)
    inputs = _inputs(config, head, torch)
    with torch.no_grad():
        results = model(**inputs, return_dict=True)
    keys = ("logits", "start_logits", "end_logits", "mc_logits", "prediction_logits")
    answers = {key: results[key].numpy() for key in keys if results.get(key) is not None}
    answers = answers or {"last_hidden_state": results[0].numpy()}
    model.save_pretrained(folder)
    (folder / "case.json").write_text(json.dumps({"class": name, "head": head}))
    inputs = {f"in.{k}": v.numpy() for k, v in inputs.items() if k != "use_cache"}
    np.savez(folder / "answers.npz", **inputs, **{f"out.{k}": v for k, v in answers.items()})


def _inputs(config, head, torch):
    shape = (2, 3, LENGTH) if head in ("MultipleChoice", "DoubleHeadsModel") else (2, LENGTH)
    ids = torch.randint(5, 55, shape)
    mask = torch.ones(shape, dtype=torch.long)
    if head == "DoubleHeadsModel":  # the reference fails with a mask
        return {"input_ids": ids}
    if config.model_type not in ("xlnet", "reformer"):
        mask[1, ..., 6:] = 0
        ids[1, ..., 6:] = getattr(config, "pad_token_id", None) or 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    if getattr(config, "type_vocab_size", 0) > 1:
        inputs["token_type_ids"] = (torch.arange(LENGTH) > 4).long().expand(shape).contiguous()
    if config.is_encoder_decoder and head not in ("EncoderModel", "SequenceClassification"):
        inputs["decoder_input_ids"] = torch.randint(5, 55, (2, 5))
    if head == "SequenceClassification" and config.is_encoder_decoder:
        ids[0, -1] = ids[1, 5] = config.eos_token_id
    return inputs


def entries(path):
    """Add to a file what this version writes of each family."""
    import transformers

    stored = json.loads(path.read_text()) if path.is_file() else {}
    results = {}
    for family in [*FAMILIES, "transfo-xl"]:
        try:
            config = transformers.AutoConfig.for_model(family).to_dict()
        except ValueError:  # this version has no such model
            continue
        results[family] = {name: value for name, value in sorted(config.items()) if name[0] != "_"}
        results[family].pop("transformers_version")
    stored[transformers.__version__] = results
    lines = [
        f' "{version}": {{\n'
        + ",\n".join(f'  "{family}": {json.dumps(config)}' for family, config in families.items())
        + "\n }"
        for version, families in stored.items()
    ]
    path.write_text("{\n" + ",\n".join(lines) + "\n}\n")


# === In Python with keras_lm ===


def compare(folder, only):
    import keras

    counts, wrong = collections.Counter(), []
    for path in sorted(folder.glob(f"{only or ''}*")):
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            try:
                largest = _difference(path)
            except ValueError as error:
                word, said = "refused", str(error).replace(str(path), "")
            else:
                word, said = ("equal" if largest < 1e-4 else "WRONG"), f"{largest:.1e}"
        named = [str(w.message) for w in caught if "NoVocabulary" not in w.category.__name__]
        if word == "WRONG":
            wrong.append(path.name)
        counts[word] += 1
        said += "".join(f" | {message.replace(str(path), '')[:200]}" for message in named)
        print(f"{word} {path.name}: {said[:400]}", flush=True)
        keras.backend.clear_session()
    print(", ".join(f"{number} {word}" for word, number in sorted(counts.items())))
    return len(wrong)


def _difference(path):
    """Return the largest difference of an output from the reference's."""
    import keras_lm

    stored, case = np.load(path / "answers.npz"), json.loads((path / "case.json").read_text())
    task = OTHER_TASKS.get(case["class"], TASKS.get(case["head"]))
    if task == "TextClassifier" and stored["out.logits"].shape[-1] == 1:
        task = "TextRegressor"
    if task is None:
        model = keras_lm.models.Backbone.from_preset(path)
        if case["head"] == "EncoderModel":
            model = keras_lm.models.T5EncoderBackbone.from_preset(path)
        backbone = model
    else:
        model = getattr(keras_lm.tasks, task).from_preset(path, tokenizer=None)
        backbone = model.backbone
    half = "encoder_" if "encoder_token_ids" in backbone.input_names else ""
    names = {"input_ids": f"{half}token_ids", "attention_mask": f"{half}padding_mask"}
    names |= {"token_type_ids": "segment_ids", "decoder_input_ids": "decoder_token_ids"}
    inputs = {names[k[3:]]: stored[k].astype("int32") for k in stored.files if k[:3] == "in."}
    results = model({k: v for k, v in inputs.items() if k in backbone.input_names})
    largest = 0.0
    for key in [k for k in stored.files if k[:4] == "out."]:
        value, name = stored[key], key[4:]
        if task == "MultipleChoice" and name == "logits" and "mc_logits" in str(stored.files):
            continue  # of the language model beside the choices
        if isinstance(results, dict):
            ours = results["sequence_output" if name == "last_hidden_state" else name]
        else:
            ours = results
        ours = np.asarray(ours, "float32")
        if ours.shape != value.shape:
            raise AssertionError(f"{path.name}: shape {ours.shape} for {value.shape}")
        # What stands at padding is nobody's.
        if (
            f"{half}padding_mask" in inputs
            and ours.shape[:2] == inputs[f"{half}padding_mask"].shape
        ):
            keep = inputs[f"{half}padding_mask"].astype(bool)
            ours, value = ours[keep], value[keep]
        largest = max(largest, float(np.abs(ours - value).max() / max(1.0, np.abs(value).max())))
    return largest


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("what", choices=["write", "compare", "entries"])
    parser.add_argument("path", type=pathlib.Path)
    parser.add_argument("--only", help="of one family")
    given = parser.parse_args()
    if given.what == "entries":
        sys.exit(entries(given.path))
    sys.exit({"write": write, "compare": compare}[given.what](given.path, given.only))
