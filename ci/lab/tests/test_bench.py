# SPDX-License-Identifier: GPL-2.0
import contextlib
import io
import os
import pathlib
import re
import tempfile
import types
import unittest
from unittest import mock

from lab import bench

TABLE = "# name\tcpus\trw\n4k-read\t1\tr\n4k-two\t4\tr\n\n1m-read\t1\tr\n512-w\t16\tw\n"
WORDS = "/log", "/bench", "--short", "peers", "scale", "vfab=", "rxe="
DIED = "x ib_poll_handler+0x1\n"


class Tables(unittest.TestCase):
    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        (self.folder / "t.tsv").write_text(TABLE)
        (self.folder / "bounds.tsv").write_text("# w\tagainst\nb\tc\nb\town\na\tc\n")
        self.enterContext(mock.patch.object(bench, "BENCH", self.folder))

    def test_cpus(self):
        self.assertEqual(bench.cpus_of("t.tsv", ""), ["1", "16", "4"])
        self.assertEqual(bench.cpus_of("t.tsv", "4k-two,4k-read"), ["1", "4"])
        self.assertEqual(bench.cpus_of("t.tsv", "4k-two-x"), [])

    def test_names(self):
        self.assertEqual(bench.names("t.tsv", bench.COMPARED), "4k-read,4k-two,1m-read")
        self.assertEqual(bench.names("t.tsv", bench.SMALL), "4k-read,4k-two")
        self.assertEqual(bench.judged("bounds.tsv"), "a,b")

    def test_the_known_bug_of_the_c_driver(self):
        console = self.folder / "log"
        self.assertFalse(bench.died_with_c(console))
        for text, known in (
            (DIED + "Modules linked in: a ib_srp b\n", True),
            (DIED + "Modules linked in: a ib_srp(-)\n", True),
            (DIED + "Modules linked in: a ib_srp(O)\n", False),
            (DIED + "Modules linked in: a ib_srpt\n", False),
            (DIED, False),
            ("Modules linked in: a ib_srp b\n", False),
            (DIED + "Modules linked in: ib_srp b\nModules linked in: a ib_srp(O)\n", False),
        ):
            console.write_text(text)
            self.assertEqual(bench.died_with_c(console), known, text)


class Marks(unittest.TestCase):
    def test_the_plugins_know_the_machine_code(self):
        plugin = re.sub(r"'(\w)'", lambda m: hex(ord(m[1])), (bench.BENCH / "plugin.h").read_text())
        known = {re.sub(r"0x|, |}|{| ", "", found) for found in re.findall(r"\{ (0x[^{}]*) \}", plugin)}
        found = re.findall(r'"(\w+) (?:c3|c0035fd6)"', (bench.BENCH / "measure.py").read_text())
        self.assertEqual((len(found), len(known)), (4, 3))
        for code in found:
            self.assertIn(code[:14] if len(code) == 16 else code, known)


