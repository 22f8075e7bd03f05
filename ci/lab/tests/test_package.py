# SPDX-License-Identifier: GPL-2.0
"""The pages in the package of srpctl, which a node has instead of a checkout."""

import re
import unittest

from lab import TOP

NAME = re.compile(r"\b[\w-]+\.md\b")


def of_programs():
    """Returns the pages that the messages of the programs name."""
    found = set()
    for path in [TOP / "tools/kdir", *TOP.glob("tools/srpctl/src/**/*.rs")]:
        for line in path.read_text().splitlines():
            if not re.match(r"\s*(//|#)", line) and "include_str!" not in line:
                found |= set(NAME.findall(line))
    return found


def of_readme():
    """Returns the pages that README's section for a node names."""
    text = (TOP / "README.md").read_text()
    return set(NAME.findall(text.split("\n## On a Debian 13 node\n")[1].split("\n## ")[0]))


class Pages(unittest.TestCase):
    def setUp(self):
        self.debian = (TOP / "debian/srp-rs-tools.docs").read_text().split()
        self.names = {path.rpartition("/")[2] for path in self.debian}

    def test_has_each_page_that_a_node_needs(self):
        needed = of_programs() | of_readme()
        self.assertIn("README.md", needed)
        for path in self.debian:
            needed |= set(re.findall(r"\]\(([\w-]+\.md)[#)]", (TOP / path).read_text()))
        self.assertEqual(needed - self.names, set())

    def test_rpm_has_the_same_pages(self):
        text = (TOP / "rpm/ib-srp-rs.spec").read_text()
        found = re.findall(r"^%doc (.*\.md.*)$", text, re.M)
        self.assertEqual(sorted(" ".join(found).split()), sorted(self.debian))
