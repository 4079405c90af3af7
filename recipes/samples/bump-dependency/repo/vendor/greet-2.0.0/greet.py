class Greeter:
    """Replaces `greet(name)` of version 1."""

    def __init__(self, word):
        self.word = word

    def greet(self, name):
        return f"{self.word}, {name}"
