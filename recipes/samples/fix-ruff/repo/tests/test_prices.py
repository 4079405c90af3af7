import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "src"))
prices = __import__("prices")


class Cents(unittest.TestCase):
    def test_a_price(self):
        self.assertEqual(prices.cents("12.30"), 1230)

    def test_no_price(self):
        self.assertIsNone(prices.cents("free"))
