# SPDX-License-Identifier: GPL-2.0
import contextlib
import io
import tempfile
import unittest
from unittest import mock

from lab import node, results

BOOTED = "[    0.500000] Run /init as init process"


class Steps(unittest.TestCase):
    """A node with three steps, the last one in a second boot. Its boots are shell scripts."""

    def run_boots(self, *boots):
        boots = iter(boots)

        def command(*_):
            lines = [BOOTED, *(f"[    1.000000] {line}" for line in next(boots))]
            return ["bash", "-c", "".join(f"echo '{line}'; " for line in lines)]

        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            for name, value in {
                "__init__": lambda self, a, kernel: vars(self).update(
                    args=a, uml=False, to_crash=False, too_slow=False, is_report=lambda line: "BUG" in line
                ),
                "load": lambda self, how: "6.1",
                "command": command,
                "kvm": lambda self: False,
                "cpu": lambda self: 0,
            }.items():
                stack.enter_context(mock.patch.object(node.Node, name, value))
            stack.enter_context(contextlib.redirect_stdout(io.StringIO()))
            words = ["--console", f"{folder}/console", "--results", f"{folder}/results", "--plan"]
            status = node.main([*words, "login:300,paths:600,reboot:0,back:300"])
            found = results.read(f"{folder}/results")
        return status, [(r.name.removeprefix("node/"), r.result) for r in found]

    FIRST = ["::test login begin", "::test login ok 5", "::test paths begin", "::test paths ok 9", "::node reboot"]
    SECOND = ["::test back begin", "::test back ok 2", "::node end"]

    def test_all_is_well(self):
        found = self.run_boots(self.FIRST, self.SECOND)
        self.assertEqual(found, (0, [("login", "ok"), ("paths", "ok"), ("back", "ok")]))

    def test_a_step_fails(self):
        status, found = self.run_boots([*self.FIRST[:3], "::test paths fail 9", "::node end"])
        self.assertEqual((status, found), (1, [("login", "ok"), ("paths", "fail"), ("back", "fail")]))

    def test_it_dies_in_the_middle(self):
        status, found = self.run_boots([*self.FIRST[:3], "BUG: it is broken"])
        self.assertEqual((status, found), (1, [("login", "ok"), ("paths", "fail"), ("back", "fail")]))

    def test_a_report_fails_its_step(self):
        first = [*self.FIRST[:1], "BUG: it is broken", *self.FIRST[1:]]
        status, found = self.run_boots(first, self.SECOND)
        self.assertEqual((status, found), (1, [("login", "fail"), ("paths", "ok"), ("back", "ok")]))
