# SPDX-License-Identifier: GPL-2.0
"""Boots several machines of one disk, and has storage systems on them lose and regain machines under verified I/O.
ci/fleet.sh runs this in the toolchain root.

Each machine is a guest with the differences from the disk in an image of its own, which survives when the guest is
killed. userspace-tests/node/machine runs the commands. A machine that dies by itself, hangs, or has a report of the
kernel fails the running test."""

import contextlib
import json
import os
import re
import select
import signal
import socket
import struct
import sys
import threading
import time

from . import peer, results, vm

DISK = "/disk/node.ext4"
NUMBERS = {"A": 1, "B": 2, "C": 3, "D": 4, "E": 5, "initiator": 9}
STORAGE = "A B C D E".split()
# The tests with their deadlines, in their order. Each needs the one before.
TESTS = {"boot": 1200, "wss": 900, "ce_dies": 900, "se_dies": 900, "wss_data": 600,
         "xorset": 900, "two_die": 900, "others_die": 1200, "xorset_data": 600,
         "both": 900, "rs_and_se_die": 900, "next_rs_and_se_die": 900, "both_data": 600}  # fmt: skip
# Sizes that fit the guests.
SMALL = {"--size 102400": "--size 64", "--stripes 100000": "--stripes 84"}
JOURNAL = "python3 /testbed/journal.py"
# Where commands begin, as the unit of the machines says.
FOLDER = "/var/tmp"


class Failed(Exception):
    pass


def commands(page, title):
    """Returns the blocks of commands in a section of a page, each a list of (machines, command). A line begins with the
    names of its machines, or is for those of the line above, which it continues after a backslash."""
    blocks, on, machines = [], False, None
    for line in page.splitlines():
        if line.startswith("#"):
            on = line.lstrip("# ") == title
        elif not on or not line.startswith("    "):
            machines = None
        else:
            named = re.match(r"    (\w+(?:, \w+)*): +(.*)", line)
            if not machines:
                blocks.append([])
            machines, command = (named[1].split(", "), named[2]) if named else (machines, line.strip())
            if not machines or not set(machines) <= set(NUMBERS):
                raise Failed(f"{title}: no machine for this line: {line}")
            if blocks[-1] and (begun := blocks[-1][-1][1]).endswith("\\"):
                blocks[-1][-1] = (machines, begun[:-1] + command)
            else:
                blocks[-1].append((machines, command))
    return blocks


def overlay(path, base):
    """Makes an image in QEMU's format qcow2 that has only the differences from the raw image BASE, as the toolchain
    root has no qemu-img: a header, one block of reference counts, and an empty table of the first level."""
    size = os.path.getsize(base)
    first = -(-size >> 29)
    header = struct.pack(">4sIQIIQIIQQIIQ", b"QFI\xfb", 2, 80, len(base), 16, size, 0, first, 3 << 16, 1 << 16, 1, 0, 0)
    with open(path, "wb") as f:
        f.write(header + bytes(8) + base.encode())
        for at, data in (1, struct.pack(">Q", 2 << 16)), (2, struct.pack(">4H", 1, 1, 1, 1)):
            f.seek(at << 16)
            f.write(data)
        f.truncate(4 << 16)


