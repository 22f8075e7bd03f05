# SPDX-License-Identifier: GPL-2.0
import contextlib
import io
import os
import pathlib
import tempfile
import unittest
from unittest import mock

from lab import results, steps


class Plans(unittest.TestCase):
    def chosen(self, names, long=False, previous=True):
        plan = steps.chosen(steps.whole(long, previous), names.split())
        return [" ".join(name for name, _ in part) for part in (plan.ahead, plan.instead, plan.booted)]

    def test_the_sets(self):
        fast, long = steps.whole(False, False), steps.whole(True, True)
        self.assertEqual(fast.instead, [])
        self.assertTrue({name for name, _ in fast.steps()} < {name for name, _ in long.steps()})
        self.assertTrue(long.has("upgrade_kernel"))
        self.assertFalse(steps.whole(True, False).has("upgrade_kernel"))
        for plan in fast, long:
            self.assertFalse(any(name.startswith("reboot") for name, _ in plan.steps()))
            self.assertEqual(plan, steps.chosen(plan, [name for name, _ in plan.steps()]))

    def test_debians_own_kernel(self):
        plan = steps.own()
        self.assertEqual(plan, steps.chosen(plan, [name for name, _ in plan.steps()]))
        self.assertEqual(steps.chosen(plan, ["login"]), steps.Plan([("packages", 1800)], [], [("login", 300)]))
        with self.assertRaises(steps.Refused):
            steps.chosen(plan, ["kernel"])

    def test_arm64(self):
        plan, own = steps.on_arm64(), steps.own()
        self.assertEqual([name for name, _ in plan.ahead], ["kernel", "packages"])
        self.assertEqual((plan.instead, plan.booted), ([], own.booted))
        self.assertEqual(steps.chosen(plan, ["login"]), steps.Plan(plan.ahead, [], [("login", 300)]))

    def test_each_step_exists(self):
        functions = "".join((steps.TESTS / "node" / name).read_text() for name in ("step", "root.sh"))
        plans = [*steps.whole(True, True).steps(), *steps.on_arm64().steps()]
        for name in {*steps.NEEDS, *(name for name, _ in plans)}:
            self.assertIn(f"\n{name}() ", functions)

    def test_what_a_step_needs(self):
        self.assertEqual(self.chosen("login"), ["kernel packages", "", "login"])
        self.assertEqual(self.chosen("paths"), ["kernel packages multipath", "", "paths"])
        self.assertEqual(self.chosen("back"), ["kernel packages", "", "at_boot reboot back"])
        booted = "at_boot reboot back reboot-srp crash reboot-dump dump"
        self.assertEqual(self.chosen("dump back", True, False), ["kernel packages root_image dump_image", "", booted])
        self.assertEqual(self.chosen("from_source", True), ["kernel packages", "from_source", ""])
        table = ["kernel packages table_images", "", "reboot-table root_by_table reboot-table-dracut table_by_dracut"]
        self.assertEqual(self.chosen("table_by_dracut", True), table)

    def test_boots_without_a_step(self):
        self.assertEqual(self.chosen("enrolled", True), ["kernel packages firmware", "", "reboot-mok enrolled"])
        self.assertEqual(self.chosen("c_driver", True)[2], "at_boot reboot remove c_driver")

    def test_what_is_not_there_is_refused(self):
        for name, hint in ("tests", "without LONG=1"), ("nothing", "there are kernel packages"), ("reboot", ""):
            with self.assertRaises(steps.Refused) as e:
                self.chosen(name)
            self.assertIn(f"no step '{name}'", str(e.exception))
            self.assertIn(hint, str(e.exception))


