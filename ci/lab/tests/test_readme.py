# SPDX-License-Identifier: GPL-2.0
"""README's command that makes a file system, on disks that must not lose their data. The node runs it on an empty
one."""

import re
import struct
import subprocess
import tempfile
import unittest

from lab import TOP

MIB = 1 << 20
SIZE = 40 * MIB


class MakesAFileSystem(unittest.TestCase):
    def setUp(self):
        self.disk = tempfile.NamedTemporaryFile()
        self.disk.truncate(SIZE)

    def tearDown(self):
        self.disk.close()

    def command(self, disk=None):
        (line,) = re.findall(r"^    (.*mkfs.*)$", (TOP / "README.md").read_text(), re.M)
        env = {"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "DISK": self.disk.name if disk is None else disk}
        return subprocess.run(["bash", "-c", line], env=env, capture_output=True).returncode

    def content(self):
        with open(self.disk.name, "rb") as f:
            return f.read()

    def stays(self):
        before = self.content()
        self.command()
        self.assertEqual(self.content() == before, True, "the disk is not what it was")

    def put(self, at, data):
        self.disk.seek(at)
        self.disk.write(data)
        self.disk.flush()

    def test_an_empty_disk(self):
        self.command()
        self.assertEqual(self.content()[1024 + 56 : 1024 + 58], b"\x53\xef")

    def test_data_without_a_signature(self):
        for at in 0, MIB, 16 * MIB - 1:
            with self.subTest(at=at):
                self.put(at, b"\1")
                self.stays()
                self.put(at, b"\0")

    def test_a_file_system(self):
        subprocess.run(["mkfs.ext4", "-q", self.disk.name], check=True)
        self.stays()

    def test_a_signature_at_the_end(self):
        # The superblock of an array, metadata version 1.0: magic number, version and its own sector.
        sector = SIZE // 512 - 16
        self.put(sector * 512, struct.pack("<LL", 0xA92B4EFC, 1).ljust(144, b"\0") + struct.pack("<Q", sector))
        self.stays()

    def test_no_disk_and_two(self):
        name = self.disk.name
        for disk in "", f"{name}x", f"{name} {name}", f"{name}\n{name}":
            with self.subTest(disk=disk):
                before = self.content()
                self.assertNotEqual(self.command(disk), 0)
                self.assertEqual(self.content() == before, True, "the disk is not what it was")
