# SPDX-License-Identifier: GPL-2.0
import sys
import unittest

from lab import TOP

sys.path.insert(0, str(TOP / "userspace-tests/bench"))
import paths

NAMES = (
    "", "user ", "process_one_work ", "blk_mq_run_work_fn ", "scsi_queue_rq scsi_mod", "sd_init_command sd_mod",
    "scsi_done scsi_mod", "ib_cq_poll_work ib_core", "__queue_work ", "ib_cq_completion_softirq ib_core",
    "ib_cq_completion_workqueue ib_core",
)  # fmt: skip


class Names:
    def __getitem__(self, n):
        name, _, module = NAMES[n].partition(" ")
        return (n, name, module), ""


def tree(*nodes):
    """Returns what paths.py knows. A node is (parent, function, calls, instructions)."""
    nodes = (0, "", 0, 0), (0, "user ", 0, 0), *nodes
    flat = [n for parent, name, *counts in nodes for n in (parent, NAMES.index(name), *counts, 0)]
    return paths.Tree(paths.Rules(paths.RULES, paths.SUBTREES), flat, Names())


def split(*nodes):
    """Returns the instructions of each function by side."""
    return {(function, side): n for (side, _, function), n in tree(*nodes).parts.items()}


class Sides(unittest.TestCase):
    def test_a_call_counts_once_whatever_it_calls(self):
        found = split(
            (0, "process_one_work ", 4, 400),
            (2, "blk_mq_run_work_fn ", 1, 10),
            (3, "scsi_queue_rq scsi_mod", 1, 1),
            (3, "sd_init_command sd_mod", 1, 1),
            (3, "scsi_done scsi_mod", 7, 1),
            (2, "ib_cq_poll_work ib_core", 3, 3),
            (7, "__queue_work ", 9, 30),
        )
        self.assertEqual(found["process_one_work ", "initiator"], 100)
        self.assertEqual(found["process_one_work ", "target"], 300)
        self.assertEqual(found["blk_mq_run_work_fn ", "initiator"], 10)
        self.assertEqual(found["__queue_work ", "target"], 30)

    def test_a_function_of_both_sides(self):
        found = split(
            (0, "process_one_work ", 4, 400),
            (2, "blk_mq_run_work_fn ", 4, 40),
            (3, "scsi_queue_rq scsi_mod", 3, 1),
            (3, "ib_cq_poll_work ib_core", 1, 1),
        )
        self.assertEqual(found["process_one_work ", "initiator"], 300)
        self.assertEqual(found["blk_mq_run_work_fn ", "target"], 10)

    def test_what_calls_no_side(self):
        found = split((0, "process_one_work ", 5, 50), (2, "blk_mq_run_work_fn ", 5, 5))
        self.assertEqual(found, {("process_one_work ", "other"): 50, ("blk_mq_run_work_fn ", "other"): 5})

    def test_works_queued(self):
        found = tree(
            (0, "process_one_work ", 2, 2),
            (2, "ib_cq_poll_work ib_core", 1, 1),
            (3, "__queue_work ", 2, 1),
            (2, "scsi_done scsi_mod", 1, 1),
            (5, "__queue_work ", 5, 1),
        ).called
        self.assertEqual((found["target", "works queued"], found["initiator", "works queued"]), (2, 5))
        self.assertEqual(found["target", "wake-ups"], 0)

    def test_completion_interrupts(self):
        found = tree(
            (0, "process_one_work ", 2, 2),
            (2, "ib_cq_completion_softirq ib_core", 3, 1),
            (2, "ib_cq_completion_workqueue ib_core", 4, 1),
        ).called
        sides = found["initiator", "completion interrupts"], found["target", "completion interrupts"]
        self.assertEqual(sides, (3, 4))
