#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""measure.py with the kernel's other initiators, which take turns after both ib_srp. guest.sh creates their targets."""

import contextlib
import functools
import glob
import os
import re
import subprocess
import sys

import measure

# Where guest.sh has the targets.
ADDRESS, IQN = "10.0.0.1", "iqn.2003-01.org.linux-iscsi.guest:bench"
GUEST = {
    "nvme": f"traddr={ADDRESS},trsvcid=4420,nqn=bench",
    "rnbd": f"sessname=bench path=ip:{ADDRESS} device_path=dev/nullb_disk0",
    "iser": f"{IQN} {ADDRESS}:3261",
    "iscsi": f"{IQN} {ADDRESS}:3260",
}
CONTROLLERS = "/sys/class/nvme/nvme*"


class Nvme:
    """A controller; `options` are those of /dev/nvme-fabrics."""

    def __init__(self, options):
        self.options = options
        self.nqn = dict(word.partition("=")[::2] for word in options.split(",")).get("nqn")

    def is_of(self, folder):
        """Returns whether a controller or subsystem is that of the NQN."""
        with contextlib.suppress(OSError):
            return measure.read(f"{folder}/subsysnqn") == self.nqn
        return False

    def has(self, disk):
        return self.is_of(f"/sys/block/{disk}/device")

    def connect(self):
        self.others = set(glob.glob(CONTROLLERS))
        with open("/dev/nvme-fabrics", "r+b", buffering=0) as f:
            f.write(f"transport=rdma,{self.options}".encode())

    def disconnect(self, disk):
        for path in filter(self.is_of, set(glob.glob(CONTROLLERS)) - self.others):
            measure.write(f"{path}/delete_controller", "1")


class Rnbd:
    """A mapped device; `options` are those of map_device."""

    def __init__(self, options):
        self.options = options

    def has(self, disk):
        return os.path.isdir(f"/sys/block/{disk}/rnbd")

    def connect(self):
        measure.write("/sys/class/rnbd-client/ctl/map_device", self.options)

    def disconnect(self, disk):
        measure.write(f"/sys/block/{disk}/rnbd/unmap_device", "normal")


class Iscsi:
    """A session with a node that iscsiadm knows, `IQN PORTAL`."""

    def __init__(self, node):
        self.iqn, self.portal = node.split()

    def run(self, *what):
        command = ["iscsiadm", "-m", "node", "-T", self.iqn, "-p", self.portal, *what]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)

    def has(self, disk):
        session = re.search(r"/session\d+/", os.path.realpath(f"/sys/block/{disk}"))
        return bool(session) and measure.read(f"/sys/class/iscsi_session{session[0]}targetname") == self.iqn

    def connect(self):
        self.run("--login")

    def disconnect(self, disk):
        self.run("--logout")


KINDS = {"nvme": Nvme, "rnbd": Rnbd, "iser": Iscsi, "iscsi": Iscsi}
PEERS = {name: KINDS[name](options) for name, options in GUEST.items()}


def disks():
    """Returns the disks that are not empty, without the paths below an NVMe multipath disk."""
    found = set()
    for d in os.listdir("/sys/block"):
        # A disk may disappear during this.
        with contextlib.suppress(OSError):
            if measure.read(f"/sys/block/{d}/hidden") == "0" and measure.read(f"/sys/block/{d}/size") != "0":
                found.add(d)
    return found


def opens(disk):
    """Opens the disk, which waits for the kernel's partition scan, so that no workload counts it. Returns None while
    the disk is being added."""
    with contextlib.suppress(OSError):
        os.close(os.open(f"/dev/{disk}", os.O_RDONLY))
        return True


def queue(disk):
    """Returns the folder of the disk's queue settings. An NVMe multipath disk uses those of its path."""
    path = re.sub(r"n(\d+)$", r"c*n\1", disk)
    return f"{(glob.glob(f'/sys/block/{path}') or [f'/sys/block/{disk}'])[0]}/queue"


class Peers(measure.Bench):
    def run(self, rnd, variant, w):
        if rnd == 0:
            limits = (
                f"{f} {measure.read(f'{queue(self.disks[0])}/{f}')}"
                for f in ("scheduler", "nr_requests", "max_sectors_kb", "max_segments")
            )
            print(f"{variant}: {self.disks[0]},", ", ".join(limits))
        super().run(rnd, variant, w)

    def requests(self, rnd, variant, w):
        pass

    def attach(self, name, peer, n=1):
        """Connects, and waits for the disks."""
        before = disks()

        def found():
            # Another disk may come meanwhile, and what is attached is written to.
            those = sorted(filter(peer.has, disks() - before))
            return those if len(those) >= n else None

        peer.connect()
        self.disks = measure.wait(f"{n} disks of {name}", found)
        if len(self.disks) > n:
            sys.exit(f"{name} has the disks {', '.join(self.disks)}: export {n} of them only")
        for disk in self.disks:
            measure.wait(f"{disk} of {name} to open", lambda disk=disk: opens(disk))

    def detach(self, name, peer):
        peer.disconnect(self.disks[0])
        measure.wait(f"{name} to end", lambda: disks().isdisjoint(self.disks))

    def peer(self, name, peer, rnd, workloads):
        self.attach(name, peer, max(int(w["luns"]) for w in workloads))
        for w in workloads:
            self.run(rnd, name, w)
        self.detach(name, peer)

    def turns(self):
        return super().turns() + [functools.partial(self.peer, *those) for those in PEERS.items()]


if __name__ == "__main__":
    Peers(measure.arguments()).main()