class Chroot(unittest.TestCase):
    """Steps in a chroot, which are shell commands here."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        self.enterContext(mock.patch.dict(os.environ, RESULTS=f"{self.folder}/results"))
        self.enterContext(mock.patch.object(steps, "built", lambda: self.folder))
        (self.folder / "log").mkdir()
        self.out = self.enterContext(contextlib.redirect_stdout(io.StringIO()))
        self.node = steps.Node(steps.Plan([("a", 9), ("b", 9)], [("c", 9)], [("d", 9), ("reboot", 0), ("e", 9)]))

    def natively(self, log, names, **commands):
        """Performs steps, some of which are these commands."""

        def in_root(tree, binds, *words):
            self.assertEqual((tree, words[1][:23]), ("tree", "PATH=/testbed/root-bin:"))
            self.assertEqual(words[-7:-1], ("timeout", "-k", "20", 9, "bash", "/testbed/step"))
            return ["bash", "-c", commands.get(words[-1], f"echo this is {words[-1]}")]

        with mock.patch.object(steps, "in_root", in_root):
            return self.node.natively("tree", log, [(name, 9) for name in names])

    def results(self):
        return [(r.name.removeprefix("node/"), r.result) for r in results.read(self.folder / "results")]

    def test_good(self):
        self.assertTrue(self.natively("one", "ab"))
        self.assertTrue(self.natively("two", "c"))
        self.assertEqual(self.results(), [("a", "ok"), ("b", "ok"), ("c", "ok")])
        self.assertEqual((self.folder / "log/one.log").read_text(), "==> a\nthis is a\n==> b\nthis is b\n")
        self.assertNotIn("this is", self.out.getvalue())

    def test_those_after_a_failure_do_not_run(self):
        self.assertFalse(self.natively("one", "ab", a="echo why; exit 3"))
        failed = [(name, "fail") for name in "abcde"]
        self.assertEqual(self.results(), failed)
        self.assertIn("    | why\n", self.out.getvalue())
        self.assertNotIn("this is b", self.out.getvalue())

    def test_a_failure_in_the_copy(self):
        self.assertTrue(self.natively("one", "ab"))
        self.assertFalse(self.natively("two", "c", c="exit 1"))
        self.assertEqual(self.results(), [("a", "ok"), ("b", "ok"), ("c", "fail"), ("d", "fail"), ("e", "fail")])

    def boot(self, *lines, status=0, on="stock"):
        record = self.folder / "log/node.results"
        text = "".join(f'{{"name": "node/{name}", "result": "{verdict}"}}\n' for name, verdict in lines)

        def in_lab(module, kernel, binds, *words):
            self.assertEqual((module, kernel, words[-1]), ("node", on, "d:9,reboot:0,e:9"))
            return ["bash", "-c", f"printf %s '{text}' >>{record}; exit {status}"]

        record.write_text('{"name": "node/old", "result": "fail"}\n')
        self.node.kernel = on
        with mock.patch.object(steps.boot, "in_lab", in_lab):
            return self.node.boot(), self.results()

    def test_the_guest(self):
        self.assertEqual(self.boot(("d", "ok"), ("e", "ok")), (0, [("d", "ok"), ("e", "ok")]))

    def test_a_guest_of_arm64(self):
        self.assertEqual(self.boot(("d", "ok"), on="arm64"), (0, [("d", "ok")]))

    def test_a_guest_that_fails(self):
        self.assertEqual(self.boot(("d", "fail"), status=1), (1, [("d", "fail")]))

    def test_a_guest_that_does_not_run(self):
        self.assertEqual(self.boot(), (1, []))


class Files(unittest.TestCase):
    """The disk's tree, in a folder."""

    def setUp(self):
        self.folder = pathlib.Path(self.enterContext(tempfile.TemporaryDirectory()))
        for name in "WORK", "TESTBED":
            path = self.folder if name == "WORK" else self.folder / "testbed"
            self.enterContext(mock.patch.object(steps, name, path))
        self.tree = self.folder / "tree"
        (self.tree / "etc/initramfs-tools").mkdir(parents=True)
        (self.tree / "etc/initramfs-tools/modules").write_text("# first\n")
        (self.tree / "var/lib/testbed").mkdir(parents=True)

    def test_the_tree(self):
        steps.put_testbed(self.tree)
        modules = (self.tree / "etc/initramfs-tools/modules").read_text()
        self.assertEqual(modules, "# first\nvirtio_pci\nvirtio_blk\next4\n")
        wants = self.tree / "etc/systemd/system/multi-user.target.wants/testbed.service"
        self.assertTrue((self.tree / os.readlink(wants).lstrip("/")).exists())
        self.assertEqual((self.tree / "etc/hostname").read_text(), "node\n")

    def disks(self, *plan):
        (self.folder / "old.ext4").touch()
        commands = []
        with mock.patch.object(steps, "must", lambda *words: commands.append(words)):
            with mock.patch.object(steps, "script", lambda name: "/root"):
                steps.make_disks(self.tree, list(plan))
        self.assertFalse((self.folder / "old.ext4").exists())
        self.assertEqual([words[-2] for words in commands], ["/disk/node.ext4", "/disk/testbed.ext4"])
        return (self.tree / "var/lib/testbed/plan").read_text()

    def test_the_plan_of_the_disk(self):
        self.assertEqual(self.disks(("a", 3), ("reboot", 0), ("b", 4)), "a 3\nreboot 0\nb 4\n")
        self.assertEqual(self.disks(("reboot-mok", 0), ("b", 4)), "b 4\n")

    def test_a_command_that_fails_ends_it(self):
        with self.assertRaises(SystemExit) as e:
            steps.must("bash", "-c", "exit 3")
        self.assertIn("status 3", str(e.exception))

    def test_archive(self):
        testbed, tree = self.folder / "testbed", self.tree
        testbed.mkdir()
        (testbed / "ib-srp-rs-dkms_1_all.deb").touch()
        (self.folder / "made/pool").mkdir(parents=True)
        (self.folder / "made/pool/linux.deb").write_text("package")
        (self.folder / "made/multipath.deb").touch()
        (tree / "etc/apt").mkdir()
        (tree / "etc/apt/sources.list").write_text("# first\ndeb http://mirror trixie main\n")
        published, built = [], []
        mocks = {
            "script": lambda *words: str(self.folder / "made"),
            "build": lambda *words: built.append(words),
            "must": lambda *words: published.append(words[-2:]) if words[0] == "root" else must(*words),
            "in_root": lambda root, binds, *words: ["root", *words],
        }
        must = steps.must
        for name, value in mocks.items():
            self.enterContext(mock.patch.object(steps, name, value))
        self.enterContext(mock.patch.object(steps.subprocess, "check_output", lambda *_, **__: "1.2\n"))
        steps.put_archive(tree, [["7.3", "r", "7.3.4-1~bpo+1"], ["7.2", "s", "7.2.1"]], True, True)
        self.assertEqual(published, [("day1", "\\nVersion: 7[.]3[.]4-1[~]bpo[+]1"), ("day2", "")])
        self.assertEqual(built, [("deb.sh", "1.2+testbed", testbed / "newer")])
        self.assertEqual((testbed / "pool/linux.deb").read_text(), "package")
        self.assertTrue((testbed / "multipath/multipath.deb").exists())
        lines = (tree / "etc/apt/sources.list").read_text().splitlines()
        self.assertEqual(lines[0], "# first")
        archive = "deb [trusted=yes] file:/testbed/day1"
        self.assertEqual(lines[1:], [f"{archive} trixie{b} main" for b in ("", "-backports")])
