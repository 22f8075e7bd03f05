# SPDX-License-Identifier: GPL-2.0
"""A second guest, the other host of a test. The first guest can pause, kill and restart it."""

import os
import signal
import socket
import subprocess
import tempfile
import threading

ADDRESSES = ("52:54:00:00:00:02", "52:54:00:00:00:01")
DISK_MIB = 64


def free_ports(n):
    """Returns `n` unused UDP port numbers."""
    sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(n)]
    for s in sockets:
        s.bind(("127.0.0.1", 0))
    ports = [s.getsockname()[1] for s in sockets]
    for s in sockets:
        s.close()
    return ports


def card(number, ports):
    """Returns QEMU's arguments for the card of guest `number`. Packets to a paused or dead guest are lost, as on a
    wire."""
    here, there = ports[number], ports[1 - number]
    return [
        "-netdev", f"dgram,id=wire,local.type=inet,local.host=127.0.0.1,local.port={here},"
        f"remote.type=inet,remote.host=127.0.0.1,remote.port={there}",
        # rxe frees the packets of a queue pair in error with interrupts off, which page pool packets do not allow. With
        # large frames and without merging there is no page pool.
        "-device", f"virtio-net-pci,netdev=wire,mac={ADDRESSES[number]},mrg_rxbuf=off,host_mtu=4200",
    ]  # fmt: skip


class Peer:
    """Runs tests/NAME.sh when started. Its disk, /dev/vdb, survives restarts."""

    def __init__(self, guest, name, child):
        self.is_report, self.child = guest.is_report, child
        self.reports = []
        ports = free_ports(2)
        guest.args.qemu += card(0, ports)
        self.disk = tempfile.NamedTemporaryFile(prefix="disk")
        self.disk.truncate(DISK_MIB << 20)
        self.initrd = guest.initramfs(f"cd /srp/tests; bash ./{name}.sh\n")
        command = guest.command(self.initrd, "job=command", guest.kvm())
        command = command[: -len(guest.args.qemu)]
        command[command.index("-smp") + 1] = "1"
        command[command.index("-m") + 1] = "1024"
        self.command = command + card(1, ports) + ["-drive", f"file={self.disk.name},if=virtio,format=raw"]
        self.log = open(guest.args.console.removesuffix(".log") + "-peer.log", "wb")
        self.process = None

    def start(self):
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                                        stderr=subprocess.STDOUT, preexec_fn=self.child)
        threading.Thread(target=self.read, args=(self.process.stdout,), daemon=True).start()

    def read(self, console):
        for line in console:
            self.log.write(line)
            self.log.flush()
            text = line.decode(errors="replace").rstrip("\r\n")
            if self.is_report(text):
                self.reports.append(f"the other guest: {text}")

    def order(self, what):
        """Obeys an order from the first guest's console: `::peer pause`, `resume`, `kill` or `start`."""
        match what:
            case "pause":
                os.kill(self.process.pid, signal.SIGSTOP)
            case "resume":
                os.kill(self.process.pid, signal.SIGCONT)
            case "kill":
                self.end()
            case "start":
                self.end()
                self.start()

    def end(self):
        if self.process:
            self.process.kill()
            self.process.wait()