class Machine(vm.Guest):
    def __init__(self, args, name, group):
        super().__init__(args, "/kernel")
        self.name, self.number, self.group = name, NUMBERS[name], group
        self.console = args.console.replace(".log", f"-{name}.log")
        self.image, self.path = f"/disk/{name}.qcow2", f"/tmp/{name}.socket"
        self.reports, self.why, self.port, self.pid = [], "it has not begun", None, 0
        overlay(self.image, DISK)
        open(self.console, "w").close()

    def command(self, initrd, extra, kvm):
        if initrd:
            return super().command(initrd, extra, kvm)
        # An emulated CPU would load the profiles of AppArmor for minutes.
        words = "root=/dev/vda rw systemd.getty_auto=no apparmor=0 modprobe.blacklist=ahci,kvm_amd"
        return self.machine(kvm) + [
            "-global", "ICH9-LPC.noreboot=on", "-kernel", "/disk/vmlinuz", "-initrd", "/disk/initrd.img",
            "-append", self.parameters(f"{words} machine={self.number}"),
            "-drive", f"if=virtio,format=qcow2,file={self.image},backing.driver=raw",
            "-drive", "if=virtio,format=raw,file=/disk/testbed.ext4,readonly=on",
            "-netdev", f"socket,id=wire,mcast={self.group},localaddr=127.0.0.1",
            # As in lab.peer.
            "-device", f"virtio-net-pci,netdev=wire,mac=52:54:00:00:00:0{self.number},mrg_rxbuf=off,host_mtu=4200",
            "-chardev", f"socket,id=commands,path={self.path},server=on,wait=off", "-device", "virtio-serial-pci",
            "-device", "virtserialport,chardev=commands,name=commands",
        ]  # fmt: skip

    def start(self, kvm, limit):
        """Boots. The first answer of `do` is that of the start."""
        with contextlib.suppress(FileNotFoundError):
            os.unlink(self.path)
        self.why = None
        self.thread = threading.Thread(target=self.run, args=(kvm, limit), daemon=True)
        self.thread.start()

    def run(self, kvm, limit):
        with open(self.console, "ab") as log:
            for word, text in self.watch(self.command(None, "", kvm), limit, log):
                if word == "report" or word == "machine":
                    self.reports.append(text)
                elif word == "ended":
                    self.why = text

    def kill(self):
        """Ends the machine as a loss of power does."""
        os.kill(self.pid, signal.SIGKILL)
        self.thread.join(30)
        self.why = None
        self.port.close()
        self.port = None

    def connect(self):
        port = socket.socket(socket.AF_UNIX)
        with contextlib.suppress(OSError):
            port.connect(self.path)
            self.port = port
        return self.port


