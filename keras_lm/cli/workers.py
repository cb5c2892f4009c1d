"""`keras-lm launch`: a command in several processes of this machine."""

import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time

import click

from keras_lm.cli.command import Command

LAUNCHED = ("finetune", "pretrain")
DEVICES = "--xla_force_host_platform_device_count"  # of the processor, virtual ones
PATIENCE = 10.0  # seconds for a process to end by itself before it is killed


@click.command("launch", cls=Command, context_settings={"ignore_unknown_options": True})
@click.option(
    *("--workers", "--processes", "processes"),
    type=click.IntRange(1),
    required=True,
    help="How many processes to start.",
)
@click.option(
    "--devices-per-process",
    type=click.IntRange(1),
    metavar="N",
    help="Processors that each makes of this machine's, to try JAX on several devices.",
)
@click.argument("command", nargs=-1, required=True, type=click.UNPROCESSED, metavar="-- COMMAND")
def launch_command(processes, devices_per_process, command):
    """Train in several processes of this machine, which compute parts of every batch.

    \b
      keras-lm launch --processes 2 -- finetune bert-base train.csv --output film-critic
      keras-lm launch --processes 2 -- train.py --epochs 3
      KERAS_BACKEND=jax keras-lm launch --processes 2 --devices-per-process 2 -- train.py

    COMMAND is finetune or pretrain with its options, or a Python script that makes its task in the
    scope of a tf.distribute.MultiWorkerMirroredStrategy; or, with KERAS_BACKEND=jax, a script that
    begins with keras_lm.training.start_processes(). What is learned is what one process learns. The
    batch size is that of all processes together.

    Each line of output begins with the number of its process; number 0 writes the files. If one
    fails, all are ended, and Ctrl-C ends all. For several machines, see docs/many_machines.md.
    """
    if command[0] not in LAUNCHED and not command[0].endswith(".py"):
        raise click.UsageError(
            f"COMMAND begins with {command[0]!r}: give {' or '.join(LAUNCHED)}, or a Python script."
        )
    if devices_per_process is not None and os.environ.get("KERAS_BACKEND") != "jax":
        raise click.UsageError(
            f"--devices-per-process {devices_per_process} is for JAX: set KERAS_BACKEND=jax."
        )
    environment = dict(os.environ)
    if devices_per_process is not None:
        flags = f"{os.environ.get('XLA_FLAGS', '')} {DEVICES}={devices_per_process}"
        environment["XLA_FLAGS"] = flags.strip()
    addresses = [f"127.0.0.1:{port}" for port in _free_ports(processes)]
    start = [sys.executable, "-u"]
    if command[0] in LAUNCHED:
        start += ["-c", "from keras_lm_command import main; main(prog_name='keras-lm')"]
    started = []
    try:
        for index in range(processes):
            process = subprocess.Popen(
                [*start, *command],
                env=environment | _place(addresses, index),
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
            )
            started.append(process)
        code = _wait(started)
    finally:
        _end(started)
    sys.exit(code)


def _place(addresses, index):
    """Return what tells a process which of all it is, TensorFlow's and Keras's for JAX."""
    task = {"type": "worker", "index": index}
    return {
        "TF_CONFIG": json.dumps({"cluster": {"worker": addresses}, "task": task}),
        "KERAS_DISTRIBUTION_JOB_ADDRESSES": addresses[0],
        "KERAS_DISTRIBUTION_NUM_PROCESSES": str(len(addresses)),
        "KERAS_DISTRIBUTION_PROCESS_ID": str(index),
    }


def _wait(processes):
    """Pass on output and signals until all have ended, or one badly; return its exit code."""
    closed = threading.Event()  # our own output, as by `| head`
    readers = [
        threading.Thread(target=_pass_on, args=(number, process.stdout, closed), daemon=True)
        for number, process in enumerate(processes)
    ]
    for reader in readers:
        reader.start()

    def ended(signum, frame):
        raise SystemExit(128 + signum)

    if threading.current_thread() is threading.main_thread():
        signal.signal(signal.SIGTERM, ended)
    while not closed.is_set():
        codes = [process.poll() for process in processes]
        for number, code in enumerate(codes):
            if code:
                readers[number].join(PATIENCE)  # its last lines say why
                reason = f"signal {-code}" if code < 0 else f"exit code {code}"
                click.echo(f"[{number}] ended with {reason}: all others are ended.", err=True)
                return code if code > 0 else 128 - code
        if None not in codes:
            for reader in readers:
                reader.join(PATIENCE)  # a process that it has left behind may hold the output open
            return 0
        time.sleep(0.1)
    return 1


def _pass_on(number, output, closed):
    try:
        for line in output:
            click.echo(f"[{number}] ".encode() + line, nl=False)
    except BrokenPipeError:
        closed.set()


def _end(processes):
    """End those that still run: gently, and after a while by force."""
    for process in processes:
        if process.poll() is None:
            process.terminate()
    until = time.monotonic() + PATIENCE
    for process in processes:
        try:
            process.wait(max(until - time.monotonic(), 0))
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _free_ports(number):
    sockets = [socket.socket() for _ in range(number)]
    for bound in sockets:
        bound.bind(("127.0.0.1", 0))
    ports = [bound.getsockname()[1] for bound in sockets]
    for bound in sockets:
        bound.close()
    return ports
