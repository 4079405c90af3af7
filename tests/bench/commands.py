#!/usr/bin/env python3
"""What a command of a model costs in the sandbox, as the run's own record says: the whole call, from its start to its result.

usage: python3 tests/bench/commands.py BINARY...

For each program and each level: a scripted run of 30 commands (`head -n N a`), each after a reply that takes 60 ms, and the median,
the fastest and the slowest of them in milliseconds, without the first, which prepares what the others find prepared. Programs take
turns. Everything happens in a temporary directory; no network, no key.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

CALLS = 30
ROUNDS = 3


def taken(binary, root, level):
    out = root / "out" / f"{len(list((root / 'out').iterdir()))}"
    command = [binary, "run", "-p", "x", "--policy", root / f"{level}.yaml", "--model", f"script:{root / 'script.yaml'}", "--out", out]
    environment = {"PATH": os.environ["PATH"], "HOME": str(root / "home")}
    subprocess.run(command, cwd=root / "tree", env=environment, check=True, capture_output=True)
    times = []
    for line in (out / "journal.jsonl").read_text().splitlines():
        event = json.loads(line)
        event = event.get("entry", event)
        if event.get("event") == "call_finished":
            times.append(event["took_ms"])
    assert len(times) == CALLS, len(times)
    return times[1:]


def main():
    binaries = [str(Path(name).resolve()) for name in sys.argv[1:]]
    if not binaries:
        sys.exit(__doc__)
    with tempfile.TemporaryDirectory() as directory:
        root = Path(directory)
        for name in ("tree", "home", "out"):
            (root / name).mkdir()
        (root / "tree" / "a").write_text("line\n" * 100)
        replies = [
            {"calls": [{"tool": "run_shell_command", "args": {"command": f"head -n {n} a"}}], "delay_ms": 60}
            for n in range(1, CALLS + 1)
        ]
        (root / "script.yaml").write_text(json.dumps({"replies": [*replies, {"text": "done"}]}))
        for level in ("landlock", "full"):
            text = f"version: 1\nextends: [builtin:look]\nsandbox: {{ level: {level} }}\n"
            (root / f"{level}.yaml").write_text(text)
            found = {binary: [] for binary in binaries}
            for _ in range(ROUNDS):
                for binary in binaries:
                    found[binary] += taken(binary, root, level)
            for binary, times in found.items():
                times.sort()
                print(f"{level:9} median {times[len(times) // 2]:3} ms, {times[0]} to {times[-1]} ms  {binary}")


if __name__ == "__main__":
    main()
