# SPDX-License-Identifier: GPL-2.0
import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

from lab import TOP

sys.path.insert(0, str(TOP / "userspace-tests/bench"))
import cores
import page
import wall

ADAPTER = {
    "kind": "adapter", "device": "vfab1", "port": "1", "cpus": [0, 1], "both_ends": True, "hca_type": "x",
    "board_id": "", "fw_ver": "7", "link_layer": "InfiniBand", "rate": "100 Gb/sec", "netdev": "", "mtu": "4096",
    "netdev_mtu": "",
}  # fmt: skip
MACHINE = {"kind": "machine", "kernel": "7.3", "cpu": "some CPU", "cpus": 2, "fio": "fio-3"}
DISK = {
    "version": "", "scheduler": "none", "hardware_queues": 2, "nr_requests": 62, "max_sectors_kb": 1, "max_segments": 2,
}  # fmt: skip
WOBBLE = (1.0, 1.01, 0.99, 1.005)


def peer(name):
    return {"kind": "peer", "name": name, "disk": "sda", "module": name, **DISK}


def run(rnd, name, point, iops):
    bins = {"1000": 9899, "2000": 100, "9000": 1}
    return {
        "kind": "run", "round": rnd, "peer": name, "point": point, "pattern": point.rpartition("-")[0], "iops": iops,
        "ios": 10000, "bins": bins, "busy": 3e9, "initiator": 1e9, "done": 1e6,
    }  # fmt: skip


