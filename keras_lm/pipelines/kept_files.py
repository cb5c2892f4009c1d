"""Documents, and the buckets of near duplicates, in files of a running pipeline on a local disk.

The DirectRunner has all that passes from one step to the next in memory. So it is given where a
document is, and the names of files of buckets, in place of what they hold.
"""

import itertools
import os
import uuid

import apache_beam as beam
import numpy as np

from keras_lm.pipelines.beam_files import KEPT

# A bucket, its band and the hash of that, and the hash of a document in it, as it is sorted.
RECORD = np.dtype([("band", "u1"), ("hash", "<u8"), ("high", ">u8"), ("low", ">u8")])
RANGES = 64  # of hashes, each of which is sorted in memory
RECORDS_AT_ONCE = 2**20  # of a file


def new_path(folder):
    """Return the path of a new file, which `GrowingFolder` removes at the end."""
    return os.path.join(folder, uuid.uuid4().hex + KEPT)


class BucketWriter:
    """Writes `(bucket, digest)`, 9 and 16 bytes, to files of a folder, each sorted by range.

    Args:
        folder: path.

    Attributes:
        names: names of the files, complete after `flush`.
    """

    def __init__(self, folder):
        self.folder = folder
        self.names = []
        self._records = bytearray()

    def add(self, buckets, digest):
        """Write the buckets of a document."""
        for bucket in buckets:
            self._records += bucket + digest
        if len(self._records) >= RECORDS_AT_ONCE * RECORD.itemsize:
            self.flush()

    def flush(self):
        """Write what has been added since the last file."""
        if not self._records:
            return
        records = np.frombuffer(bytes(self._records), RECORD)
        ranges = (records["hash"] % RANGES).astype("int64")
        ends = np.cumsum(np.bincount(ranges, minlength=RANGES)).astype("<i8")
        path = new_path(self.folder)
        with open(path, "wb") as file:
            file.write(ends.tobytes())
            file.write(records[np.argsort(ranges, kind="stable")].tobytes())
        self.names.append(os.path.basename(path))
        self._records = bytearray()


def _records_of(path, number):
    with open(path, "rb") as file:
        start, end = [0, *np.fromfile(file, "<i8", RANGES).tolist()][number : number + 2]
        file.seek(start * RECORD.itemsize, os.SEEK_CUR)
        return np.fromfile(file, RECORD, end - start)


class FindRepeats(beam.DoFn):
    """The number of a range → the hashes of documents that share a bucket with a smaller hash.

    A document with the smallest hash in all of its buckets is always kept.
    """

    def __init__(self, folder):
        super().__init__()
        self.folder = folder

    def process(self, number, names):
        """Yield the hashes, 16 bytes each, once; `names` are those of `BucketWriter`."""
        if not names:
            return
        paths = (os.path.join(self.folder, name) for name in sorted(names))
        records = np.concatenate([_records_of(path, number) for path in paths])
        keys = (records[name] for name in ("low", "high", "hash", "band"))
        records = records[np.lexsort([*keys])]
        if not len(records):
            return
        is_first = np.ones(len(records), bool)
        is_first[1:] = (np.diff(records["hash"]) != 0) | (np.diff(records["band"]) != 0)
        smallest = records[np.flatnonzero(is_first)[np.cumsum(is_first) - 1]]
        is_other = (records["high"] != smallest["high"]) | (records["low"] != smallest["low"])
        digests = np.stack([records["high"], records["low"]], axis=1)[is_other].astype("uint64")
        for digest in np.unique(digests, axis=0).astype(">u8"):
            yield digest.tobytes()


def read_documents(folder, places):
    """Return documents as bytes, of which `places` are `(name of the file, start, bytes)`."""
    texts = [b""] * len(places)
    order = sorted(range(len(places)), key=places.__getitem__)
    for name, numbers in itertools.groupby(order, key=lambda number: places[number][0]):
        with open(os.path.join(folder, name), "rb") as file:
            for number in numbers:
                _, start, size = places[number]
                file.seek(start)
                texts[number] = file.read(size)
    return texts
