"""Training several times, with a seed each: what they reach, and the best. Imports TensorFlow."""

import json
import shutil
import statistics

import click

from keras_lm.cli.fitting import kept_epoch
from keras_lm.cli.runs import Run, fingerprint
from keras_lm.files import replacing


class SeveralSeeds(Run):
    """A run for each of some seeds; `seeds.json` in its folder has the histories of those done.

    Beside it lies the preset of the best so far, the one with the lowest validation loss. After an
    interruption the seeds that are done are not trained again.
    """

    def best(self, train, seeds, early_stopping):
        """Train with each seed, print a line for each, and return the best's preset and history.

        `train(seed, output)` returns a task, its history and the `Run` at `output` or None.
        """
        path = self.folder / "seeds.json"
        done = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else {}

        def value(seed, metric="val_loss"):
            return done[seed][metric][kept_epoch(done[seed], early_stopping)]

        for seed in map(str, seeds):
            if seed not in done:
                task, history, run = self._train(train, seed)
                done[seed] = {name: [*map(float, values)] for name, values in history.items()}
                best = min(done, key=value)
                if best == seed:
                    task.save_to_preset(self.folder / f"best-{seed}")
                with replacing(path) as new:
                    new.write_text(json.dumps(done) + "\n", encoding="utf-8")
                for old in self.folder.glob("best-*"):
                    if old.name != f"best-{best}":
                        shutil.rmtree(old)
                if run:
                    run.remove()
            metrics = [metric for metric in done[seed] if metric.startswith("val_")]
            _say(f"seed {seed}", {metric: f"{value(seed, metric):.4f}" for metric in metrics})
        found = {metric: [value(seed, metric) for seed in done] for metric in metrics}
        _say(
            "mean",
            {
                metric: f"{statistics.mean(values):.4f} ± {statistics.stdev(values):.4f}"
                for metric, values in found.items()
            },
        )
        best = min(done, key=value)
        click.echo(f"kept    seed {best}, of the lowest validation loss")
        return self.folder / f"best-{best}", done[best]

    def _train(self, train, seed):
        try:
            return train(int(seed), self.folder / f"seed-{seed}")
        except BaseException as error:
            if [file.name for file in self.folder.iterdir()] == ["run.json"]:
                self.remove()
            elif isinstance(error, KeyboardInterrupt):
                raise click.ClickException(
                    f"interrupted. The same command goes on from what {self.folder} holds."
                ) from None
            raise


def settings_of(source, data, held_out, options):
    """Return what has to be the same for a run to go on: options, and the rows as a digest."""
    rows = [json.dumps([each.texts, each.labels]) for each in (data, held_out)]
    options = {name: value for name, value in options.items() if name != "tensorboard"}
    return {"source": source, **options, "rows": fingerprint(rows)}


def _say(name, values):
    values = ", ".join(f"{metric.removeprefix('val_')} {value}" for metric, value in values.items())
    click.echo(f"{name:<8}{values.replace('_', ' ')}")
