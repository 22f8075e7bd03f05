#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""measure.py with the kernel's other initiators, which take turns after both ib_srp. guest.sh creates their targets."""

import contextlib
import functools
import glob
import os
import subprocess

import measure

IQN = "iqn.2003-01.org.linux-iscsi.guest:bench"


def connect_nvme():
    with open("/dev/nvme-fabrics", "r+b", buffering=0) as f:
        f.write(b"transport=rdma,traddr=10.0.0.1,trsvcid=4420,nqn=bench")


def disconnect_nvme(disk):
    for path in glob.glob("/sys/class/nvme/nvme*/delete_controller"):
        measure.write(path, "1")


def connect_rnbd():
    measure.write(
        "/sys/class/rnbd-client/ctl/map_device", "sessname=bench path=ip:10.0.0.1 device_path=dev/nullb_disk0"
    )


def disconnect_rnbd(disk):
    measure.write(f"/sys/block/{disk}/rnbd/unmap_device", "normal")


def iscsi(what, port):
    subprocess.run(
        ["iscsiadm", "-m", "node", "-T", IQN, "-p", f"10.0.0.1:{port}", what], check=True, stdout=subprocess.DEVNULL
    )


PEERS = {
    "nvme": (connect_nvme, disconnect_nvme),
    "rnbd": (connect_rnbd, disconnect_rnbd),
    "iser": (lambda: iscsi("--login", 3261), lambda disk: iscsi("--logout", 3261)),
    "iscsi": (lambda: iscsi("--login", 3260), lambda disk: iscsi("--logout", 3260)),
}


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
    (path,) = glob.glob("/sys/block/nvme*c*n1") or [f"/sys/block/{disk}"]
    return f"{path}/queue"


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

    def peer(self, name, connect, disconnect, rnd, workloads):
        before = disks()
        connect()
        (disk,) = self.disks = measure.wait(f"a disk of {name}", lambda: list(disks() - before))
        measure.wait(f"{disk} of {name} to open", lambda: opens(disk))
        for w in workloads:
            self.run(rnd, name, w)
        disconnect(disk)
        measure.wait(f"{name} to end", lambda: disks() == before)

    def turns(self):
        return super().turns() + [functools.partial(self.peer, name, *how) for name, how in PEERS.items()]


if __name__ == "__main__":
    Peers(measure.arguments()).main()
