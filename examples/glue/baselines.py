"""The models from before BERT that a board compares yours with. Imports TensorFlow.

What they read words by lies in the board's folder `baselines`: `vectors.txt`, as GloVe's files are,
and `elmo`, a preset; both learned from the texts of the training files, unless others are given.
"""

import functools

import click
import keras

from glue.board import Setting
from glue.training import run_settings
from glue.vectors import learn_vectors, word_tokenizer, write_vectors
from keras_lm import models, presets, tasks, tokenizers
from keras_lm.converters import read_word_vectors

VECTORS_READ = 400_000  # GloVe's files begin with the most frequent words
TEXTS = 20_000  # of a training file, from which vectors and ELMo are learned
SMALL_TEXTS = 10  # for each row of a small board
EPOCHS = 5
HIDDEN_DIM = 300  # both directions; the paper's is 3,000, and ESIM's 600
ELMO = {"num_layers": 2, "hidden_dim": 64, "cell_dim": 256, "characters_per_word": 20}
FILTERS = [(1, 16), (2, 16), (3, 32), (4, 32)]
ELMO_WORDS = 10_000
LEARNED = "on {} learned from the board's own texts, for want of published weights"


def run_baselines(board, results, sources, seed):
    """Train all baselines on the tasks of a board.

    Args:
        board: `Board`.
        found: list of `FoundTask`.
        sources: dict of `word_vectors`, a file, and `elmo` and `cove`, presets or checkpoints; None
            for what is to be learned, and of CoVe for no such row.
        seed: int.
    """
    texts = _Texts(board, results)
    words, vectors = _vectors(board, sources["word_vectors"], texts, seed)
    read_words = word_tokenizer(words)
    about = sources["word_vectors"] or LEARNED.format("word vectors")

    def run(name, about, make_backbone, tokenizer):
        board.begin(name, {"source": str(about)})
        for each in results:
            run_settings(
                board,
                name,
                each,
                [Setting(32, EPOCHS, None, seed)],
                lambda cls, arguments: cls(make_backbone(), tokenizer=tokenizer, **arguments),
            )

    def frozen_vectors():
        return models.WordVectorBackbone.from_vectors(vectors)

    def lstm(language_model):
        return models.PairLSTMBackbone(language_model=language_model, hidden_dim=HIDDEN_DIM)

    def esim():  # which trains its vectors
        backbone = models.EsimBackbone(*vectors.shape, hidden_dim=HIDDEN_DIM)
        backbone.embedding.embeddings.assign(vectors)
        return backbone

    def esim_on(language_model):
        return models.EsimBackbone(language_model=language_model, hidden_dim=HIDDEN_DIM)

    def cbow():
        return models.PairCBOWBackbone(language_model=frozen_vectors())

    run("CBoW", about, cbow, read_words)
    run("BiLSTM + attention", about, lambda: lstm(frozen_vectors()), read_words)
    run("ESIM", about, esim, read_words)

    def run_on(name, source, about):
        tokenizer = tokenizers.Tokenizer.from_preset(source)
        load = functools.partial(models.Backbone.from_preset, source)
        run(f"BiLSTM + attention + {name}", about, lambda: lstm(load()), tokenizer)
        run(f"ESIM + {name}", about, lambda: esim_on(load()), tokenizer)

    elmo, cove = sources["elmo"], sources["cove"]
    run_on("ELMo", elmo or _elmo(board, texts, seed), elmo or LEARNED.format("a small ELMo"))
    if cove:
        run_on("CoVe", cove, cove)


class _Texts:
    """The texts of the training files, read once, if anything is learned from them."""

    def __init__(self, board, results):
        self.rows = min(board.rows * SMALL_TEXTS, TEXTS) if board.rows else TEXTS
        self.found = results
        self.read = None

    def __call__(self):
        if self.read is None:
            columns = [each.read(each.train, self.rows)[0].values() for each in self.found]
            self.read = [text for texts in columns for column in texts for text in column]
        return self.read


def _vectors(board, file, texts, seed):
    path = board.folder / "baselines" / "vectors.txt"
    if file is None and not path.is_file():
        write_vectors(path, *learn_vectors(texts(), seed=seed))
        click.echo(f"word vectors: learned from {len(texts()):,} texts")
    return read_word_vectors(file or path, VECTORS_READ)


def _elmo(board, texts, seed):
    """Train a small ELMo, unless the board has it, and return its preset."""
    folder = board.folder / "baselines" / "elmo"
    if folder.is_dir():
        return folder
    keras.utils.set_random_seed(seed)
    backbone = models.ElmoBackbone(**ELMO, filters=FILTERS)
    characters = tokenizers.CharacterTokenizer(ELMO["characters_per_word"])
    words = tokenizers.learn_words(texts(), ELMO_WORDS)
    task = tasks.BidirectionalLM(
        backbone, words=words, tokenizer=characters, sequence_length=60, num_candidates=1024
    )
    history = task.fit(texts(), batch_size=64, epochs=1, verbose=0).history
    presets.save(folder, backbone, tokenizer=characters)
    loss = history["loss"][-1]
    click.echo(f"ELMo: learned from {len(texts()):,} texts, to a loss of {loss:.2f} a word")
    return folder
