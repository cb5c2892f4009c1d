"""A pickle's plain data, in time and memory bounded by the file's size."""

import pickle

LARGEST_KEY = 2**60
# Tuples can be chosen so that all have the same hash, and each is compared with those before it.
MOST_TUPLES = 1000  # as keys


# In Python, as instructions of the one in C cannot be replaced; that one also reserves as much
# memory as a file asks for.
class PlainUnpickler(pickle._Unpickler):
    """Reads numbers, strings and containers; `find_class` decides what else a pickle may name.

    A tuple's hash is computed anew from its parts each time, so that tuples of tuples, each with
    the one before twice, need time exponential in the size of the file: as keys they are refused.
    """

    dispatch = dict(pickle._Unpickler.dispatch)
    num_tuples = 0  # among all keys so far

    def find_class(self, module, name):
        raise ValueError(f"it asks for {module}.{name}, and plain data needs nothing")

    def check_keys(self, keys):
        """Return keys of a dict or a set; raise a ValueError if hashing them may take long."""
        for key in keys:
            self.num_tuples += isinstance(key, tuple)
            for part in key if isinstance(key, tuple) else (key,):
                is_nested = isinstance(part, (tuple, frozenset))
                # Larger numbers can be chosen so that all have the same hash.
                if is_nested or (isinstance(part, int) and abs(part) > LARGEST_KEY):
                    raise ValueError(
                        "it has a key that is neither a string, nor a number, nor a tuple of these"
                    )
            if self.num_tuples > MOST_TUPLES:
                raise ValueError(f"it has more than {MOST_TUPLES} tuples as keys")
        return keys

    # The items since the last mark are `self.stack`, until the instruction takes them.

    def load_dict(self):
        self.check_keys(self.stack[::2])
        super().load_dict()

    def load_setitems(self):
        self.check_keys(self.stack[::2])
        super().load_setitems()

    def load_setitem(self):
        self.check_keys(self.stack[-2:-1])
        super().load_setitem()

    def load_frozenset(self):
        self.check_keys(self.stack)
        super().load_frozenset()

    def load_additems(self):
        self.check_keys(self.stack)
        super().load_additems()

    def load_bytearray8(self):
        raise ValueError("it holds a bytearray, which could be of any size")

    dispatch[pickle.DICT[0]] = load_dict
    dispatch[pickle.SETITEMS[0]] = load_setitems
    dispatch[pickle.SETITEM[0]] = load_setitem
    dispatch[pickle.FROZENSET[0]] = load_frozenset
    dispatch[pickle.ADDITEMS[0]] = load_additems
    dispatch[pickle.BYTEARRAY8[0]] = load_bytearray8
