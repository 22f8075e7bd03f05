# SPDX-License-Identifier: GPL-2.0
"""Boots a guest from outside of the toolchain root. vm.sh, which calls this, describes the options."""

import os
import pathlib
import sys

from . import CACHE, TOP, built, in_root, script


class Binds:
    """The directories that are bound in the root, for files of this machine."""

    def __init__(self):
        self.folders = {}

    def path(self, file):
        """Returns the path of a file in the root."""
        file = pathlib.Path(file).resolve(strict=True)
        at = self.folders.setdefault(file.parent, f"/host{len(self.folders)}")
        return f"{at}/{file.name}"

    def __iter__(self):
        return (f"{folder}:{at}:ro" for folder, at in self.folders.items())


def translated(words, binds):
    """Returns the options of lab.vm for those of vm.sh, and the name of the log."""
    log, found = "guest", []
    words = iter(words)
    for word in words:
        match word:
            case "--":
                found += [word, *words]
            case "--log":
                log = next(words)
            case "--module":
                found += [word, binds.path(next(words))]
            case "--file":
                file, _, name = next(words).partition(":")
                found += [word, f"{binds.path(file)}:{pathlib.Path(name or file).name}"]
            case _:
                found.append(word)
    return found, log


def in_lab(module, kernel, binds, *words):
    """Returns the command that runs a module of the lab in the toolchain root, with what a guest boots from."""
    folders = [f"{TOP}:/srp:ro", f"{built() / 'log'}:/log", f"{CACHE}:/cache"]
    folders += [f"{script('initramfs.sh', kernel)}:/kernel:ro", f"{script('guest.sh', kernel)}:/guest:ro", *binds]
    command = ["env", "PYTHONPATH=/srp/ci", "python3", "-B", "-m", f"lab.{module}", *words]
    return in_root(script("root.sh", kernel), folders, *command)


def command(kernel, *words):
    """Returns the command that boots a guest with this kernel and the options of vm.sh."""
    (built() / "log").mkdir(parents=True, exist_ok=True)
    binds = Binds()
    options, log = translated(map(str, words), binds)
    return in_lab("vm", kernel, binds, "--console", f"/log/{log}.log", "--kernel", kernel, *options)


if __name__ == "__main__":
    vm = command(*sys.argv[1:])
    os.execv(vm[0], vm)
