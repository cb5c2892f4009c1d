"""`keras-lm serve`: exported models over REST and gRPC, until Ctrl-C."""

import dataclasses
import json
import os
import shlex
import signal
import sys
from pathlib import Path

import click

from keras_lm.cli import options as opt
from keras_lm.cli.command import Command, takes
from keras_lm.cli.options import Choice, FloatRange, names_of
from keras_lm.serving.keys import VARIABLE, Keys, parse_keys
from keras_lm.serving.logs import write_json

PORT = click.IntRange(0, 65535)
FILE = click.Path(exists=True, dir_okay=False, path_type=Path)


def read_api_keys(ctx, param, value):
    """Return the `Keys` of `--api-key @FILE`, or else of the environment; None if there are none.

    An empty variable is an error: who sets it wants keys.
    """
    try:
        if value is None:
            text = os.environ.get(VARIABLE)
            return None if text is None else Keys(parse_keys(text, VARIABLE))
        if not value.startswith("@"):
            raise click.BadParameter(
                "every user of this machine can read a key on the command line: write it to a file "
                f"and pass @FILE, or set {VARIABLE}."
            )
        return Keys(Path(value[1:]).expanduser())
    except (OSError, ValueError) as error:
        raise click.BadParameter(str(error)) from error


@dataclasses.dataclass(frozen=True, kw_only=True)
class Limits:
    """What the embedded server takes, and from whom; as options of `Plan`."""

    allowed_hosts: tuple[str, ...]
    max_request_bytes: int | None
    max_connections: int | None
    request_timeout: float | None
    max_total_bytes: int | None
    max_rows: int | None
    num_interpreters: int | None
    num_threads: int | None
    cors: bool
    api_keys: Keys | None
    certificate: Path | None
    private_key: Path | None
    requests_per_minute: int | None
    max_waiting: int | None
    max_concurrent_tokens: int | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ServeOptions(Limits):
    """What `keras-lm serve` runs with."""

    folders: tuple[str, ...]
    names: tuple[str, ...]
    host: str
    rest_port: int
    grpc_port: int
    engine: str
    examples: tuple[str, ...]
    log_format: str


