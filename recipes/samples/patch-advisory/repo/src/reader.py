def title(document):
    """The first line of a document."""
    return document.partition("\n")[0].strip()
