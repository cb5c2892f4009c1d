"""Documents, and what is known of them, in files of a running pipeline on a local disk.

The DirectRunner has all that passes from one step to the next in memory. So it is given names of
files in place of what they hold: documents, where each of them is, buckets, and near duplicates.
"""

import itertools
import os
import uuid

import apache_beam as beam
import numpy as np

from keras_lm.pipelines.beam_files import KEPT

# The hash of a document, 16 bytes, as it is sorted.
DIGEST = [("high", ">u8"), ("low", ">u8")]
# A bucket, its band and the hash of that, and a document in it.
BUCKET = np.dtype([("band", "u1"), ("hash", "<u8"), *DIGEST])
# A document, and where its text is in the file beside.
PLACE = np.dtype([*DIGEST, ("start", "<u8"), ("size", "<u8")])
REPEAT = np.dtype(DIGEST)
RANGES = 64  # of buckets' hashes, each of which is sorted in memory
RECORDS_AT_ONCE = 2**20  # of a file


def shard_of(digest, number):
    """Return which of `number` shards a document with a hash of 16 bytes belongs to."""
    return int.from_bytes(digest[:8], "little") % number


def by_shard(number):
    """Return what `RecordWriter` groups by, the shards of documents, and how many there are."""
    return lambda records: records["high"].astype(">u8").view("<u8") % np.uint64(number), number


def by_range():
    """Return what `RecordWriter` groups by, ranges of buckets, and how many there are."""
    return lambda records: records["hash"] % np.uint64(RANGES), RANGES


def new_path(folder):
    """Return the path of a new file, which `GrowingFolder` removes at the end."""
    return os.path.join(folder, uuid.uuid4().hex + KEPT)


class RecordWriter:
    """Writes records to files of a folder, each sorted by group.

    Args:
        folder: path.
        dtype: of the records.
        groups: what they are grouped by, `by_shard(number)` or `by_range()`.

    Attributes:
        names: names of the files, complete after `flush`.
    """

    def __init__(self, folder, dtype, groups):
        self.folder = folder
        self.dtype = dtype
        self.group_of, self.number = groups
        self.names = []
        self._records = bytearray()

    def add(self, records):
        """Write records, as bytes."""
        self._records += records
        if len(self._records) >= RECORDS_AT_ONCE * self.dtype.itemsize:
            self.flush()

    def flush(self):
        """Write what has been added since the last file."""
        if not self._records:
            return
        records = np.frombuffer(bytes(self._records), self.dtype)
        groups = self.group_of(records).astype("int64")
        ends = np.cumsum(np.bincount(groups, minlength=self.number)).astype("<i8")
        path = new_path(self.folder)
        with open(path, "wb") as file:
            file.write(ends.tobytes())
            file.write(records[np.argsort(groups, kind="stable")].tobytes())
        self.names.append(os.path.basename(path))
        self._records = bytearray()


def read_records(path, dtype, number, group):
    """Return the records of one of `number` groups in a file of a `RecordWriter`."""
    with open(path, "rb") as file:
        start, end = [0, *np.fromfile(file, "<i8", number).tolist()][group : group + 2]
        file.seek(start * dtype.itemsize, os.SEEK_CUR)
        return np.fromfile(file, dtype, end - start)


class _OverFiles(beam.DoFn):
    """A step that reads files of records.

    Args:
        folder: path of the files.
        num_shards: int.
    """

    def __init__(self, folder, num_shards):
        super().__init__()
        self.folder = folder
        self.num_shards = num_shards

    def _read(self, name, dtype, number, group):
        return read_records(os.path.join(self.folder, name), dtype, number, group)


class FindRepeats(_OverFiles):
    """The number of a range → files of documents that share a bucket with a smaller hash.

    A document with the smallest hash in all of its buckets is always kept.
    """

    def process(self, part, names):
        """Yield names of files of `REPEAT` records by shard; `names` are those of buckets."""
        if not names:
            return
        records = [self._read(name, BUCKET, RANGES, part) for name in sorted(names)]
        records = np.concatenate(records)
        keys = (records[name] for name in ("low", "high", "hash", "band"))
        records = records[np.lexsort([*keys])]
        if not len(records):
            return
        is_first = np.ones(len(records), bool)
        is_first[1:] = (np.diff(records["hash"]) != 0) | (np.diff(records["band"]) != 0)
        smallest = records[np.flatnonzero(is_first)[np.cumsum(is_first) - 1]]
        is_other = (records["high"] != smallest["high"]) | (records["low"] != smallest["low"])
        digests = np.stack([records["high"], records["low"]], axis=1)[is_other].astype("uint64")
        writer = RecordWriter(self.folder, REPEAT, by_shard(self.num_shards))
        writer.add(np.unique(digests, axis=0).astype(">u8").tobytes())
        writer.flush()
        yield from writer.names


class GatherShard(_OverFiles):
    """The number of a shard → it, and a dict of its `texts` and `repeats`, as from CoGroupByKey.

    `texts` are `(hash, (name of the file, start, bytes))`, and `repeats` hashes.
    """

    def process(self, shard, places, repeats=()):
        """Yield both, given `(name of texts, name of places)` and the names of repeats."""
        texts = []
        for name, of_places in places:
            records = self._read(of_places, PLACE, self.num_shards, shard)
            wheres = zip(records["start"].tolist(), records["size"].tolist(), strict=True)
            texts += [(d, (name, *where)) for d, where in zip(_digests(records), wheres)]
        near = (self._read(name, REPEAT, self.num_shards, shard) for name in repeats)
        repeats = [digest for records in near for digest in _digests(records)]
        yield shard, {"texts": texts, "repeats": repeats}


def _digests(records):
    """Return the hashes of records, bytes each."""
    both = np.stack([records["high"], records["low"]], axis=1).astype(">u8")
    return [row.tobytes() for row in both]


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
