import greet


def opened(name):
    """What the door says to who comes in."""
    return greet.greet(name) + "!"
