"""One virtual environment for each peer, because their requirements exclude each other."""

import hashlib
import shutil
import subprocess
import sys
from pathlib import Path

BENCHMARKS = Path(__file__).parent
FOLDER = BENCHMARKS / ".environments"


class InstallError(Exception):
    """A peer's environment could not be made."""


def python_of(peer, environments):
    """Return the interpreter of a peer; its environment is made where there is none.

    Args:
        peer: str. `"keras_lm"` runs in the environment of this process.
        environments: dict from a peer to the folder of an environment to use instead.

    Raises:
        InstallError: with the last line of what the installer said.
    """
    if peer in environments:
        return str(Path(environments[peer]) / "bin" / "python")
    if peer == "keras_lm":
        return sys.executable
    requirements = BENCHMARKS / "requirements" / f"{peer}.txt"
    folder = FOLDER / peer
    stamp = folder / "installed"
    text = requirements.read_bytes() + b"".join(file.read_bytes() for file in alone(requirements))
    digest = hashlib.sha256(text + sys.version.encode()).hexdigest()
    if not stamp.exists() or stamp.read_text() != digest:
        shutil.rmtree(folder, ignore_errors=True)
        make(folder, requirements)
        stamp.write_text(digest)
    return str(folder / "bin" / "python")


def alone(requirements):
    """Return the files, one or none, of what is installed last and without its dependencies."""
    return list(requirements.parent.glob(f"{requirements.stem}-alone.txt"))


def make(folder, requirements):
    """Make an environment with uv, or with venv and pip where there is no uv.

    Args:
        folder: `Path`, which does not exist.
        requirements: `Path` of a requirements file.

    Raises:
        InstallError: if something cannot be installed.
    """
    python = str(folder / "bin" / "python")
    if uv := shutil.which("uv"):
        run(uv, "venv", "--quiet", "--python", sys.executable, str(folder))
        install = [uv, "pip", "install", "--quiet", "--python", python]
    else:
        run(sys.executable, "-m", "venv", str(folder))
        install = [python, "-m", "pip", "install", "--quiet"]
    run(*install, "-r", str(requirements))
    for file in alone(requirements):
        run(*install, "--no-deps", "-r", str(file))


def run(*command):
    """Run an installer's command."""
    done = subprocess.run(command, capture_output=True, text=True)
    if done.returncode:
        last = (done.stderr.strip().splitlines() or [f"exit status {done.returncode}"])[-1]
        raise InstallError(f"its environment cannot be made: {last}")
