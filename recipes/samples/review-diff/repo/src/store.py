import os

ROOT = "/var/lib/store"


def read(name):
    """The text of an entry that a client asked for."""
    with open(os.path.join(ROOT, name)) as file:
        return file.read()
