def minutes(text):
    """Minutes of a clock time written as HH:MM."""
    hours, minutes = text.split(":")
    return int(hours) * 60 + int(minutes)
