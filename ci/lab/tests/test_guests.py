# SPDX-License-Identifier: GPL-2.0
import collections
import fcntl
import tempfile
import threading
import time
import unittest

from lab import guests

Guest = collections.namedtuple("Guest", "name")


class Lab:
    """A lab whose guests take no CPU time. Knows how many run, and the most that did."""

    def __init__(self):
        self.lock, self.running, self.most, self.booted = threading.Lock(), 0, 0, []

    def boot(self, guest, name):
        with self.lock:
            self.booted.append(name)
            self.running += 1
            self.most = max(self.most, self.running)
        time.sleep(0.02)
        with self.lock:
            self.running -= 1
        return [name]


class BootAll(unittest.TestCase):
    guests = [Guest(str(n)) for n in range(12)]

    def test_all_run_once(self):
        lab = Lab()
        self.assertEqual(guests.boot_all(lab, self.guests, 4, None), [[g.name] for g in self.guests])
        self.assertEqual(sorted(lab.booted), sorted(g.name for g in self.guests))
        self.assertEqual(lab.most, 4)

    def beside(self, at_once, ends_after):
        """Runs the guests beside a lane that ends when this many have begun. Returns the most that ran before that and
        in all."""
        lab, before = Lab(), []
        with tempfile.NamedTemporaryFile() as f:
            fcntl.flock(f, fcntl.LOCK_EX)

            def lane():
                while len(lab.booted) < ends_after:
                    time.sleep(0.001)
                before.append(lab.most)
                fcntl.flock(f, fcntl.LOCK_UN)

            t = threading.Thread(target=lane)
            t.start()
            found = guests.boot_all(lab, self.guests, at_once, f.name)
            t.join()
        self.assertEqual(found, [[g.name] for g in self.guests])
        return before[0], lab.most

    def test_half_as_many_beside_a_busy_lane(self):
        self.assertEqual(self.beside(4, 6), (2, 4))
        self.assertEqual(self.beside(1, 6), (1, 1))

    def test_a_lane_that_ends_with_the_last_guest(self):
        self.assertEqual(self.beside(4, 12)[0], 2)
