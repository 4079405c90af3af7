import pathlib
import sys
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent.parent / "src"))
server = __import__("server")


class Address(unittest.TestCase):
    def test_an_unset_port_is_empty(self):
        self.assertEqual(server.address(), "localhost:")
