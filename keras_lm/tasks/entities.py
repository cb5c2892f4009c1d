"""From a label for each word to named entities."""


def entity_spans(labels):
    """Return the entities that the labels of a text's words mark.

    `B-X` begins an entity of class X, `I-X` goes on with it or, after anything else, begins one, as
    in the CoNLL evaluation. Of the richer schemes, `E-X` and `L-X` end an entity, `S-X` and `U-X`
    are one. All else lies outside.

    Args:
        labels: sequence of str, one for each word.

    Returns:
        A list of `(class, start, end)`: words from `start` up to, and without, `end`.

    Example:

        entity_spans(["B-PER", "I-PER", "O", "B-LOC"])  # [("PER", 0, 2), ("LOC", 3, 4)]

    Source: Tjong Kim Sang and De Meulder 2003, https://aclanthology.org/W03-0419.
    """
    spans, is_open = [], False
    for position, label in enumerate(labels):
        prefix, _, name = label.partition("-")
        if not name or prefix not in tuple("BIELSU"):
            is_open = False
            continue
        if is_open and prefix in tuple("IEL") and name == spans[-1][0]:
            spans[-1] = (name, spans[-1][1], position + 1)
        else:
            spans.append((name, position, position + 1))
        is_open = prefix in tuple("BI")
    return spans
