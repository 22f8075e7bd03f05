# SPDX-License-Identifier: GPL-2.0
import collections
import io
import pathlib
import sys
import tempfile
import types
import unittest
from unittest import mock

from lab import TOP

sys.path.insert(0, str(TOP / "userspace-tests/bench"))
import curves
import measure
import paths
import peers

TABLE = measure.table(TOP / "userspace-tests/bench/curves-workloads.tsv")


class Table(unittest.TestCase):
    def test_names(self):
        for w in TABLE:
            curve, direction, n = paths.POINT.fullmatch(w["name"]).groups()
            self.assertEqual((w["rw"], w["bs"]), (f"rand{direction}", "4k"))
            column = {"depth": "qd", "cpus": "cpus", "luns": "luns", "sessions": "luns"}[curve]
            self.assertEqual(w[column], n, w)
            # The disks of a point are those of its sessions.
            units = sum(many for *_, many in curves.many(w["options"])) or 1
            self.assertEqual(w["luns"], str(units), w)
            if curve == "cpus":
                self.assertEqual((w["jobs"], w["options"]), (n, f"ch_count={n}"))

    def test_a_point_in_both_directions(self):
        names = [w["name"].split("-") for w in TABLE]
        points = collections.Counter((curve, n) for curve, _, n in names)
        self.assertEqual(set(points.values()), {2})


class Run(curves.Curves):
    """Everything below curves.py only notes what it is called with."""

    def __init__(self):
        self.did, self.args = [], types.SimpleNamespace(add_target="/sys/class/infiniband_srp/srp-vfab1-1/add_target")


class Sessions(unittest.TestCase):
    def test_many(self):
        self.assertEqual(curves.many("ch_count=4"), [])
        self.assertEqual(curves.many(",units=8"), [(0x10008, "units-8", 8)])
        self.assertEqual(curves.many("sessions=2"), [(0x20001, "session-1", 1), (0x20002, "session-2", 1)])

    def test_login(self):
        run = Run()

        def login_for(self, options, luns):
            self.host = f"host{len(run.did)}"
            self.disks = [f"{self.host}-{n}" for n in range(luns)]
            run.did.append(options)

        logout = mock.Mock()
        with mock.patch.multiple(measure.Bench, login_for=login_for, logout=logout):
            run.login_for(",sessions=2", 2)
            self.assertEqual(run.disks, ["host0-0", "host1-0"])
            run.logout(run.host)
            self.assertEqual([call.args for call in logout.call_args_list], [("host0",), ("host1",)])
            run.login_for(",units=3", 3)
            self.assertEqual(run.disks, ["host2-0", "host2-1", "host2-2"])
            run.login_for(",ch_count=2", 1)
        found = [",initiator_ext=20001", ",initiator_ext=20002", ",initiator_ext=10003", ",ch_count=2"]
        self.assertEqual(run.did, found)

    def test_peers(self):
        run, nvme = Run(), object()
        those = [{"options": o, "luns": n} for o, n in (("-", "1"), ("sessions=2", "2"), ("-", "1"), ("units=8", "8"))]
        with (
            mock.patch.object(run, "attach", lambda name, peer, n: run.did.append((peer, n))),
            mock.patch.object(run, "run", lambda rnd, name, w: run.did.append(w)),
            mock.patch.object(run, "detach", lambda *_: None),
        ):
            run.peer("nvme", nvme, 1, those)
            first, a, b, (sessions, n), c, (units, eight), d = run.did
            self.assertEqual((first, a, b, c, d), ((nvme, 1), those[0], those[2], those[1], those[3]))
            self.assertEqual(([one.nqn for one in sessions.all], n), (["session-1", "session-2"], 2))
            self.assertEqual(([one.nqn for one in units.all], eight), (["units-8"], 8))
            run.did.clear()
            run.peer("rnbd", nvme, 1, those)
            self.assertEqual(run.did, [(nvme, 1), those[0], those[2]])

    def test_disks_of_several(self):
        found = [{"a"}, {"a", "b"}, {"a", "b", "c"}, {"a", "b", "c", "d"}]
        peer = mock.Mock(has=lambda disk: disk in "bc")
        run = Run()
        with (
            mock.patch.object(peers, "disks", lambda: found.pop(0)),
            mock.patch.object(peers, "opens", lambda disk: True),
            mock.patch.object(measure.time, "sleep", lambda _: None),
        ):
            run.attach("nvme", peer, 2)
            self.assertEqual(run.disks, ["b", "c"])
            found[:] = [{"a"}, {"a", "b", "c"}]
            with self.assertRaises(SystemExit) as e:
                run.attach("nvme", peer)
            self.assertIn("b, c: export 1 of them only", str(e.exception))
            found[:] = [{"a", "b"}, {"a"}]
            run.detach("nvme", peer)
            self.assertEqual((peer.disconnect.call_args.args, found), (("b",), []))

    def test_no_scheduler(self):
        run, wrote = Run(), []
        run.disks = ["sda", "sdb"]
        with (
            mock.patch.object(measure, "write", lambda *those: wrote.append(those)),
            mock.patch.object(peers.Peers, "run", lambda *those: wrote.append(those[1:])),
        ):
            run.run(1, "c", {})
        wanted = [(f"/sys/block/{disk}/queue/scheduler", "none") for disk in run.disks]
        self.assertEqual(wrote, [*wanted, (1, "c", {})])

    def test_done(self):
        stats = "1 0 sda 1 2 3 4 5 6 7 8\n1 1 sda1 100 0 100\n1 2 sdb 10 0 30 0 50 0 70 0\n"
        with mock.patch.object(measure, "read", {"/proc/diskstats": stats}.get):
            self.assertEqual(Run().done(["sda", "sdb"]), [1 + 5 + 10 + 50, 3 + 7 + 30 + 70])
            self.assertEqual(Run().done(["sda"]), [6, 10])

    def test_initiator_ports(self):
        target = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (target / "core/disk0").mkdir(parents=True)
        (target / "core/disk0/udev_path").touch()
        (target / "lun/lun_0/statistics").mkdir(parents=True)
        (target / "lun/lun_0/disk0").symlink_to(target / "core/disk0")
        (target / "acls").mkdir()
        measure.grant(target, [(0x10002, 2), (0x20001, 1)], "fe80" + "0" * 12 + "0123456789abcdef")
        self.assertEqual((target / "lun/lun_1/unit").resolve(), (target / "core/disk0").resolve())
        found = {str(path.relative_to(target)) for path in target.glob("acls/*/*")}
        a, b = (f"acls/0x0000000000{n}0123456789abcdef" for n in ("010002", "020001"))
        self.assertEqual(found, {f"{a}/lun_0", f"{a}/lun_1", f"{b}/lun_0"})
        self.assertEqual((target / a / "lun_1/unit").resolve(), (target / "lun/lun_1").resolve())

    def test_one_job_has_all_disks(self):
        w = {"jobs": "1", "rw": "randread", "bs": "4k", "qd": "16", "cpus": "1", "name": "luns-read-3"}
        with mock.patch.object(measure.subprocess, "Popen"):
            run = Run()
            run.polls = False
            _, text = run.fio(w, ["a", "b", "c"], {})
            self.assertIn("filename=/dev/a:/dev/b:/dev/c", text)
            self.assertIn("ioengine=io_uring", run.fio(w | {"qd": "1"}, ["a"], {})[1])
            _, text = run.fio(w | {"jobs": "4"}, ["a", "b", "c"], {})
            self.assertEqual([line[14:] for line in text.splitlines() if "/dev/" in line], list("abca"))


