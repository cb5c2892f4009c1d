"""Folders that one process has for itself while it writes them."""

import os
import platform

from keras_lm.utils import files

HOLDER = ".holder"  # in such a folder: names the process that has it


def take(folder):
    """Create a folder if necessary, and lock it until the returned descriptor is closed.

    The system closes the descriptor of a process that dies. On a system without locks, the folder
    is not locked.

    Raises:
        FileExistsError: if another process has the lock; the message names it.
    """
    folder = files.on_disk(folder)
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        try:
            lock = os.open(folder, os.O_RDONLY)
        except FileNotFoundError:
            continue  # it has just been renamed
        try:
            files.lock(lock, wait=False)
        except BlockingIOError as error:
            os.close(lock)
            holder = folder / HOLDER
            who = holder.read_text(encoding="utf-8") if holder.is_file() else "another process"
            raise FileExistsError(
                f"{folder} is being written by {who}: wait until it has ended, or choose another "
                "folder."
            ) from error
        except OSError:
            pass
        if folder.is_dir() and os.path.samestat(os.stat(lock), folder.stat()):
            break
        os.close(lock)
    (folder / HOLDER).write_text(f"process {os.getpid()} of {platform.node()}", "utf-8")
    return lock
