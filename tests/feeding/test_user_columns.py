"""Columns as other libraries hand them over: taken, or refused in a sentence."""

import functools

import numpy as np
import pandas
import pytest
import tensorflow as tf
import tiny

from keras_lm.data import split_sentences
from keras_lm.feeding.feed import columns_from_user, labels_from_user
from keras_lm.serving.client import check_strings, to_json
from keras_lm.tasks import TextClassifier, TextRegressor, TokenClassifier
from keras_lm.tokenizers import train_vocabulary
from keras_lm.utils.user_arguments import plain_column

pytestmark = pytest.mark.eager

TEXTS, NAMES, NUMBERS = ["a film", "good", "", "naïve film"], ["b", "a", "a", "b"], [1, 0, 0, 1]
STRINGS = np.dtypes.StringDType()


def standing_in(library, kind, **methods):
    """Return an object of a class of a library that is not installed here."""
    return type(kind, (), {"__module__": f"{library}.some.module", **methods})()


def series(values):  # of polars
    return standing_in(
        "polars",
        "Series",
        to_list=lambda self: [*values],
        to_numpy=lambda self: 1 / 0,
        __len__=lambda self: len(values),
        __getitem__=lambda self, key: values[key],
    )


def array(values):
    """An array of pyarrow, or a stand-in."""
    try:
        import pyarrow
    except ImportError:
        raise_zero_copy = lambda self: (_ for _ in ()).throw(ValueError("zero_copy_only"))  # noqa: E731
        return standing_in(
            "pyarrow",
            "StringArray",
            to_pylist=lambda self: [*values],
            to_numpy=raise_zero_copy,
            __len__=lambda self: len(values),
            __getitem__=lambda self, key: values[key],
        )
    return pyarrow.array(values)


KINDS = {
    "tuple": lambda values: [*values],
    "object": lambda values: np.array(values, object),
    "StringDType": lambda values: np.array(values, STRINGS),
    "masked, nowhere": np.ma.array,
    "tensor": tf.constant,
    "Series": pandas.Series,
    "Categorical": pandas.Categorical,
    "Series of categories": lambda values: pandas.Series(values, dtype="category"),
    "Index": pandas.Index,
    "pyarrow": array,
    "polars": series,
}


@pytest.fixture(scope="module")
def make(tokenizer_of):
    return functools.partial(tiny.make_still_task, tokenizer=tokenizer_of("wordpiece"))


@pytest.fixture(scope="module")
def classifier(make):
    return make(TextClassifier, class_names=["a", "b"])


@pytest.mark.parametrize("kind", KINDS)
def test_texts_and_labels(classifier, kind):
    column = KINDS[kind]
    expected = classifier.test_on_batch(TEXTS, NUMBERS)
    assert classifier.test_on_batch(column(TEXTS), column(NAMES)) == pytest.approx(expected)
    assert classifier.tokenizer(column(TEXTS)).to_list() == classifier.tokenizer(TEXTS).to_list()
    actual = classifier.tokenizer.tokenize_with_offsets(column(TEXTS))[1]
    assert actual.to_list() == classifier.tokenizer.tokenize_with_offsets(TEXTS)[1].to_list()
    named = TextClassifier(
        classifier.backbone, tokenizer=classifier.tokenizer, class_names=column(["a", "b"])
    )
    assert named.class_names == ["a", "b"]
    if kind != "tensor":
        assert to_json(plain_column(column(TEXTS), "text")) == TEXTS


@pytest.mark.parametrize("kind", ["pyarrow", "polars", "Series"])
def test_rows_of_several(make, kind):
    column = KINDS[kind]
    words, labels = [["a", "film"], ["good"]], [["x", "o"], ["o"]]
    tagger = make(TokenClassifier, class_names=["o", "x"])
    expected = tagger.test_on_batch(words, labels)
    assert tagger.test_on_batch(column(words), column(labels)) == pytest.approx(expected)
    rows = [column(row) for row in words], [column(row) for row in labels]
    assert tagger.test_on_batch(*rows) == pytest.approx(expected)
    strings = [[np.array(row, STRINGS) for row in rows] for rows in (words, labels)]
    assert tagger.test_on_batch(*strings) == pytest.approx(expected)
    several = make(TextClassifier, class_names=["o", "x"], multi_label=True)
    expected = several.test_on_batch(TEXTS[:2], labels)
    assert several.test_on_batch(TEXTS[:2], column(labels)) == pytest.approx(expected)


MISSING = {
    "masked": np.ma.array(NUMBERS, mask=[0, 0, 1, 0]),
    "None": [1, 0, None, 1],
    "nan": [1, 0, float("nan"), 1],
    "NA": pandas.Series([1, 0, None, 1], dtype="Int64"),
    "null of pyarrow": array([1, 0, None, 1]),
    "null of polars": series([1, 0, None, 1]),
    "masked name": np.ma.array(NAMES, mask=[0, 0, 1, 0]),
    "missing category": pandas.Categorical(["b", "a", None, "b"]),
    "missing string": np.array(["b", "a", None, "b"], np.dtypes.StringDType(na_object=None)),
}