class Page(unittest.TestCase):
    """Logs of four rounds: NVMe has twice our IOPS. `control` are the ratios of the rounds to ours."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))

    def page(self, control=WOBBLE, rounds=(1, 2, 3, 4), end=True):
        lines = [MACHINE, ADAPTER, peer("ours"), peer("control"), peer("nvme")]
        for rnd in rounds:
            # The machine changes its speed from round to round: the ratios do not.
            speed = 1000 * rnd
            for point in "4k-read-d1", "4k-read-d8":
                lines += [run(rnd, "nvme", point, 2 * speed * WOBBLE[rnd - 1]), run(rnd, "ours", point, speed)]
                lines.append(run(rnd, "control", point, speed * control[rnd - 1]))
        lines += [{"kind": "end", "rounds": 4, "refused": [], "apart": False}] if end else []
        (self.folder / "log.disk").write_bytes(b"".join(json.dumps(n).encode() + b"\n" for n in lines) + b"\0\0")
        words = ["page.py", "--about", "commit=abc", "--out", f"{self.folder}/out", f"vfab={self.folder}/log"]
        with mock.patch.object(sys, "argv", words), contextlib.redirect_stdout(io.StringIO()):
            with self.assertRaises(SystemExit) as e:
                page.main()
        text = (self.folder / "out.txt").read_text()
        rows = [n.split("\t") for n in (self.folder / "out.tsv").read_text().splitlines() if not n.startswith("#")]
        return e.exception.code, text, {(n[1], n[2]): dict(zip(rows[0], n)) for n in rows[1:]}

    def test_quiet(self):
        status, text, rows = self.page()
        self.assertEqual(status, 0)
        self.assertIn("quiet: ours against itself", text)
        self.assertNotIn("NOISY", text)
        self.assertIn("commit: abc", text)
        self.assertIn("InfiniBand 100 Gb/sec, MTU 4096; kernel 7.3; 2 CPUs", text)
        wanted = {(f"4k-read-{d}", p) for d in ("d1", "d8", "all") for p in ("ours", "control", "nvme")}
        self.assertEqual(set(rows), wanted - {("4k-read-all", "ours")})
        row = rows["4k-read-d8", "nvme"]
        self.assertAlmostEqual(float(row["ours/peer"]), 0.5, delta=0.002)
        self.assertTrue(0.49 < float(row["low"]) < float(row["ours/peer"]) < float(row["high"]) < 0.51, row)
        self.assertEqual((row["p50_us"], row["p99_us"], row["p99.99_us"]), ("1.0", "2.0", "2.0"))
        self.assertEqual((row["cpu_us"], row["own"], row["rounds"], row["noisy"]), ("3.00", "-", "4", ""))
        self.assertEqual(rows["4k-read-d1", "ours"]["iops"], "2500")

    def test_halves(self):
        line = run(1, "ours", "4k-read-d1-apart", 5)
        device = page.Device([])
        device.add(line, 0)
        self.assertAlmostEqual(device.figures("4k-read-d1-apart", "ours")[5], 1 / 3)

    def test_noisy(self):
        status, text, rows = self.page(control=(1.3, 0.8, 1.1, 0.9))
        self.assertEqual(status, page.NOISY)
        self.assertIn("TOO NOISY: in 3 of 3 lines", text)
        marked = [line for line in text.splitlines() if line.endswith("NOISY") and " nvme " in line]
        self.assertEqual(len(marked), 3)
        self.assertTrue(all("spans" in row["noisy"] for row in rows.values()), rows)
        self.assertIn("TOO NOISY", (self.folder / "out.tsv").read_text())

    def test_a_control_that_differs(self):
        status, text, _ = self.page(control=[1.1 * n for n in WOBBLE])
        self.assertEqual((status, "the control is 0.8" in text), (page.NOISY, True))

    def test_two_rounds(self):
        status, text, _ = self.page(rounds=(1, 2))
        self.assertEqual((status, "too few rounds" in text), (page.NOISY, True))

    def test_a_run_that_has_died(self):
        status, text, _ = self.page(end=False)
        self.assertEqual((status, "INCOMPLETE" in text), (1, True))

    def test_layers(self):
        lines = ["# commit: abc", "workload\tdevice\tinitiator\tlayer\tinsn"]
        rows = ("4k-read-qd16", "vfab"), ("4k-read-qd16", "siw"), ("512-read-qd16", "vfab")
        for workload, device in rows:
            for peer, n in ("c", 5), ("rust", 4):
                for layer in "target: all", "with all below: x":
                    lines.append(f"{workload}\t{device}\t{peer}\t{layer}\t{n}")
        (self.folder / "path.tsv").write_text("\n".join(lines) + "\n")
        found = list(page.layers(self.folder / "path.tsv", {"vfab": None}))
        self.assertEqual(found[1].split(), ["instructions,", "vfab", "4k-read-qd16", "c", "ours"])
        self.assertEqual(found[2].split(), ["target:", "all", "5", "4"])
        self.assertEqual((len(found), "commit: abc" in found[3]), (5, True))


class Points(unittest.TestCase):
    def test_names(self):
        found = [p.name for p in cores.points("*-d1,64k-read-d32,4k-*-d8-apart", True)]
        wanted = ["4k-read-d1", "4k-write-d1", "64k-read-d1", "64k-read-d32", "64k-write-d1", "4k-read-d8-apart"]
        self.assertEqual(found, [*wanted, "4k-write-d8-apart"])
        self.assertEqual(cores.points("4k-read-d8-apart", True)[0].pattern, "4k-read-apart")

    def test_no_point(self):
        for patterns, apart in (("8k-*", True), ("4k-read", True), ("*-apart", False)):
            with self.assertRaises(SystemExit) as e:
                cores.points(patterns, apart)
            self.assertIn(f"ONLY={patterns} matches no point: they are 4k-read-d1 to ", str(e.exception))

    def test_masks(self):
        self.assertEqual([cores.mask(n) for n in ({0}, {1, 3}, {33}, set())], ["1", "a", "2,0", "0"])

    def test_idle_ticks(self):
        text = "cpu  9 9 9 99 9 9\ncpu0 1 2 3 40 5 6 7\ncpu11 1 2 3 600 70 6 7\nintr 1 2 3 4 5\n"
        self.assertEqual(cores.idle(text), {0: 45, 11: 670})


class Wall(unittest.TestCase):
    """What the environment lacks is named."""

    def refused(self, words, **environment):
        with mock.patch.object(wall.os.path, "isdir", lambda path: path.endswith("/mlx5_0/ports/1")):
            with self.assertRaises(SystemExit) as e:
                wall.arguments(environment)
        self.assertIn(words, str(e.exception))

    def test_refusals(self):
        login = {"DEVICE": "mlx5_0/1", "LOGIN": "id_ext=1"}
        self.refused("wants DEVICE=", LOGIN="id_ext=1")
        self.refused("no RDMA port mlx5_0", DEVICE="mlx5_0", LOGIN="id_ext=1")
        self.refused("overwrites the target's LUN 0: say", **login)
        self.refused("LUN 0, the disk of RNBD: say OVERWRITE=1", **login, RNBD="sessname=a")
