# SPDX-License-Identifier: GPL-2.0
"""Repeats the measurements of the papers in guests. papers.sh, which calls this, describes the environment."""

import concurrent.futures
import dataclasses
import os
import pathlib
import subprocess
import sys
import time

from . import TOP, boot, build, built, in_root, script

BENCH = TOP / "userspace-tests/bench"


@dataclasses.dataclass(frozen=True)
class Guest:
    """A part of papers-guest.sh on a kind of device, at distances in us, with modules and files, and a plugin of QEMU,
    whose counts are beside the log."""

    name: str
    part: str
    kind: str = "rxe"
    far: str = "0"
    modules: tuple = ()
    files: tuple = ()
    plugin: str = ""

    @property
    def log(self):
        return f"papers-{self.name}"

    @property
    def words(self):
        """The options of vm.sh."""
        parameters = [f"FAR={self.far}"]
        parameters += [f"{name}={os.environ[name]}" for name in ("MIB", "PARTS") if os.environ.get(name)]
        options = [("--module", m) for m in self.modules] + [("--file", f) for f in self.files]
        options += [("--file", BENCH / name) for name in ("papers-guest.sh", "papers-io.py")]
        if self.plugin:
            plugin = f"/cache/{self.plugin}/plugin.so,out=/log/{self.log}.counts"
            options += [("--qemu=-plugin", f"--qemu={plugin}")]
        return [
            "--icount", "--log", self.log, "--timeout", "5400", "--append", " ".join(parameters),
            *(word for words in options for word in words),
            "--", "bash", "/srp/papers-guest.sh", self.kind, self.part,
        ]  # fmt: skip


def guests(tools, distances, plugin):
    """Returns all guests. The modules are built, the tools are in a folder, the plugin is in a folder of the cache."""
    ours, siw = (f"{built()}/{name}" for name in ("stock/rust/ib_srp.ko", "siw/siw.ko"))
    xor = tuple(map(str, (BENCH / "papers-xor.sh", tools / "xorset", tools / "srp-target")))
    wss = tuple(map(str, (BENCH / "papers-wss.sh", tools / "wss", tools / "srp-target")))
    ipoib = (str(BENCH / "papers-ipoib.py"), f"{built()}/vfab-stock/rust/ib_vfab.ko")
    cost = (*xor[1:], *wss[1:2], str(BENCH / "papers-cost.sh"), str(BENCH / "papers-own.sh"), str(BENCH / "measure.py"))
    scale = (*cost[2:3], str(BENCH / "papers-scale.sh"), *cost[-2:])
    return [
        Guest("xor-ours", "xor", far=distances, modules=(ours,), files=xor),
        Guest("xor-c", "xor", far=distances, files=xor),
        *(Guest(f"far-{d}", "far", far=d, modules=(ours,)) for d in distances.split(",")),
        Guest("wss", "wss", far=distances, modules=(ours,), files=wss),
        Guest("cost", "cost", modules=(ours,), files=cost, plugin=plugin),
        Guest("scale", "scale", modules=(ours,), files=scale, plugin=plugin),
        Guest("ipoib", "ipoib", "vfab", modules=(ours,), files=ipoib),
        Guest("io", "io", modules=(ours,)),
        Guest("reads-rxe", "reads", modules=(ours,)),
        Guest("reads-siw", "reads", "siw", modules=(ours, siw)),
        Guest("micro", "micro", modules=(f"{built()}/papers/rust/ib_srp.ko", siw), files=(str(tools / "xor"),)),
    ]


def run(guest):
    """Runs a guest. Returns whether it succeeded."""
    began = time.monotonic()
    status = subprocess.run(boot.command("stock", *guest.words), stdin=subprocess.DEVNULL).returncode
    print(f"==> {guest.log}: {int(time.monotonic() - began)} s", file=sys.stderr, flush=True)
    return status == 0


def main():
    (TOP / "build/bench").mkdir(parents=True, exist_ok=True)
    build("module.sh", "stock", built() / "papers", TOP, "modules", "SRP_BENCH=1")
    # Debian's kernel has no siw.
    source = f"{script('linux.sh')}/source/drivers/infiniband/sw/siw"
    build("module.sh", "stock", built() / "siw", source, "modules", "CONFIG_RDMA_SIW=m")
    build("module.sh", "stock", built() / "stock")
    build("module.sh", "stock", built() / "vfab-stock", TOP, "modules", "SRP_VFAB=1")
    tools = pathlib.Path(script("tools.sh"))
    plugin = pathlib.Path(script("plugin.sh", "roles")).name
    script("initramfs.sh", "stock")
    everyone = guests(tools, os.environ.get("FAR") or "0,500,1000,2000", plugin)
    only = os.environ.get("ONLY", "").split()
    wanted = [g for g in everyone if not only or g.name in only]
    # By this machine's clock, while no guest runs.
    words = in_root(script("root.sh"), [f"{tools}:/tools:ro"], "/tools/xor", "clock")
    clock = subprocess.run(words, stdout=subprocess.PIPE, text=True)
    if clock.returncode:
        sys.exit("papers.sh: xor has failed")
    lines = "".join(f"[0] {line}\n" for line in clock.stdout.splitlines())
    (TOP / "build/bench/papers-clock.log").write_text(lines)
    with concurrent.futures.ThreadPoolExecutor(int(os.environ.get("GUESTS") or 2)) as pool:
        failed = [g.log for g, good in zip(wanted, pool.map(run, wanted)) if not good]
    if failed:
        sys.exit(f"papers.sh: failed: {' '.join(failed)}")
    logs = ["/out/papers-clock.log", *(f"/log/{g.log}.log" for g in everyone)]
    return subprocess.run([TOP / "ci/plot.sh", "papers.py", "/out", *logs]).returncode


if __name__ == "__main__":
    sys.exit(main())