@click.command("serve", cls=Command)
@click.argument("folders", metavar="PATH...", nargs=-1, required=True)
@opt.option(
    "--name",
    "names",
    multiple=True,
    help="Name of a model, once for each.  [default: the name of its folder or file]",
)
@opt.option("--host", default="127.0.0.1", help="Address to listen on.")
@opt.option("--rest-port", type=PORT, default=8501, help="0 takes a free port.")
@opt.option("--grpc-port", type=PORT, default=8500, help="0 takes a free port.")
@opt.option(
    "--engine",
    type=Choice(["auto", "binary", "docker", "embedded"]),
    default="auto",
    help="The server to start: tensorflow_model_server on PATH, its container, or keras_lm's own; "
    "auto takes the first one available.",
)
@opt.option(
    "--allowed-host",
    "allowed_hosts",
    multiple=True,
    help="Another name to accept in the Host header of requests; * matches any characters.",
)
@opt.option("--max-request-bytes", type=click.IntRange(1), help="Largest request.  [64 MiB]")
@opt.option(
    "--max-connections",
    type=click.IntRange(1),
    help="Connections over REST, and as many over gRPC.  [a quarter of the open files allowed, at "
    "most 1000]",
)
@opt.option(
    "--request-timeout",
    type=FloatRange(0, min_open=True),
    help="Seconds that a client has to send a request.  [60]",
)
@opt.option(
    "--max-total-bytes",
    type=click.IntRange(1),
    help="Most bytes of all running requests.  [twice the largest request]",
)
@opt.option("--max-rows", type=click.IntRange(1), help="Most rows of a request.  [1024]")
@opt.option(
    "--num-interpreters",
    type=click.IntRange(1),
    help="How many requests a .tflite answers at a time.  [1]",
)
@opt.option(
    "--num-threads",
    type=click.IntRange(1),
    help="Threads of a .tflite's interpreters, in all.  [all cores]",
)
@opt.option(
    "--example",
    "examples",
    multiple=True,
    metavar="TEXT",
    help="Text in the fields of the page at first, once for each PATH; for several inputs, a "
    'JSON object such as \'{"text": "…", "text_pair": "…"}\'.  [default: one of the task]',
)
@opt.option(
    "--cors", is_flag=True, help="Allow requests over REST from web pages of other origins."
)
@opt.option(
    "--api-key",
    "api_keys",
    metavar="@FILE",
    callback=read_api_keys,
    help="File with a key on each line. Requests need one of them: Authorization: Bearer KEY. The "
    f"file is read again when it changes.  [default: {VARIABLE} of the environment, or no key]",
)
@opt.option(
    "--tls-certificate",
    "certificate",
    type=FILE,
    help="PEM file of a certificate, for HTTPS and encrypted gRPC.",
)
@opt.option("--tls-key", "private_key", type=FILE, help="PEM file of the certificate's key.")
@opt.option(
    "--requests-per-minute",
    type=click.IntRange(1),
    help="How often a client may ask, by its key or else by its address.  [any number of times]",
)
@opt.option(
    "--max-waiting",
    type=click.IntRange(1),
    help="How many requests may wait for a model; further ones are refused.  [all connections]",
)
@opt.option(
    "--max-concurrent-tokens",
    type=click.IntRange(1),
    help="How many tokens, read and written, the requests that are answered at a time may have; "
    "further ones are refused.  [any number]",
)
@opt.option(
    "--log-format",
    type=Choice(["text", "json"]),
    default="text",
    help="json writes an object a line to stderr, for each request and each change of a model; "
    "text writes warnings.",
)
@takes(ServeOptions)
def serve_command(options):
    """Serve exported models over REST and gRPC.

    A PATH is what `task.export` and `keras-lm export` write: a folder of numbered versions, of
    which the latest is served, or a .tflite, which the embedded server serves; or a folder with
    several of these in it. A new version or file is taken up while the server runs, but not a new
    model. Ctrl-C ends it.

    \b
    keras-lm serve exported/film-critic
    keras-lm serve film-critic.tflite
    keras-lm serve exported/film-critic exported/vectors --rest-port 0 --grpc-port 0

    The embedded server is for trying out and for tests: it speaks TF Serving's REST and gRPC and
    has a page to play with; TF Serving is what production wants. The options from --allowed-host
    on, but for --cors, are for the embedded server alone; TF Serving is not started with those that
    protect it: keys, certificates, --requests-per-minute, --max-waiting and
    --max-concurrent-tokens.
    """
    from keras_lm.serving.launch import LaunchError, Plan, find_models, launch

    if (options.certificate is None) != (options.private_key is None):
        missing = "--tls-certificate" if options.certificate is None else "--tls-key"
        raise click.UsageError(f"{missing} is missing: a certificate and its key go together.")
    signal.signal(signal.SIGTERM, _interrupt)  # to end as Ctrl-C ends it
    server = None
    try:
        limits = {name: getattr(options, name) for name in names_of(Limits)}
        limits = {name: value for name, value in limits.items() if value}
        models = find_models(options.folders, options.names)
        if options.log_format == "json":
            write_json(sys.stderr)
        if options.examples:
            limits["examples"] = read_examples(options.examples, models)
        plan = Plan(models, options.host, options.rest_port, options.grpc_port, limits)
        server = launch(plan, options.engine, click.echo)
        announce(server, plan.models, limits.get("examples", {}), options.api_keys)
        server.wait()
    except KeyboardInterrupt:
        click.echo("Ended.")
    except LaunchError as error:
        failure = click.ClickException(str(error))
        failure.exit_code = error.exit_code
        raise failure from error
    finally:
        if server is not None:
            server.stop()


def read_examples(examples, names):
    """Return a dict of model → example, of `--example`, which is a text or a JSON object."""
    if len(examples) != len(names):
        raise click.UsageError(
            f"--example is given {len(examples)} times for {len(names)} models: give it once for "
            "each PATH, in their order, or not at all."
        )

    def read(text):
        try:
            example = json.loads(text)
        except ValueError:
            return text
        return example if isinstance(example, dict) else text

    return dict(zip(names, map(read, examples)))


def announce(server, names, examples, api_keys=None):
    """Print where the models are, and a request to try."""
    click.echo(f"REST:   {server.rest_url}")
    click.echo(f"gRPC:   {server.grpc_address}")
    if server.has_page:
        click.echo(f"Page:   {server.rest_url}/")
    for name in names:
        signatures, example = server.signatures(name), examples.get(name)
        line = curl_line(server.rest_url, name, signatures, example, bool(api_keys))
        click.echo(f"Model:  {name}\n        {line}")
    click.echo("Ctrl-C ends it.")


def curl_line(rest_url, name, signatures, example=None, needs_key=False):
    """Return a command that asks a model something, or about itself if it takes no text.

    `example` is a text, or a dict of inputs → text. A key is taken from the environment, and gets
    into a pipe, since all users of a machine see the arguments of commands.
    """
    curl = f'echo "Authorization: Bearer ${VARIABLE}" | curl -H @- ' if needs_key else "curl "
    url = f"{rest_url}/v1/models/{name}"
    inputs = signatures.get("serving_default", {}).get("inputs", {})
    if not inputs or any(column["dtype"] != "DT_STRING" for column in inputs.values()):
        return curl + shlex.join([f"{url}/metadata"])
    own = example if isinstance(example, dict) else {}
    usual = example if isinstance(example, str) else "never a dull moment"
    columns = {column: [own.get(column, usual)] for column in inputs}
    body = json.dumps({"inputs": columns}, ensure_ascii=not example)
    return curl + shlex.join(["-d", body, f"{url}:predict"])


def _interrupt(*_):
    raise KeyboardInterrupt
