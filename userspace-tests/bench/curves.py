#!/usr/bin/env python3
# SPDX-License-Identifier: GPL-2.0
"""path.py for curves: by io_uring and without an I/O scheduler at each point. Two options in the table are not those of
a login: `units=N` is a session with N logical units, `sessions=N` are N sessions with one each. NVMe has a controller
with N namespaces, or N controllers of a subsystem each. The others have no such points."""

import glob
import os
import re

import measure
import path
import peers

# Initiator extensions: UNITS + N is granted N logical units, SESSIONS + N is session N.
UNITS, SESSIONS = 0x10000, 0x20000
TARGETS = "/sys/kernel/config/target/srpt/0x*/0x*"
NVMET = "/sys/kernel/config/nvmet"
MANY = re.compile(r"(units|sessions)=(\d+)")


def many(options):
    """Returns for each session its initiator extension, its NQN and its number of units. None: an ordinary one."""
    if not (found := MANY.search(options)):
        return []
    what, n = found[1], int(found[2])
    if what == "units":
        return [(UNITS + n, f"units-{n}", n)]
    return [(SESSIONS + i, f"session-{i}", 1) for i in range(1, n + 1)]


def subsystem(nqn, units):
    """Makes a subsystem whose namespaces all have the disk of the first subsystem."""
    folder = f"{NVMET}/subsystems/{nqn}"
    disk = measure.read(f"{NVMET}/subsystems/bench/namespaces/1/device_path")
    os.mkdir(folder)
    measure.write(f"{folder}/attr_allow_any_host", "1")
    for n in range(1, units + 1):
        os.mkdir(f"{folder}/namespaces/{n}")
        measure.write(f"{folder}/namespaces/{n}/device_path", disk)
        measure.write(f"{folder}/namespaces/{n}/enable", "1")
    os.symlink(folder, f"{NVMET}/ports/1/subsystems/{nqn}")


class Several:
    """The controllers of these subsystems, as one peer."""

    def __init__(self, nqns):
        options = peers.GUEST["nvme"].rpartition("nqn=")[0]
        self.all = [peers.Nvme(f"{options}nqn={nqn}") for nqn in nqns]

    def has(self, disk):
        return any(one.has(disk) for one in self.all)

    def connect(self):
        for one in self.all:
            one.connect()

    def disconnect(self, disk):
        for one in self.all:
            one.disconnect(disk)


class Curves(path.Path):
    def prepare(self, workloads):
        """Makes the initiator ports and subsystems of all points."""
        wanted = sorted({one for w in workloads for one in many(w["options"])})
        device, port = re.search(r"/srp-(\w+)-(\d+)/", self.args.add_target).groups()
        (target,) = glob.glob(TARGETS)
        measure.grant(target, [(extension, n) for extension, _, n in wanted], measure.gid_of(device, port))
        for _, nqn, n in wanted:
            subsystem(nqn, n)

    def fio(self, w, disks, more):
        return super().fio(w | {"name": f"{w['name']}-uring"}, disks, more)

    def run(self, rnd, variant, w):
        for disk in self.disks:
            measure.write(f"{peers.queue(disk)}/scheduler", "none")
        # No other scheduler comes back, which takes long with many disks: they go with their session.
        peers.Peers.run(self, rnd, variant, w)

    def done(self, disks):
        """As measure.py's, by one read for all disks: it is counted, and takes the CPU from the I/O."""
        rows = [line.split()[2:] for line in measure.read("/proc/diskstats").splitlines()]
        stats = [[int(n) for n in row[1:]] for row in rows if row[0] in disks]
        return [sum(stat[i] + stat[i + 4] for stat in stats) for i in (0, 2)]

    def login_for(self, options, luns):
        hosts, disks = [], []
        for options, n in [(f",initiator_ext={e:x}", n) for e, _, n in many(options)] or [(options, luns)]:
            super().login_for(options, n)
            hosts.append(self.host)
            disks += self.disks
        self.host, self.disks = hosts, disks

    def logout(self, hosts):
        for host in hosts:
            super().logout(host)

    def peer(self, name, peer, rnd, workloads):
        groups = {}
        for w in workloads:
            groups.setdefault(tuple(nqn for _, nqn, _ in many(w["options"])), []).append(w)
        for nqns, those in groups.items():
            if not nqns or name == "nvme":
                super().peer(name, Several(nqns) if nqns else peer, rnd, those)

    def main(self):
        only = self.args.only.split(",")
        self.prepare([w for w in measure.table(self.args.workloads) if only == [""] or w["name"] in only])
        super().main()


if __name__ == "__main__":
    # iSCSI over TCP does no RDMA.
    del peers.PEERS["iscsi"]
    Curves(measure.arguments()).main()
