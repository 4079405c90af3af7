def tags(text):
    """The tags of a text, each once."""
    return list({word for word in text.split() if word.startswith("#")})