ROWS = (
    ("depth-read-16", "vfab", "rust", "driver", 600.4),
    ("depth-read-16", "vfab", "rust", "initiator", 1100),
    ("depth-read-16", "vfab", "c", "driver", 1500),
    ("depth-read-16", "vfab", "c", "copy", 0.25),
    ("depth-read-16", "vfab", "c", "initiator", 1000),
    ("depth-read-16", "vfab", "c", "target: all", 7),
    ("depth-read-16", "vfab", "c", "with all below: x", 7),
    ("depth-read-2", "vfab", "rust", "initiator", 900),
    ("depth-read-2", "vfab", "nvme", "initiator", 1000),
    ("4k-read-qd2", "vfab", "rust", "initiator", 900),
)


class Lines(unittest.TestCase):
    def test_cpus_of_all_guests(self):
        def read(runs, name, rules):
            runs.machine["cpus"] = {"/log/a": 16, "/log/b": 2}[name]
            if name == "/log/b":
                raise SystemExit("b.disk is not complete")

        with tempfile.TemporaryDirectory() as folder, mock.patch.object(paths.Runs, "read", read):
            words = ["paths.py", "--curves", "--out", f"{folder}/t", "/log/a", "/log/b"]
            with mock.patch.object(sys, "argv", words), mock.patch.object(sys, "stderr", io.StringIO()):
                self.assertEqual(paths.main(), 1)
            self.assertIn("# cpus: 2, 16\n", pathlib.Path(f"{folder}/t").read_text())

    def test_requests_that_end_beside_the_counters(self):
        runs = paths.Runs()
        tree = types.SimpleNamespace(parts={("initiator", "driver", "f"): 4800}, user=0, subtrees={}, called={})
        tree.shared = {("initiator", paths.LINES): 40, ("target", paths.LINES): 7}
        line = {"ios": 64, "requests": 128, "latency": 2000, "iops": 8, "workload": "depth-read-1"}
        for variant, calls in (("c", {"scsi_done": 160}), ("nvme", {"nvme_rdma_complete_rq": 192}), ("rnbd", {})):
            tree.calls = calls

            def figures(name, machine, *_, variant=variant):
                machine["cpus"] = 1
                yield "run", line | {"variant": variant}, tree

            with mock.patch.object(paths.counts, "figures", figures):
                runs.read("/log/bench-curves-depth-1-vfab", None)
        found = {(row[2], row[3]): row[4] for row in runs.rows()}
        drivers = [found[variant, "driver"] for variant in ("c", "nvme", "rnbd")]
        self.assertEqual(drivers, [60, 50, 75])
        self.assertEqual((found["c", paths.LINES], found["c", "IOPS"], found["c", "latency in us"]), (0.5, 8, 2))

    def test_the_table(self):
        out = io.StringIO()
        paths.write_points(out, paths.points(ROWS))
        found = [line.split("\t") for line in out.getvalue().splitlines()]
        self.assertEqual(found[0], ["curve", "n", "direction", "device", "figure", "rust", "nvme", "c"])
        point = ["depth", "16", "read", "vfab"]
        self.assertEqual(found[1], ["depth", "2", "read", "vfab", "initiator", "900", "1000", ""])
        self.assertIn([*point, "initiator", "1100", "", "1000"], found)
        self.assertIn([*point, "copy", "0", "", "0.25"], found)
        self.assertEqual({line[4] for line in found[1:]}, {"initiator", "driver", "copy"})

    def test_ratios(self):
        found = [" ".join(line.split()) for line in paths.ratios(paths.points(ROWS))]
        first = "depth read vfab: initiator, ours / nvme 2: 0.90"
        self.assertEqual(found, [first, "depth read vfab: initiator, ours / c 16: 1.10"])
