"""Iterating over a `tf.data.Dataset` outside of a graph."""


def elements(dataset):
    """Yield the elements of a dataset.

    A plain loop ends in an error of TensorFlow, which logs it ("Local rendezvous is aborting with
    status: OUT_OF_RANGE") before Python sees it.
    """
    iterator = iter(dataset)
    while (element := iterator.get_next_as_optional()).has_value():
        yield element.get_value()
