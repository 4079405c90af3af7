import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "src"))
tags = __import__("tags")


class Tags(unittest.TestCase):
    def test_each_tag_once(self):
        self.assertEqual(len(tags.tags("#a #a b")), 1)

    def test_in_order(self):
        self.assertEqual(tags.tags("#a #b"), ["#a", "#b"])
