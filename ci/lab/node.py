# SPDX-License-Identifier: GPL-2.0
"""Boots a machine with its own disk until its plan is done. ci/node.sh runs this in the toolchain root.

Like a boot loader, this boots /vmlinuz and /initrd.img of the disk. The disk's plan (userspace-tests/node/run) says
what happens in each boot."""

import re
import subprocess
import sys

from . import results, vm

DISK = "/disk/node.ext4"
BOOT_SECONDS = 300


def debugfs(command):
    return subprocess.run(["debugfs", "-R", command, DISK], capture_output=True, text=True, check=True).stdout


class Node(vm.Guest):
    def command(self, initrd, extra, kvm):
        if initrd:
            return super().command(initrd, extra, kvm)
        images = [DISK, "/disk/testbed.ext4,readonly=on"] + ["/tmp/esp.img"] * self.firmware
        disks = []
        for n, image in enumerate(images):
            first = ",bootindex=0" * image.endswith("esp.img")
            disks += ["-drive", f"if=none,id=disk{n},format=raw,file={image}"]
            disks += ["-device", f"virtio-blk-pci,drive=disk{n}{first}"]
        if self.firmware:
            return self.machine(kvm) + [
                "-global", "driver=cfi.pflash01,property=secure,value=on", "-global", "ICH9-LPC.disable_s3=1",
                "-drive", "if=pflash,format=raw,unit=0,file=/tmp/code.fd,readonly=on",
                "-drive", "if=pflash,format=raw,unit=1,file=/tmp/vars.fd",
                *disks,
            ]  # fmt: skip
        # The chipset's watchdog must not reset the machine: after a crash it has no driver for minutes.
        watchdog = [] if self.arm else ["-global", "ICH9-LPC.noreboot=on"]
        return self.machine(kvm) + [
            *watchdog, "-kernel", "/tmp/vmlinuz", "-initrd", "/tmp/initrd.img",
            "-append", self.parameters(f"root={self.root} rw systemd.getty_auto=no"), *disks, *self.table,
        ]  # fmt: skip

    def load(self, how):
        """Gets the next boot from the disk, which the last boot must have left clean. Returns a description. HOW is

        `reboot`, `reboot-dump`   the disk's kernel, with an SRP target on the node
        `reboot-alone`            without a target
        `reboot-srp`, `-dracut`   an initramfs with a target that exports the disk; / is on that SRP disk
        `reboot-table`, `-table-dracut`   the same with the login in a table of the firmware, and no network
        `reboot-secure`, `-mok`   a firmware with Secure Boot, which boots shim; with `-mok`, shim knows dkms's key"""
        self.root = "/dev/vda" + " testbed.alone" * (how == "reboot-alone")
        self.firmware = how in ("reboot-secure", "reboot-mok")
        self.to_crash, self.table = False, []
        vm.BOOT_SECONDS = 900 if self.firmware else 240
        check = subprocess.run(["e2fsck", "-fp", DISK], capture_output=True, text=True)
        if check.returncode >= 4:
            sys.exit(f"node.py: the disk was left damaged: {check.stdout}{check.stderr}")
        if self.firmware:
            variables = "vars.fd" if how == "reboot-secure" else "vars.mok.fd"
            for name, to in ("code.fd", "code.fd"), (variables, "vars.fd"), ("esp.img", "esp.img"):
                debugfs(f"dump /var/lib/testbed/efi/{name} /tmp/{to}")
            return "by shim, with Secure Boot"
        initrd = how.removeprefix("reboot-")
        if initrd.startswith("table"):
            self.root = f"/dev/disk/by-path/srp-0x5eed000000000200-1-{2 * '5eed000000000100-'}lun-1"
            self.table = ["-acpitable", f"file={vm.table('sbft')}"]
        if how in ("reboot-srp", "reboot-dracut"):
            self.root = f"/dev/disk/by-path/srp-0x000000fffe000001-1-{2 * '000000fffe000001-'}lun-0"
            # dracut's network daemon configures the port's address; the script for initramfs-tools does it itself.
            address = "10.0.0.1:::255.255.255.0::dummy0:none"
            self.root += " ip=off crashkernel=512M" if how == "reboot-srp" else f" ip={address}"
        if initrd in ("srp", "dracut", "table", "table-dracut"):
            for name, to in ("vmlinuz.srp", "vmlinuz"), (f"initrd.{initrd}.img", "initrd.img"):
                debugfs(f"dump /boot/{name} /tmp/{to}")
            return f"with / on an SRP disk ({initrd})"
        release = None
        for link in "vmlinuz", "initrd.img":
            to = re.search(r'Fast link dest: "(.*)"', debugfs(f"stat /{link}"))
            if not to:
                sys.exit(f"node.py: the disk has no /{link} to boot")
            debugfs(f"dump /{to[1]} /tmp/{link}")
            release = to[1].partition("-")[2]
        return release


def main(words=None):
    p = vm.arguments("node.py", "Boots a disk until its plan is done.")
    p.add_argument("--plan", required=True, help="NAME:SECONDS,... as on the disk; `reboot...` ends a boot")
    a = p.parse_args(words)
    node = Node(a, "/kernel")
    boots, wanted = [("reboot", [])], []
    for name, seconds in (word.split(":") for word in a.plan.split(",")):
        if name.startswith("reboot"):
            boots.append((name, []))
        else:
            boots[-1][1].append((name, int(seconds)))
            wanted.append(name)
    if len(boots) > 1 and not boots[0][1]:
        del boots[0]
    # A step in two boots counts as two tests.
    verdicts, why, slow = [], "", False

    def result(name, verdict, text, seconds=0):
        verdicts.append(verdict)
        reason = "" if verdict == "ok" else text
        results.add(results.Result(f"node/{name}", verdict, seconds, reason), a.results)
        print(f"{verdict:4} node/{name}: {text}", flush=True)

    kvm = node.kvm()
    with open(a.console, "wb") as log:
        for how, steps in boots:
            release = node.load(how)
            print(f"boot:  Linux {release}{', KVM' if kvm else ''}", flush=True)
            current, reports, output, cpu, after = "boot", [], [], 0, None
            limit = BOOT_SECONDS + sum(s for _, s in steps)
            for word, text in node.watch(node.command(None, "", kvm), limit, log):
                if word == "test":
                    name, verdict, *seconds = text.split()
                    if verdict == "begin":
                        current, output, cpu = name, [], node.cpu()
                        continue
                    said = f"{seconds[0]} s, CPU {node.cpu() - cpu:.0f} s"
                    if reports and verdict == "ok":
                        verdict, said = "fail", f"kernel report: {reports[0]}"
                    result(name, verdict, said, int(seconds[0]))
                    if verdict != "ok":
                        for line in output[-100:]:
                            print("    | " + line)
                    current, output, reports = f"after {name}", [], []
                elif word == "node":
                    after = text
                    # Set until the crash kernel has written its dump and ended this boot.
                    node.to_crash = text == "crash"
                elif word == "ended":
                    why = text
                elif word == "report":
                    reports.append(text)
                    output.append(text)
                else:
                    output.append(text)
                    if a.verbose:
                        print(text, flush=True)
            slow = node.too_slow and not reports
            if reports or after is None or not why.endswith("without a word"):
                if not slow:
                    result(current, "fail", reports[0] if reports else why)
                    vm.tail(a.console)
                break
            if after == "end":
                break
    for name in wanted[len(verdicts) :]:
        result(name, "slow" if slow else "fail", f"machine too slow: {why}" if slow else "did not run")
    return 0 if "fail" not in verdicts and "ok" in verdicts else 1


if __name__ == "__main__":
    sys.exit(main())
