def minutes(text):
    """Minutes of a clock time written as HH:MM or HH:MM:SS; seconds do not count."""
    hours, minutes = text.split(":")
    return int(hours) * 60 + int(minutes)
