"""Batches of packed rows where there is no `tf.data`. Shapes: N rows, B rows of a batch."""

import keras
import numpy as np


class Ordered(keras.utils.PyDataset):
    """`number` things by their places in `order`, another one in each epoch with `shuffle`."""

    def __init__(self, number, shuffle):
        super().__init__()
        self.shuffle, self.order = shuffle, np.arange(number)
        self.draw()

    def draw(self):
        if self.shuffle:
            self.order = np.random.permutation(len(self.order))

    on_epoch_end = draw


class PackedRows(Ordered):
    """Batches of arrays, for Keras's `fit`, `evaluate` and `predict`.

    Args:
        data: tuple `(inputs[, labels[, weights]])`, nested arrays with N rows each.
        batch_size: int, B.
        shuffle: bool. Whether rows have another order in each epoch.
    """

    def __init__(self, data, batch_size, shuffle=False):
        super().__init__(len(keras.tree.flatten(data)[0]), shuffle)
        self.data, self.batch_size = data, batch_size

    def __len__(self):
        return -(-len(self.order) // self.batch_size)

    def __getitem__(self, place):
        rows = self.order[place * self.batch_size :][: self.batch_size]
        return keras.tree.map_structure(lambda column: np.asarray(column)[rows], self.data)


class PackedBatches(Ordered):
    """The batches of another `PyDataset`, packed by a function; `shuffle` draws their order."""

    def __init__(self, batches, pack, shuffle=False):
        super().__init__(batches.num_batches, shuffle)
        self.batches, self.pack = batches, pack

    def __len__(self):
        return len(self.order)

    def __getitem__(self, place):
        return self.pack(self.batches[int(self.order[place])])

    def on_epoch_end(self):
        self.batches.on_epoch_end()
        self.draw()
