"""What each entry of a published file means here: it is followed, or refused by its name.

Files of other libraries state more than one reader needs. Each file that is read has an `Entries`
table that gives every entry of it one of four words:

- read: its value is followed.
- implied: tensors, or other entries, say the same, and they are followed.
- harmless: it changes no output, as what concerns training or bookkeeping does.
- refused: other values than those listed would change outputs in a way that is not followed. Such
  a value is an error.

An entry that no table has is not passed over: its name is part of a warning.
"""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any, Self

from keras_lm.converters.checked_files import CheckpointError
from keras_lm.utils.user_warning import warn

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
                    f"the outputs: {reader} knows only {known}."
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
