"""Prices in cents."""

import os
import re


def cents(text):
    """The cents of a price such as "12.30", or None for what is no price."""
    found = re.fullmatch(r"(\d+)\.(\d\d)", text)
    if found == None:
        return None
    return int(found[1]) * 100 + int(found[2])
