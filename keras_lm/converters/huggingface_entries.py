"""What the entries mean that configurations of Hugging Face's have for all of its models."""

from keras_lm.converters.entries import Entries

# What `generate` reads there where a folder has no generation_config.json.
GENERATION = {
    "bad_words_ids",
    "begin_suppress_tokens",
    "bos_token_id",
    "decoder_start_token_id",
    "diversity_penalty",
    "do_sample",
    "early_stopping",
    "encoder_no_repeat_ngram_size",
    "eos_token_id",
    "exponential_decay_length_penalty",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "length_penalty",
    "max_length",
    "min_length",
    "no_repeat_ngram_size",
    "num_beam_groups",
    "num_beams",
    "num_return_sequences",
    "output_scores",
    "pad_token_id",
    "remove_invalid_values",
    "repetition_penalty",
    "return_dict_in_generate",
    "suppress_tokens",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
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