class Guests(unittest.TestCase):
    """All scripts and programs are functions of this class. `statuses` are those of guests and tables by their name."""

    def setUp(self):
        self.top = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.ran, self.statuses, self.again = [], {}, ""
        (self.top / "iscsi").mkdir()
        for name, value in (
            ("OUT", self.top / "out"),
            ("built", lambda: self.top / "built"),
            ("script", lambda name, *_: str(self.top / name.removesuffix(".sh"))),
            ("build", lambda *words: self.ran.append(" ".join(map(str, words)))),
            ("subprocess", types.SimpleNamespace(run=self.run_words, PIPE=-1)),
        ):
            self.enterContext(mock.patch.object(bench, name, value))
        self.enterContext(mock.patch.object(bench.boot, "command", lambda *words: ["guest", *map(str, words)]))

    def run_words(self, words, **_):
        words = [str(w) for w in words]
        name, status = "", 0
        if words[0] == "guest":
            name = words[words.index("--log") + 1]
            self.kernel, self.cpu = words[1], words[words.index("--qemu=-cpu") + 1]
            with open(self.top / f"built/log/{name}.log", "w") as f:
                f.write(DIED + "Modules linked in: ib_srp\n" if name.endswith("-4") else "")
            self.ran.append(f"{name} {' '.join(words[words.index('--') + 2 :])}")
            self.cpu, self.append = words[words.index("--qemu=-cpu") + 1], words[words.index("--append") + 1]
            self.given = {pathlib.Path(word.partition(":")[0]).name for word in words}
        elif words[-1] != "--version" and "git" not in words:
            name = next((w for w in words if w.startswith("/bench/")), words[0]).rpartition("/")[2]
            self.ran.append(" ".join(w for w in words if w.startswith(WORDS)))
            if "--again" in words:
                (self.top / "out/again").write_text(self.again)
        found = self.statuses.get(name, [])
        return types.SimpleNamespace(returncode=found.pop(0) if found else status, stdout="1\n2\n")

    def bench(self, **environment):
        results = self.top / "results"
        with mock.patch.dict(os.environ, {"RESULTS": str(results), **environment}):
            names = {"ONLY", "ROUNDS", "SHORT", "MODE", "MTU", "DEVICES", "MINUTES", "CPUS", "INITIATORS", "KERNEL"}
            for name in names - environment.keys():
                os.environ.pop(name, None)
            with contextlib.redirect_stderr(io.StringIO()):
                return bench.main()

    def guests(self):
        return [line for line in self.ran if line.startswith("bench-")]

    def test_a_guest_for_each_number_of_cpus(self):
        self.assertEqual(self.bench(), 0)
        wanted = [f"bench-{n} /srp/guest.sh rxe {n} 5  measure" for n in (1, 4)]
        self.assertEqual(self.guests(), wanted)
        self.assertIn("/log/bench-1 /log/bench-4", self.ran[-2])

    def test_another_kernel(self):
        self.assertEqual((self.bench(KERNEL="arm64"), self.kernel, self.cpu), (0, "arm64", "--qemu=neoverse-n1"))
        self.assertEqual(self.guests(), ["bench-1-arm64 /srp/guest.sh rxe 1 5  measure"])
        self.assertTrue(self.ran[0].startswith("module.sh arm64 ") and self.ran[0].endswith("/built/arm64"))
        self.assertIn("/log/bench-1-arm64", self.ran[-1])
        self.assertIn("/bench/bounds-arm64.tsv", self.ran[-1])
        self.assertEqual(self.bench(KERNEL="arm64-16k", SHORT="1"), 0)
        self.assertEqual(self.guests()[-1].split()[5], "4k-read-qd16,4k-write-qd16")
        with self.assertRaises(SystemExit):
            self.bench(KERNEL="rt")
        # The other modes know the functions of one architecture.
        self.assertEqual(self.bench(MODE="peers", KERNEL="arm64", ONLY="4k-read-qd1"), 0)
        self.assertEqual(self.kernel, "stock")

    def test_what_exceeds_its_bound_is_measured_again(self):
        self.again, self.statuses["report.py"] = "4k-read-qd1\n", [1, 0]
        self.assertEqual(self.bench(SHORT="1", ONLY="4k-read-qd1"), 0)
        wanted = [
            "bench-1 /srp/guest.sh rxe 1 1 4k-read-qd1 measure --share 0.5",
            "bench-1-again /srp/guest.sh rxe 1 3 4k-read-qd1 measure",
        ]
        self.assertEqual(self.guests(), wanted)
        self.assertTrue(self.ran[-1].endswith("--short /log/bench-1 /log/bench-1-again"), self.ran[-1])

    def test_only_the_known_bug_is_tried_again(self):
        self.statuses = {"bench-1": [3]}
        with self.assertRaises(SystemExit) as e:
            self.bench()
        self.assertEqual((e.exception.code, len(self.guests())), (3, 1))
        self.ran.clear()
        self.statuses = {"bench-4": [3, 0]}
        self.assertEqual((self.bench(), len(self.guests())), (0, 3))

    def test_a_dead_guest_does_not_end_the_path(self):
        self.statuses = {"bench-path-1-vfab": [2]}
        self.assertEqual(self.bench(MODE="path", ONLY="4k-read-qd1"), 2)
        devices = ("vfab", "vfab"), ("vfab+fsrm", "vfab"), ("rxe", "rxe")
        wanted = [f"bench-path-1-{d} /srp/guest.sh {kind} 1 1 4k-read-qd1 path" for d, kind in devices]
        self.assertEqual(self.guests(), wanted)
        self.assertIn("/log/bench-path-1-vfab+fsrm /log/bench-path-1-rxe", self.ran[-1])

    def test_what_a_device_may_have_in_addition(self):
        self.assertEqual(self.bench(MODE="path", ONLY="4k-read-qd1", DEVICES="vfab+fsrm+direct"), 0)
        self.assertEqual(self.guests(), ["bench-path-1-vfab+fsrm+direct /srp/guest.sh vfab 1 1 4k-read-qd1 path"])
        self.assertIn("erms=on,fsrm=on", self.cpu)
        self.assertEqual(self.append, "COMPLETE_TYPE=1")
        self.assertIn("ib_srpt.ko", self.given)
        words = {"ONLY": "4k-read-qd1", "MTU": "4200", "INITIATORS": "c,nvme"}
        self.assertEqual(self.bench(MODE="path", DEVICES="vfab+noinit rxe", **words), 0)
        self.assertIn("erms=off,fsrm=off", self.cpu)
        self.assertEqual(self.append, "MTU=4200 INITIATORS=c,nvme")
        self.assertNotIn("ib_srpt.ko", self.given)
        with self.assertRaises(SystemExit) as e:
            self.bench(MODE="path", DEVICES="vfab+other")
        self.assertIn("DEVICES has other, which is not one of direct", str(e.exception))

    def test_moderation(self):
        self.assertEqual(self.bench(MODE="moderation", ONLY="4k-read-qd1-none-polled"), 0)
        words = "/srp/guest.sh vfab 1 1 4k-read-qd1-none-polled path"
        devices = "vfab+mlx5+late+still", "vfab+mlx5+late"
        self.assertEqual(self.guests(), [f"bench-moderation-1-{d} {words}" for d in devices])
        self.assertEqual(self.append, "preempt=full PERSONALITY=mlx5 INTERRUPT_NS=1000")

    def test_curves(self):
        with mock.patch.dict(os.environ):
            self.assertEqual(self.bench(MODE="curves", ONLY="luns,cpus", DEVICES="vfab"), 0)
        found = [line.split() for line in self.guests()]
        cpus = [f"bench-curves-cpus-{n}-vfab" for n in ("1", "16", "2", "4", "8")]
        self.assertEqual([words[0] for words in found], ["bench-curves-luns-1-vfab", *cpus])
        wanted = [f"luns-{d}-{n}" for n in (1, 8, 64) for d in ("read", "write")]
        self.assertEqual((found[0][5], found[0][6]), (",".join(wanted), "curves"))
        self.assertEqual(self.append, "INITIATORS=rust,c,nvme")
        self.assertLessEqual({"curves.py", "path.py", "peers.py", "measure.py"}, self.given)
        self.assertIn("/log/bench-curves-luns-1-vfab /log/bench-curves-cpus-1-vfab", self.ran[-1])
        with self.assertRaises(SystemExit) as e:
            self.bench(MODE="curves", ONLY="luns,dept")
        self.assertIn("ONLY has dept, which is not one of depth cpus luns sessions", str(e.exception))

    def test_growth(self):
        self.assertEqual(self.bench(MODE="scale", ONLY="channels,luns"), 0)
        wanted = [
            "bench-scale-rxe-1 /srp/guest.sh rxe 1 3 luns scale",
            "bench-scale-rxe-16 /srp/guest.sh rxe 16 3 channels scale",
        ]
        self.assertEqual(self.guests(), wanted)
        with self.assertRaises(SystemExit) as e:
            self.bench(MODE="scale", ONLY="lun")
        self.assertIn("no curve: sessions luns", str(e.exception))

    def test_cores(self):
        self.statuses = {"page.py": [3]}
        self.assertEqual(self.bench(MODE="cores", SHORT="1", CPUS="1"), 3)
        words = "1 0 4k-read-d8,64k-write-d8 cores --minutes 1.20 --seconds 0.3 --both-ends"
        self.assertEqual(self.guests(), [f"bench-cores-{d} /srp/guest.sh {d} {words}" for d in ("vfab", "rxe")])
        self.assertIn("vfab=/log/bench-cores-vfab rxe=/log/bench-cores-rxe", self.ran[-1])
        # The guest has all that the program imports.
        for name in [name for name in self.given if (bench.BENCH / name).exists() and name.endswith(".py")]:
            imports = {f"{n}.py" for n in re.findall(r"^import (\w+)$", (bench.BENCH / name).read_text(), re.M)}
            self.assertLessEqual({n for n in imports if (bench.BENCH / n).exists()}, self.given, name)

    def test_cores_go_on_in_another_guest(self):
        with mock.patch.object(bench, "died_with_c", lambda log: not log.stem.endswith("again")):
            self.statuses = {"bench-cores-rxe": [2], "bench-cores-rxe-again": [5]}
            self.assertEqual(self.bench(MODE="cores", DEVICES="rxe", CPUS="4", MINUTES="3", ONLY="4k-*"), 5)
        words = "/srp/guest.sh rxe 4 0 4k-* cores --minutes 3.00 --seconds 0.6 --both-ends"
        self.assertEqual(self.guests(), [f"bench-cores-rxe{again} {words}" for again in ("", "-again")])
        self.assertIn("rxe=/log/bench-cores-rxe,/log/bench-cores-rxe-again", self.ran[-1])

    def test_peers(self):
        self.assertEqual(self.bench(MODE="peers", ONLY="4k-read-qd1"), 0)
        self.assertEqual(self.guests(), ["bench-peers /srp/guest.sh rxe 1 5 4k-read-qd1 peers"])
        self.statuses = {"plot.sh": [1]}
        self.assertEqual(self.bench(MODE="peers"), 1)

    def test_the_status_of_the_table(self):
        self.statuses = {"report.py": [4]}
        self.assertEqual(self.bench(), 4)
