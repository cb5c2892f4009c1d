"""The packer for texts with entities. Shapes: B batch, S sequence."""

from typing import Any

from keras_lm.packers.packer import PackedInput, Packer
from keras_lm.tensorflow import tf
from keras_lm.utils.argument_types import Tensor

NO_ENTITY = -1


class EntityPacker(Packer):
    """A `Packer` that adds the entities which texts mention.

    Args:
        tokenizer: `keras_lm.tokenizers.EntityTokenizer`; with another one, there are no entities.
        template, sequence_length, padding, truncation, truncation_side, rows: see `Packer`.

    Call: like `Packer`. Returns `entity_ids` (B, S), too: the row of an entity at the first token
    of its mention, -1 elsewhere. A mention begins and ends in one text.

    Example:

        packer = EntityPacker(ErnieBackbone.TEMPLATE, tokenizer, sequence_length=128)
        packer({"text": tf.constant(["a text"])}).keys()
    """

    @property
    def inputs(self) -> dict[str, PackedInput]:
        if not self.links:
            return super().inputs
        return super().inputs | {"entity_ids": PackedInput(fill=NO_ENTITY)}

    @property
    def links(self) -> bool:
        """Whether the tokenizer finds mentions."""
        return hasattr(self.tokenizer, "link")

    def pack(self, **texts: Any) -> dict[str, Tensor]:
        packed = super().pack(**texts)
        if not self.links:
            return packed
        entities = {name: self.tokenizer.link(ids) for name, ids in texts.items()}
        runs, _, total, columns = self._lay_out(texts)
        position = tf.range(columns)[tf.newaxis, :]
        placed = tf.fill([tf.size(total), columns], NO_ENTITY)
        for piece, _, start, length in runs:
            if piece in entities:
                offset = position - start[:, tf.newaxis]
                inside = (offset >= 0) & (offset < length[:, tf.newaxis])
                value = self._gather(entities[piece], length, offset, inside)
                placed = tf.where(inside, value, placed)
        return packed | {"entity_ids": placed}