@pytest.mark.parametrize("kind", MISSING)
def test_missing_labels(classifier, make, kind):
    """The number under a mask was trained on."""
    with pytest.raises(
        ValueError, match=r"labels\[2\](=.* is neither|=nan, a missing value: | is masked, a mi)"
    ):
        classifier.train_on_batch(TEXTS, MISSING[kind])
    if "m" not in kind[:2]:  # numbers
        regressor = make(TextRegressor)
        with pytest.raises(ValueError, match=r"labels\[2\](=nan is not a finite| is masked)"):
            regressor.train_on_batch(TEXTS, MISSING[kind])
        with pytest.raises(ValueError, match=r"sample_weight\[2\](=.* is not a number| is masked)"):
            classifier.train_on_batch(TEXTS, NAMES, MISSING[kind])


def test_missing_texts(classifier):
    texts = np.ma.array(TEXTS, mask=[0, 1, 0, 0])
    with pytest.raises(ValueError, match=r"x\[1\] is masked, a missing value: replace or drop it"):
        classifier.predict(texts)
    with pytest.raises(ValueError, match=r"text\[1\] is masked"):
        classifier.tokenizer(texts)
    for texts in (["a", None], pandas.Series(["a", None]), array(["a", None])):
        with pytest.raises(
            ValueError, match=r"`text`\[1\] is .*, and not a string: replace or drop"
        ):
            classifier.tokenizer(texts)
        columns = {"text": {"dtype": "DT_STRING"}}
        with pytest.raises(ValueError, match=r"text\[1\] is .*, and not a string: replace or drop"):
            check_strings({"text": plain_column(texts, "text")}, columns)


QUERIES = [
    (standing_in("polars", "LazyFrame", columns=["text"]), r"pass x\.collect\(\)"),
    (standing_in("duckdb", "DuckDBPyRelation", columns=["text"]), r"pass x\.df\(\)"),
    (standing_in("pyspark", "DataFrame", columns=["text"]), r"pass x\.toPandas\(\)"),
    (standing_in("dask", "DataFrame", columns=["text"]), r"pass x\.compute\(\)"),
    ({"a", "b"}, "without an order: pass a list"),
    ({1: "a"}.values(), r"pass list\(x\)"),
]


@pytest.mark.parametrize("query, remedy", QUERIES)
def test_what_has_no_rows_yet(classifier, query, remedy):
    kind = type(query).__name__
    for call in (classifier.fit, classifier.evaluate, classifier.predict, classifier.classify):
        with pytest.raises(ValueError, match=f"x is a {kind}, .*{remedy}"):
            call(query)
    with pytest.raises(ValueError, match=f"y is a {kind}, .*{remedy.replace('x', 'y', 1)}"):
        classifier.fit(["a", "b"], query)
    with pytest.raises(ValueError, match=f"text is a {kind}, "):
        classifier.tokenizer(query)


def test_other_kinds_are_named(classifier):
    with pytest.raises(ValueError, match=r"x is a int: pass a list, an array of numpy, .* Hugging"):
        columns_from_user(3, ("text",))
    with pytest.raises(ValueError, match=r"y is a generator, of unknown length: pass list\(y\)"):
        classifier.fit(TEXTS, (name for name in NAMES))

    class Table:
        column_names = ["a", "b"]

        def __getitem__(self, name):
            return NAMES

    with pytest.raises(ValueError, match=r"y is a Table with the columns \['a', 'b'\]: pass one"):
        classifier.fit(TEXTS, Table())
    Table.column_names = ["a"]
    actual = classifier.fit(TEXTS, Table(), verbose=0, shuffle=False).history["loss"]
    assert actual == pytest.approx(classifier.fit(TEXTS, NAMES, verbose=0).history["loss"])


@pytest.mark.parametrize("dtype", ["timedelta64[s]", "datetime64[s]", "complex64"])
def test_labels_that_are_no_real_numbers(make, dtype):
    """Times became seconds, and complex numbers lost a part."""
    with pytest.raises(ValueError, match=r"labels are of dtype .*, and must be real numbers"):
        make(TextRegressor).test_on_batch(TEXTS, np.array(NUMBERS).astype(dtype))


def test_tensors_of_torch():
    class Tensor:
        __module__ = "torch"
        dtype = "torch.bfloat16"
        detach = cpu = lambda self: self

        def float(self):
            actual = Tensor()
            actual.dtype = "torch.float32"
            return actual

        def numpy(self):
            assert self.dtype == "torch.float32"  # numpy has no other
            return np.array([1.0, 0.5], "float32")

    assert labels_from_user(Tensor(), 2).tolist() == [1.0, 0.5]
    numbers = tf.constant([1.0, 0.5], tf.bfloat16)
    assert labels_from_user(numbers, 2).dtype == np.float32


