"""Packing for encoder-decoders. Shapes: B batch, S source, T target."""

from collections.abc import Callable
from typing import Any, Self

from keras_lm.layers.masks import IGNORED
from keras_lm.packers.packer import PackedInput, Packer, Template
from keras_lm.tensorflow import tf
from keras_lm.tokenizers.tokenizer import Tokenizer
from keras_lm.utils.argument_types import Tensor

READ = ("token_ids", "padding_mask")  # what each half of the model reads


class Seq2SeqPacker(Packer):
    """Pack a source text, or a pair, for the encoder, and in training its target for the decoder.

    The target is tokenized by `tokenizer.target`, has the template of one text, which must end with
    the end token, and is padded on the right. The decoder starts with the padding token, as in T5
    and Marian, or with the bos token if there is none, unless `start_id` names another one.

    Args:
        target_length: int. Maximum of T, the end token included.
        start_id: int, the token that the decoder starts with; None for the usual one.
        template, tokenizer, sequence_length, padding, truncation, truncation_side, rows: see
            `Packer`.

    Call: `packer({"text": …})` returns `encoder_token_ids` and `encoder_padding_mask`, (B, S)
    int32; see `targets` for the others.

    Raises:
        ValueError: if padding is on the left, or the tokenizer has nothing to start with.

    Example:

        template = Template("$A:0 </s>:0", "$A:0 </s>:0 $B:0 </s>:0")
        packer = Seq2SeqPacker(template, tokenizer, 128, target_length=64)
        packer({"text": tf.constant(["a house"])})["encoder_token_ids"]
        inputs, labels = packer.targets(tf.constant(["ein Haus"]))

    Source: Sutskever et al. 2014, https://arxiv.org/abs/1409.3215, section 2.
    """

    def __init__(
        self,
        template: Template,
        tokenizer: Tokenizer,
        sequence_length: int,
        target_length: int,
        start_id: int | None = None,
        **arguments: Any,
    ):
        if template.padding_side != "right":
            raise ValueError(
                "template has padding_side='left': a decoder reads from left to right."
            )
        self.start_id = start_id
        super().__init__(template, tokenizer, sequence_length, **arguments)
        self.target: Packer = Packer(
            template,
            tokenizer and tokenizer.target,
            target_length,
            padding=self.padding,
            truncation_side=self.truncation_side,
        )

    def read_vocabulary(self, tokenizer: Tokenizer) -> None:
        super().read_vocabulary(tokenizer)
        if self.start_id is not None:
            return
        roles = [role for role in ("pad", "bos") if role in tokenizer.target.special_tokens]
        if not roles:
            raise ValueError(
                f"{type(tokenizer).__name__} has no padding token and no bos token for a decoder "
                "to start with: make it with pad_token=…, an entry of its vocabulary."
            )
        self.start_id = tokenizer.target.special_id(roles[0])

    def with_padding(self, padding: str) -> Self:
        other = super().with_padding(padding)
        other.target = self.target.with_padding(padding)
        return other

    def pack(self, **texts: Any) -> dict[str, Tensor]:
        packed = super().pack(**texts)
        return {f"encoder_{name}": packed[name] for name in READ}

    def pieces(self, packed: dict[str, Tensor]) -> dict[str, Tensor]:
        return super().pieces({name: packed[f"encoder_{name}"] for name in READ})

    def targets(
        self, labels: Tensor, tokenize: Callable[[Tensor], Tensor] | None = None
    ) -> tuple[Any, Any]:
        """Return the decoder's inputs for target texts (B,), and the labels (B, T), int32.

        `tokenize` maps strings to ragged ids; by default it is the target's tokenizer.
        The inputs are `decoder_token_ids` and `decoder_padding_mask`, (B, T): the target shifted
        right by one. Labels are -100 in padding.
        """
        packed = self.target({"text": labels}, tokenize)
        ids, mask = packed["token_ids"], packed["padding_mask"]
        start = tf.fill([tf.shape(ids)[0], 1], self.start_id)
        inputs = {
            "decoder_token_ids": tf.concat([start, ids[:, :-1]], axis=1),
            "decoder_padding_mask": mask,
        }
        return inputs, tf.where(mask > 0, ids, IGNORED)

    # === What is packed already ===

    @property
    def inputs(self) -> dict[str, PackedInput]:
        return {
            f"{half}_{name}": PackedInput(fill=packer.pad_id if name == "token_ids" else 0)
            for half, packer in (("encoder", self), ("decoder", self.target))
            for name in READ
        }

    def with_mask(self, packed: dict[str, Tensor]) -> dict[str, Tensor]:
        masks = {
            f"{half}_padding_mask": tf.ones_like(packed[f"{half}_token_ids"])
            for half in ("encoder", "decoder")
            if f"{half}_token_ids" in packed
        }
        return masks | packed
