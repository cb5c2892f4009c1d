"""From a label for each word to named entities."""

import numpy as np

from keras_lm.tag_schemes import entity_spans


def entities_of(answer, texts):
    """Return the entities of what `TokenClassifier.tag` answered; `texts` are (B,) strings."""
    found = []
    for row, labels in enumerate(answer["labels"]):
        found.append([])
        for label, first, end in entity_spans(labels):
            entity = {"label": label, "score": float(np.mean(answer["scores"][row][first:end]))}
            if "start" in answer:
                start, stop = answer["start"][row][first], answer["end"][row][end - 1]
                text = texts[row].numpy().decode("utf-8", "replace")
                entity |= {"text": text[start:stop], "start": start, "end": stop}
            else:
                text = " ".join(answer["tokens"][row][first:end])
                entity |= {"text": text, "start": first, "end": end}
            found[-1].append(entity)
    return found


def bio_rules(class_names):
    """Return which BIO classes may follow each other, (C, C), and which may begin a text, (C,).

    Both are arrays of 0 and 1; in the first, a row is the class before. ValueError if a name is not
    `O`, `B-X` or `I-X`.
    """
    names = list(class_names or [])
    inside = [name for name in names if name.startswith("I-")]
    strange = [name for name in names if name != "O" and not name.startswith(("B-", "I-"))]
    alone = [name for name in inside if f"B-{name[2:]}" not in names]
    if not names or strange or alone:
        raise ValueError(
            f"crf='bio', but class_names={class_names}: pass O, and for each class X its B-X and "
            "I-X, or crf=True."
        )
    start = np.array([name not in inside for name in names], "float32")
    transitions = np.tile(start, (len(names), 1))
    for to in inside:
        for before in (f"B-{to[2:]}", to):
            transitions[names.index(before), names.index(to)] = 1.0
    return transitions, start
