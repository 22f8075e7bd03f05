#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""make bench MODE=wall: cores.py on this machine and its adapter. ci/bench.sh describes the environment."""

import glob
import os
import pathlib
import platform
import re
import shutil
import subprocess
import sys

import cores
import peers

TOP = pathlib.Path(__file__).resolve().parents[2]
OUT = TOP / "build/bench/wall"
POINTS = "*-d1,*-d8,*-d32"
MODULES = {"nvme": "nvme_rdma", "rnbd": "rnbd_client", "iser": "ib_iser"}


def die(why):
    sys.exit(f"bench.sh: {why}")


def module(*patterns):
    return next((found for pattern in patterns for found in sorted(glob.glob(pattern, recursive=True))), None)


def arguments(e):
    """Returns the arguments of cores.py for this environment, or says what is missing."""
    device, login = e.get("DEVICE") or "", e.get("LOGIN") or ""
    if not device or not login:
        die("MODE=wall wants DEVICE=device/port and LOGIN=, the string for add_target")
    name, _, port = device.partition("/")
    if not port or not os.path.isdir(f"/sys/class/infiniband/{name}/ports/{port}"):
        die(f"there is no RDMA port {device}")
    others = {peer: options for peer in MODULES if (options := e.get(peer.upper()))}
    if not e.get("OVERWRITE"):
        disks = ", ".join(["the target's LUN 0", *(f"the disk of {peer.upper()}" for peer in others)])
        die(f"this overwrites {disks}: say OVERWRITE=1")
    if os.geteuid():
        die("not root")
    if not shutil.which("fio"):
        die("there is no fio: install the package fio")
    bad = others.get("iser", "IQN PORTAL")
    if len(bad.split()) != 2:
        die(f"ISER={bad}: it wants ISER='IQN ADDRESS:PORT'")
    modules = f"/lib/modules/{platform.release()}"
    ours = module(f"{TOP}/build/native/rust/ib_srp.ko", f"{modules}/updates/**/ib_srp.ko*")
    c = module(f"{modules}/kernel/drivers/infiniband/ulp/srp/ib_srp.ko*")
    if not ours:
        die(f"there is no {TOP}/build/native/rust/ib_srp.ko: run make first")
    if not c:
        die("this kernel has no C ib_srp")
    a = cores.parser().parse_args([
        "--driver", f"c={c}", "--driver", f"rust={ours}",
        "--add-target", f"/sys/class/infiniband_srp/srp-{name}-{port}/add_target", "--login", login,
        "--only", e.get("ONLY") or POINTS, "--rounds", e.get("ROUNDS") or "0",
        "--minutes", e.get("MINUTES") or "20", "--seconds", e.get("SECONDS_EACH") or "3", "--out", f"{OUT}.disk",
    ])  # fmt: skip
    a.peers = others
    cores.points(a.only, False)
    return a


def prepare(a):
    loaded = ["scsi_transport_srp", "rdma_cm", "ib_cm", "sd_mod", *(MODULES[peer] for peer in a.peers)]
    subprocess.run(["modprobe", "-a", *loaded], check=True)
    if os.path.isdir("/sys/module/ib_srp"):
        subprocess.run(["rmmod", "ib_srp"], check=True)
    if "iser" in a.peers:
        peers.Iscsi(a.peers["iser"]).run("-I", "iser", "-o", "new")
    OUT.parent.mkdir(parents=True, exist_ok=True)
    pathlib.Path(a.out).unlink(missing_ok=True)


def main():
    a = arguments(os.environ)
    prepare(a)
    load = os.getloadavg()[0]
    cores.Cores(a).main()
    git, commit = shutil.which("git"), ""
    if git:
        command = [git, "-C", TOP, "describe", "--always", "--dirty"]
        commit = subprocess.run(command, capture_output=True, text=True).stdout.strip()
    about = {"commit": commit or "unknown", f"load before, of {os.cpu_count()} CPUs": f"{load:.2f}"}
    words = [word for name, value in about.items() for word in ("--about", f"{name}={value}")]
    name = re.sub(r"[^\w]", "-", os.environ["DEVICE"])
    page = [sys.executable, "-B", pathlib.Path(__file__).with_name("page.py"), *words, "--out", OUT]
    return subprocess.run([*page, f"{name}={OUT}"]).returncode


if __name__ == "__main__":
    sys.exit(main())
