import unittest

from clock import minutes


class Minutes(unittest.TestCase):
    def test_without_seconds(self):
        self.assertEqual(minutes("12:30"), 750)

    def test_seconds_do_not_count(self):
        self.assertEqual(minutes("12:30:59"), 750)


if __name__ == "__main__":
    unittest.main()
