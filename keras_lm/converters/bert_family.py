"""What the checkpoints of BERT and of its descendants have in common: names, and configurations."""

import functools

from keras_lm.converters.converter import Activation, Derived, Fixed, Key, dropout_rules

# === Names of tensors ===

PARTS = ("query", "key", "value")
# Hugging Face's, of BERT, RoBERTa, ELECTRA and others.
HUGGINGFACE_ENCODER = {
    "token_embedding": "embeddings.word_embeddings",
    "position_embedding": "embeddings.position_embeddings",
    "segment_embedding": "embeddings.token_type_embeddings",
    "embedding_norm": "embeddings.LayerNorm",
    "block_{i}/attention/query_key_value": tuple(
        f"encoder.layer.{{i}}.attention.self.{part}" for part in PARTS
    ),
    "block_{i}/attention/output": "encoder.layer.{i}.attention.output.dense",
    "block_{i}/attention_norm": "encoder.layer.{i}.attention.output.LayerNorm",
    "block_{i}/feedforward/intermediate": "encoder.layer.{i}.intermediate.dense",
    "block_{i}/feedforward/output": "encoder.layer.{i}.output.dense",
    "block_{i}/feedforward_norm": "encoder.layer.{i}.output.LayerNorm",
}
# Hugging Face's classes for these heads have no pooler.
WITHOUT_POOLER = dict.fromkeys(("token_classification", "question_answering", "token"), ())
BERT_HEADS = {
    "pooler": WITHOUT_POOLER | {None: "pooler.dense"},
    "classifier/pooler": "pooler.dense",
    "classifier/logits": "classifier",
    "span_head/logits": "qa_outputs",
    "token_head/dense": "cls.predictions.transform.dense",
    "token_head/norm": "cls.predictions.transform.LayerNorm",
    "token_head/bias": "cls.predictions.bias",
}
# What repeats another tensor in BERT's files.
BERT_COPIES = {
    "cls.predictions.decoder.weight": "embeddings.word_embeddings.weight",
    "cls.predictions.decoder.bias": "cls.predictions.bias",
}
OLD_SPELLINGS = {"LayerNorm.gamma": "LayerNorm.weight", "LayerNorm.beta": "LayerNorm.bias"}
ROBERTA_HEADS = {
    "pooler": WITHOUT_POOLER | {"classification": (), None: "pooler.dense"},
    "classifier/pooler": {"multiple_choice": "pooler.dense", None: "classifier.dense"},
    # The head of a classifier of texts; those of tokens and of choices are one layer.
    "classifier/logits": {"classification": "classifier.out_proj", None: "classifier"},
    "span_head/logits": "qa_outputs",
    "token_head/dense": "lm_head.dense",
    "token_head/norm": "lm_head.layer_norm",
    "token_head/bias": "lm_head.bias",
}
ROBERTA_SPELLINGS = OLD_SPELLINGS | {"lm_head.decoder.bias": "lm_head.bias"}


def google_names(names):
    """Return a table of google-research's names: Hugging Face kept them, with dots for slashes."""

    def spell(name):
        if isinstance(name, dict):
            return {variant: spell(inner) for variant, inner in name.items()}
        if isinstance(name, tuple):
            return tuple(map(spell, name))
        return name.replace("layer.{i}", "layer_{i}").replace(".", "/")

    return {ours: spell(theirs) for ours, theirs in names.items()}


# === Configurations ===

# The arguments that BERT and its descendants share, in the words of `config.json`.
ENCODER_RULES = {
    "vocabulary_size": Key("vocab_size"),
    "num_layers": Key("num_hidden_layers"),
    "num_heads": Key("num_attention_heads"),
    "hidden_dim": Key("hidden_size"),
    "intermediate_dim": Key("intermediate_size"),
    **dropout_rules("hidden_dropout_prob", "attention_probs_dropout_prob"),
    "activation": Activation("hidden_act"),
    "max_sequence_length": Key("max_position_embeddings", 512),
    "num_segments": Key("type_vocab_size", 2),
    "layer_norm_epsilon": Key("layer_norm_eps", 1e-12),
}
# What google-research's code has in common with its descendants; it states no epsilon.
GOOGLE_RULES = ENCODER_RULES | {
    # "gelu" is the tanh form in google-research's code and in Model Garden's.
    "activation": Activation("hidden_act", names={"gelu": "gelu_tanh"}),
    "layer_norm_epsilon": Derived(
        ENCODER_RULES["layer_norm_epsilon"].read,
        functools.partial(Fixed(1e-12).write, "layer_norm_epsilon"),
    ),
    "use_pooler": Derived(lambda config, tensors: any("pooler" in name for name in tensors)),
}
# The heads that its programs know.
GOOGLE_PROGRAMS = {
    "": "modeling.py",
    "classification": "run_classifier.py",
    "question_answering": "run_squad.py",
    "token": "run_pretraining.py",
}
