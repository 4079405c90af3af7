import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "src"))
reader = __import__("reader")


class Title(unittest.TestCase):
    def test_it_is_the_first_line(self):
        self.assertEqual(reader.title("One \ntwo"), "One")
