import pathlib
import re
import sys
import unittest

# What is pinned was fetched into vendor/ before.
TOP = pathlib.Path(__file__).parent.parent
pinned = re.search(r"^greet==(\S+)$", (TOP / "requirements.txt").read_text(), re.M)[1]
sys.path[:0] = [str(TOP / "vendor" / f"greet-{pinned}"), str(TOP / "src")]
door = __import__("door")


class Door(unittest.TestCase):
    def test_it_greets_by_name(self):
        self.assertEqual(door.opened("Ada"), "Hello, Ada!")
