"""English words that are not concepts: those of closed classes, and some that say too little."""

# Articles, pronouns, prepositions, conjunctions, auxiliaries and adverbs of degree and place.
STOP_WORDS = frozenset(
    """
    a an the this that these those some any each every either neither no such own same other
    i me my mine myself we us our ours ourselves you your yours yourself yourselves
    he him his himself she her hers herself it its itself they them their theirs themselves
    who whom whose which what where when why how
    about above across after against along among around as at before behind below beneath beside
    between beyond by down during for from in inside into near of off on onto out outside over
    since through to toward towards under until up upon with within without
    and but or nor so yet if than then because while although though unless whether
    am is are was were be been being do does did doing done have has had having
    can could may might must shall should will would ought
    again also always both else ever few here just more most never not now once only quite rather
    there too very all don doesn didn isn aren wasn weren hasn haven hadn won wouldn couldn
    shouldn mustn ll ve re
    like gone go get going wanter
    actually likely possibly someone somebody something everybody everyone everything sometimes one
    """.split()  # noqa: SIM905 - a list of strings would be four times as long
)
# Concepts with an edge to nearly everything.
TOO_GENERAL = frozenset(["uk", "us", "take", "make", "want", "object", "person", "people"])


def is_concept(name):
    """Return whether a name, with `_` between its words, is that of a concept to search for."""
    return name not in TOO_GENERAL and STOP_WORDS.isdisjoint(name.split("_"))
