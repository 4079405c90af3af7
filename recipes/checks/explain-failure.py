"""Whether an explanation of a failed job (JSON on stdin) quotes the log (the run's input) and names files of this repository."""

import json
import os
import subprocess
import sys


def words(text):
    return " ".join(text.split())


with open(os.environ["OVERNIGHT_INPUT"], encoding="utf-8") as file:
    log = words(file.read())
answer = json.load(sys.stdin)
wrong = [f"the log does not say: {line}" for line in answer["evidence"] if not words(line) or words(line) not in log]
listed = subprocess.run(["git", "ls-files", "-z"], check=True, capture_output=True, text=True).stdout
tracked = listed.split("\0")
wrong += [f"this repository has no file {path}" for path in answer["files"] if path.removeprefix("./") not in tracked]
sys.exit("\n".join(wrong) or 0)
