"""Packing for encoder-decoders. Shapes: B batch, S source, T target."""

import tensorflow as tf

from keras_lm.layers.masks import IGNORED


class Seq2SeqPacker:
    """Pack a source text for the encoder, and in training its target text for the decoder.

    Args:
        source, target: `keras_lm.packers.Packer` of single texts, possibly with two tokenizers; the
            target's template must end with the end token, and pad on the right.
        start_token: str, the decoder's first input: `"<pad>"` for T5 and Marian.

    Call: `packer({"text": …})` returns `encoder_token_ids` and `encoder_padding_mask`, (B, S); with
    `labels`, the target texts, also `decoder_token_ids`, `decoder_padding_mask` and `labels`,
    (B, T). All are int32. The decoder reads the target shifted right by one; `labels` are -100 in
    padding.

    Raises:
        ValueError: if the target's padding is on the left.

    Example:

        target = Packer(Template("$A:0 </s>:0", "$A:0 $B:0 </s>:0"), tokenizer, 128)
        packer = Seq2SeqPacker(target, target, "<pad>")
        packer({"text": tf.constant(["a house"]), "labels": tf.constant(["ein Haus"])})

    Source: Sutskever et al. 2014, https://arxiv.org/abs/1409.3215, section 2.
    """

    names = ("text", "labels")
    required = ("text",)

    def __init__(self, source, target, start_token):
        if target.template.padding_side != "right":
            raise ValueError("target has padding_side='left': a decoder reads from left to right.")
        self.source = source
        self.target = target
        self.start_id = target.tokenizer.token_to_id(start_token)

    def __call__(self, columns, tokenize=None):
        packed = self.source({"text": columns["text"]}, tokenize)
        inputs = {f"encoder_{name}": packed[name] for name in ("token_ids", "padding_mask")}
        if "labels" not in columns:
            return inputs
        packed = self.target({"text": columns["labels"]})
        ids, mask = packed["token_ids"], packed["padding_mask"]
        start = tf.fill([tf.shape(ids)[0], 1], self.start_id)
        return inputs | {
            "decoder_token_ids": tf.concat([start, ids[:, :-1]], axis=1),
            "decoder_padding_mask": mask,
            "labels": tf.where(mask > 0, ids, IGNORED),
        }