class Fleet:
    """The machines, and the tests. Each wait has the deadline of its test."""

    def __init__(self, args):
        group = f"230.0.0.1:{peer.free_ports(1)[0]}"
        self.machines = {name: Machine(args, name, group) for name in NUMBERS}
        self.off = set()
        self.deadline = 0
        with open("/srp/storage/README.md") as f:
            self.common, self.of_wss, self.of_xorset, self.of_both = commands(f.read(), "On several machines")

    def check(self):
        """Fails if a machine has a report or has ended."""
        for m in self.machines.values():
            if m.reports:
                raise Failed(f"{m.name}: kernel report: {m.reports[0]}")
            if m.why:
                raise Failed(f"{m.name}: {m.why}")

    def until(self, what, condition, pause=0.5):
        """Waits for a condition, and returns its value."""
        while not (value := condition()):
            self.check()
            if time.monotonic() > self.deadline:
                raise Failed(f"not before the deadline: {what}")
            time.sleep(pause)
        return value

    def answer(self, m, what):
        """Returns the status and the output of a command that runs."""
        said = b""

        def done():
            nonlocal said
            if select.select([m.port], [], [], 0.5)[0]:
                data = m.port.recv(65536)
                said += data
                # vm.Guest.watch starts a guest again that hangs in early boot.
                if not data:
                    m.port = None
                    self.until(f"{m.name}: QEMU", m.connect)
            return re.search(rb"\n::done (\d+)\n", said)

        end = self.until(f"{m.name}: {what}", done, 0)
        return int(end[1]), said[: end.start()].decode(errors="replace")

    def ask(self, name, command):
        """Runs a command on a machine. Returns its status and its output."""
        m = self.machines[name]
        m.port.sendall(command.encode() + b"\n")
        return self.answer(m, command)

    def do(self, name, command):
        """Runs a command on a machine, which must succeed. Returns its output."""
        status, said = self.ask(name, command)
        if status:
            raise Failed(f"{name}: status {status} of: {command}\n{said}")
        return said

    def follow(self, block):
        """Follows commands of a page."""
        for names, command in block:
            for long, short in SMALL.items():
                command = command.replace(long, short)
            for name in names:
                print(f"{name}: {command}", flush=True)
                self.do(name, command)

    def begin(self, *names):
        """Boots machines."""
        for name in names:
            # Longer than all tests.
            self.machines[name].start(self.kvm, sum(TESTS.values()))
            self.off.discard(name)
        for name in names:
            m = self.machines[name]
            self.until(f"{name}: QEMU", m.connect)
            self.answer(m, "boot")

    def kill(self, *names):
        for name in names:
            print(f"{name}: killed", flush=True)
            self.machines[name].kill()
            self.off.add(name)

    def status(self, name, unit):
        """Returns the status of a unit, or an empty one."""
        said = self.ask(name, "srp-storage status --json")[1]
        with contextlib.suppress(json.JSONDecodeError):
            return json.loads(said).get(unit, {})
        return {}

    def acked(self):
        return int(self.do("initiator", "awk '$2 == \"count\" {n = $3} END {print n + 0}' journal.events"))

    def goes_on(self, what, more=100):
        """Waits until the journal has this many more acknowledgements."""
        first = self.acked()
        self.until(f"I/O {what}", lambda: self.acked() >= first + more)
        print(f"I/O goes on {what}", flush=True)

    def start_journal(self, device):
        """Starts verified I/O on a device, which must be new."""
        self.device = device
        self.do("initiator", f"dd if=/dev/zero of={device} bs=1M count=8 oflag=direct")
        self.do("initiator", "rm -f journal*; systemd-run --unit=journal --collect -p TimeoutStopSec=300 "
                f"-p WorkingDirectory={FOLDER} -p StandardOutput=file:{FOLDER}/journal.out {JOURNAL} run {device} "
                "journal --threads 4 --pause 0.05 --grace 200")  # fmt: skip
        self.until("the first write", lambda: not self.ask("initiator", "grep ' count [1-9]' journal.events")[0])
        self.goes_on("at first")

    def end_journal(self):
        """Ends verified I/O, and compares."""
        self.do("initiator", "systemctl stop journal")
        total = self.do("initiator", "cat journal.out").strip()
        print(total, flush=True)
        if not re.search(r"writes=[1-9].* errors=0 wrong=0 .*stuck=0$", total):
            raise Failed(f"{total}\n" + self.do("initiator", "grep -E 'wrong|error' journal.events | head"))
        self.read_again()

    def read_again(self, name="initiator", device=None):
        print(self.do(name, f"{JOURNAL} check {device or self.device} journal 2>&1").strip(), flush=True)

    def boot(self):
        self.kvm = self.machines["A"].kvm()
        self.begin(*NUMBERS)
        self.do("initiator", "systemctl enable --now multipathd")
        self.follow(self.common)

    def se_has_all(self, name, ces=2):
        s = self.status(name, "wss@se")
        members = [m["up"] for m in s.get("members", ())]
        return s.get("state") == "serving" and members == [True] * ces and all(r["up"] for r in s["stores"])

    def answering(self, ces=2):
        said = self.do("initiator", "cat /sys/class/scsi_host/host*/answer_channels 2>/dev/null || true").split()
        return said and str(ces) in said

    def start_journal_on_map(self):
        name = "dmsetup ls --target multipath | awk '/\\(/ {print $1}'"
        device = "/dev/mapper/" + self.until("the map", lambda: self.do("initiator", name).strip())
        self.until(device, lambda: not self.ask("initiator", f"test -b {device}")[0])
        self.start_journal(device)

    def wss(self):
        self.follow(self.of_wss)
        self.until("A is the SE, and has RS and CEs", lambda: self.se_has_all("A"))
        self.until("two answer channels", self.answering)
        self.start_journal_on_map()

    def ce_dies(self):
        self.kill("B")
        self.goes_on("without a CE")
        self.begin("B")
        self.until("the CE is back", lambda: self.se_has_all("A") and self.answering())
        self.goes_on("with the CE back")

    def se_dies(self):
        for dead, next in ("A", "E"), ("E", "A"):
            self.kill(dead)
            self.until(f"{next} is the SE", lambda: self.se_has_all(next))
            self.goes_on(f"with the SE on {next}")
            self.begin(dead)
            self.until("a spare", lambda: not self.ask(dead, "systemctl is-active wss@se")[0])
            self.until("two answer channels", self.answering)

    def wss_data(self):
        self.end_journal()
        self.leave("wss@rs wss@se wss@ce")
        # The file of the RS has what is acknowledged.
        self.do("D", f"cat >journal <<<'{self.do('initiator', 'cat journal').strip()}'")
        self.read_again("D", "/srv/blocks")

    def leave(self, units):
        """Logs out, and stops the roles."""
        self.do("initiator", "multipath -F; for f in /etc/srp/targets.d/*.conf; do f=${f##*/}; "
                "srpctl disconnect --forget ${f%.conf} || exit; done")  # fmt: skip
        for name in STORAGE:
            self.do(name, f"systemctl disable --now {units}")
            self.do(name, "! journalctl -b --no-pager -g panicked")

    def nodes(self):
        """The states of the nodes."""
        s = self.status("C", "xorset@client")
        return [n["state"] for n in s["nodes"]] if s.get("open") else []

    def whole(self):
        return self.status("C", "xorset@client").get("whole")

    def xorset(self):
        self.follow(self.of_xorset)
        self.until("a set that is whole", self.whole)
        self.until("/dev/srp0", lambda: not self.ask("initiator", "test -b /dev/srp0")[0])
        self.start_journal("/dev/srp0")

    def lose(self, *names):
        """Two machines die and return."""
        self.kill(*names)
        lost = ["out" if n in names else "up" for n in STORAGE]
        self.until(f"a set without {names}", lambda: self.nodes() == lost)
        self.goes_on(f"without {names}")
        self.begin(*names)
        self.until("a set that is whole again", self.whole)
        self.goes_on("with all nodes")

    def two_die(self):
        self.lose("A", "E")

    def others_die(self):
        """What the first two have rebuilt is needed."""
        self.lose("B", "D")

    def xorset_data(self):
        self.end_journal()
        self.leave("xorset@node xorset@client")

    def both(self):
        for name in STORAGE:
            self.do(name, "rm /srv/cells")
        # The set and the system are new.
        self.do("initiator", "systemctl stop etcd && rm -r /var/lib/etcd/default && systemctl start etcd")
        self.follow(self.of_both)
        self.both_serve()
        self.start_journal_on_map()

    def both_serve(self):
        """Waits until all roles are there. Returns the machines of the RS and the SE."""
        for name in "ABC":
            self.until(f"the RS on {name}", lambda n=name: not self.ask(n, "systemctl is-active xorset@rs")[0])

        def rs():
            all = {name: self.status(name, "xorset@rs") for name in "ABC"}
            return [name for name, s in all.items() if s.get("state") == "serving" and s["set"]["whole"]]

        def se():
            return [name for name in "CDE" if self.se_has_all(name, 3)]

        found = self.until("an RS with all nodes", rs)[0], self.until("an SE with all CEs", se)[0]
        self.until("three answer channels", lambda: self.answering(3))
        return found

    def rs_and_se_die(self):
        rs, se = self.both_serve()
        dead = sorted({rs, se} if rs != se else {rs, "B"})
        self.kill(*dead)
        self.goes_on(f"without RS and SE, which were on {dead}")
        self.begin(*dead)
        self.both_serve()
        self.goes_on("with all roles")

    def next_rs_and_se_die(self):
        """What the first two have rebuilt is needed."""
        self.rs_and_se_die()

    def both_data(self):
        self.end_journal()
        self.leave("wss@se wss@ce xorset@rs xorset@node")

    def show(self):
        """Shows what is known of the machines after a failure."""
        for name, m in self.machines.items():
            print(f"--- {name}: {m.why or ('off' if name in self.off else 'runs')}")
            vm.tail(m.console, 15)
            if m.port and not m.why and not m.reports:
                self.deadline = time.monotonic() + 60
                with contextlib.suppress(Failed, OSError):
                    units = "-u 'wss@*' -u 'xorset@*' -u 'srp-connect@*' -u etcd -u multipathd -u journal"
                    print(self.ask(name, f"srp-storage status; journalctl -b --no-pager -n 40 {units}")[1])
        sys.stdout.flush()


def main(words=None):
    a = vm.arguments("machines.py", "Boots machines and tests their storage systems.").parse_args(words)
    bad, fleet = False, Fleet(a)
    for name, seconds in TESTS.items():
        began, reason = time.monotonic(), "did not run" if bad else ""
        if not bad:
            fleet.deadline = began + seconds
            try:
                getattr(fleet, name)()
                fleet.check()
            except (Failed, OSError) as e:
                reason = str(e)
        took = int(time.monotonic() - began)
        verdict, text = ("fail", reason) if reason else ("ok", f"{took} s")
        results.add(results.Result(f"fleet/{name}", verdict, took, reason.partition("\n")[0]), a.results)
        print(f"{verdict:4} fleet/{name}: {text}", flush=True)
        if reason and not bad:
            bad = True
            fleet.show()
    return 1 if bad else 0


if __name__ == "__main__":
    sys.exit(main())