def test_numbers_keep_their_types():
    assert labels_from_user(array([1, 2]), 2).dtype.kind == "i"
    assert labels_from_user(series([0.5, 2]), 2).dtype.kind == "f"
    soft = labels_from_user(array([[0.5, 0.5], [1.0, 0.0]]), 2)
    assert soft.shape == (2, 2) and soft.dtype.kind == "f"


TABLES = {
    "DataFrame": pandas.DataFrame({"text": TEXTS, "label": NAMES}),
    "Table": standing_in("pyarrow", "Table", column_names=["text", "label"]),
    "Dataset": standing_in("datasets", "Dataset", column_names=["text", "label"]),
    "LazyFrame": QUERIES[0][0],
}


def test_a_column_for_each_class(classifier, make):
    """Columns in another order than the classes were read as the other classes, in silence."""
    expected = classifier.evaluate(TEXTS, NAMES, verbose=0)
    several = make(TextClassifier, class_names=["o", "x"], multi_label=True)
    hot = pandas.DataFrame({"x": [1, 0, 0, 1], "o": [1, 1, 0, 0]})
    as_array = several.evaluate(TEXTS, hot[["o", "x"]].to_numpy(), verbose=0)
    assert several.evaluate(TEXTS, hot, verbose=0) == pytest.approx(as_array)
    dummies = pandas.get_dummies(pandas.Series(NAMES))
    for y in (dummies, dummies[["b", "a"]], dummies.set_axis(range(2), axis=1)):
        assert classifier.evaluate(TEXTS, y, verbose=0) == pytest.approx(expected)
    assert classifier.evaluate(TEXTS, pandas.DataFrame({"z": NAMES}), verbose=0) == expected
    with pytest.raises(ValueError, match=r"columns \['l_a', 'l_b'\], and class_names are"):
        classifier.evaluate(TEXTS, dummies.add_prefix("l_"), verbose=0)


@pytest.mark.parametrize("kind", TABLES)
def test_a_table_where_a_column_is_needed(classifier, kind):
    """Its labels, or the names of its columns, were read as texts by some calls."""
    table = TABLES[kind]
    remedy = "a query that has not run" if kind == "LazyFrame" else "the columns .*: pass one of"

    def names():
        TextClassifier(classifier.backbone, class_names=table)

    calls = {
        "text": [classifier.tokenizer, classifier.tokenizer.tokenize_with_offsets],
        "documents": [split_sentences],
        "texts": [lambda texts: train_vocabulary("wordpiece", 60, texts=texts)],
        "class_names": [lambda _: names()],
        "text_pair": [lambda pair: classifier.predict({"text": TEXTS, "text_pair": pair})],
    }
    for name, each in calls.items():
        for call in each:
            with pytest.raises(ValueError, match=f"{name} is a {kind}.* {remedy}"):
                call(table)


def test_texts_that_are_read_once():
    """An iterator was empty after it had been checked; a dict has its keys."""
    for texts in (iter(TEXTS), (text for text in TEXTS), pandas.Series(TEXTS), tuple(TEXTS)):
        results = [text.decode() for text in split_sentences(texts).as_numpy_iterator()]
        assert results == TEXTS
    for call in (split_sentences, lambda texts: train_vocabulary("wordpiece", 60, texts=texts)):
        with pytest.raises(ValueError, match="is a dict: pass one of its columns"):
            call({"text": TEXTS})
        with pytest.raises(ValueError, match="is a ndarray: pass a list"):
            call(np.array("one"))


def test_what_is_no_column_of_strings(classifier):
    for value in (None, iter(TEXTS), {"text": TEXTS}, tf.data.Dataset.from_tensors(TEXTS)):
        kind = type(value).__name__
        with pytest.raises(ValueError, match=f"text is a {kind}: pass a string, or a list, an"):
            classifier.tokenizer(value)
    for rows in (np.empty(2, object), [["a"], [None]], [{"text": "a"}]):
        with pytest.raises(ValueError, match=r"`?text`?(\[0\] is .* not a string| cannot be read)"):
            classifier.tokenizer(rows)
    for call in (classifier.predict, classifier.classify, classifier.fit):
        with pytest.raises(ValueError, match="x is a ndarray: pass a list"):
            call(np.array("one text"))
        with pytest.raises(ValueError, match=r"Dataset of single examples: call .batch\(n\)"):
            call(tf.data.Dataset.from_tensor_slices(TEXTS))
    with pytest.raises(ValueError, match=r"labels\[3\]=<NA> is neither"):
        classifier.test_on_batch(TEXTS, ["a", "b", "a", pandas.NA])


@pytest.mark.parametrize(
    "names",
    [
        np.array([("a",), ("b",)], [("name", "U1")]),
        np.array([b"a", b"b"], "V2"),
        memoryview(b"ab"),
        np.array("a"),
        3,
        [["a"], ["b"]],
        [pandas.NA, "a"],
    ],
)
def test_names_that_are_none(classifier, names):
    with pytest.raises(ValueError, match="class_names"):
        TextClassifier(classifier.backbone, class_names=names)
