import settings


def address():
    """Where the server listens, as HOST:PORT."""
    return settings.fetch("host") + ":" + settings.fetch("port")
