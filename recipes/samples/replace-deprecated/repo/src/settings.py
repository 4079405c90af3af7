import warnings

VALUES = {"host": "localhost"}


def fetch(name):
    """The value of a setting, or an empty text. Use `get` instead."""
    warnings.warn("use get(name, default)", DeprecationWarning, stacklevel=2)
    return get(name, "")


def get(name, default):
    """The value of a setting, or the default."""
    return VALUES.get(name, default)
