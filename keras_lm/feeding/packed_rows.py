"""Batches of packed rows where there is no `tf.data`. Shapes: N rows, B rows of a batch."""

import keras
import numpy as np


class PackedRows(keras.utils.PyDataset):
    """Batches of arrays, for Keras's `fit`, `evaluate` and `predict`.

    Args:
        data: tuple `(inputs[, labels[, weights]])`, nested arrays with N rows each.
        batch_size: int, B.
        shuffle: bool. Whether rows have another order in each epoch.
    """

    def __init__(self, data, batch_size, shuffle=False):
        super().__init__()
        self.data, self.batch_size, self.shuffle = data, batch_size, shuffle
        self.order = np.arange(len(keras.tree.flatten(data)[0]))
        self.on_epoch_end()

    def __len__(self):
        return -(-len(self.order) // self.batch_size)

    def __getitem__(self, place):
        rows = self.order[place * self.batch_size :][: self.batch_size]
        return keras.tree.map_structure(lambda column: np.asarray(column)[rows], self.data)

    def on_epoch_end(self):
        if self.shuffle:
            self.order = np.random.permutation(len(self.order))


class PackedBatches(keras.utils.PyDataset):
    """The batches of another `PyDataset`, packed by a function; `shuffle` draws their order."""

    def __init__(self, batches, pack, shuffle=False):
        super().__init__()
        self.batches, self.pack, self.shuffle = batches, pack, shuffle
        self.order = np.arange(batches.num_batches)
        self.draw()

    def __len__(self):
        return len(self.order)

    def __getitem__(self, place):
        return self.pack(self.batches[int(self.order[place])])

    def on_epoch_end(self):
        self.batches.on_epoch_end()
        self.draw()

    def draw(self):
        if self.shuffle:
            self.order = np.random.permutation(len(self.order))
