"""How long Reformer takes for a new token, beside reading the whole text again for each.

    python benchmarks/long_context_writing.py [--prompts 512,2048] [--new 24] [--repeats 3]

The network has the published sizes of `reformer_crime_and_punishment_en`, and random weights. Both
ways alternate; a time is that of the tokens after the first, each the least of its repeats.
"""

import time

import click


@click.command()
@click.option("--prompts", default="512,2048", show_default=True)
@click.option("--new", default=24, show_default=True)
@click.option("--repeats", default=3, show_default=True)
def main(prompts, new, repeats):
    """Print milliseconds a token."""
    import numpy as np

    from keras_lm import models, tasks

    def make(again):
        size = models.ReformerBackbone.SIZES["reformer_crime_and_punishment_en"]
        backbone = models.ReformerBackbone(**size)
        if again:
            backbone.decoding_state = lambda state: state
        return tasks.CausalLM(backbone)

    ways = {"kept": make(False), "read again": make(True)}
    click.echo("| prompt | kept, ms | read again, ms | ratio |\n| ---: | ---: | ---: | ---: |")
    for length in map(int, prompts.split(",")):
        ids = np.random.default_rng(0).integers(3, 320, (1, length)).astype("int32")
        taken = {name: {1: [], new: []} for name in ways}
        for _ in range(repeats + 1):  # the first is a warm-up
            for name, task in ways.items():
                for number, times in taken[name].items():
                    start = time.perf_counter()
                    task.generate({"token_ids": ids}, max_new_tokens=number, verbose=0)
                    times.append(time.perf_counter() - start)
        results = {}
        for name, times in taken.items():
            results[name] = 1000 * (min(times[new][1:]) - min(times[1][1:])) / (new - 1)
        kept, again = results.values()
        click.echo(f"| {length} | {kept:.1f} | {again:.1f} | {again / kept:.1f} |")


if __name__ == "__main__":
    main()
