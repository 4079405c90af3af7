"""Builds a cargo project by two runs and by hand at each sandbox level, and compares the times and what was compiled.

    cargo build --release && python3 tests/bench/rebuild.py target/release/overnight [--level full] [--crates syn,serde]

Nothing but cargo and Python is needed; the crates are fetched first, as a developer would have.
"""

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
import time


def timed(command, **more):
    begun = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, **more)
    return time.monotonic() - begun, done


def main():
    parse = argparse.ArgumentParser(description=__doc__)
    parse.add_argument("binary")
    parse.add_argument("--level", default="full,landlock")
    parse.add_argument("--crates", default="syn,libc,memchr")
    args = parse.parse_args()
    binary = os.path.abspath(args.binary)
    for level in args.level.split(","):
        top = tempfile.mkdtemp(prefix="overnight-rebuild-")
        tree = os.path.join(top, "ws")
        os.makedirs(os.path.join(tree, "src"))
        with open(os.path.join(tree, "Cargo.toml"), "w") as file:
            dependencies = "".join(f'{name} = "*"\n' for name in args.crates.split(","))
            file.write(f'[package]\nname = "small"\nversion = "0.1.0"\nedition = "2021"\n[dependencies]\n{dependencies}')
        with open(os.path.join(tree, "src/main.rs"), "w") as file:
            file.write("fn main() {}\n")
        subprocess.run(["cargo", "fetch", "--quiet"], cwd=tree, check=True)
        with open(os.path.join(top, "recipe.yaml"), "w") as file:
            file.write("version: 1\nname: build\nsteps:\n  - { id: build, run: cargo build 2>&1 }\n")
        with open(os.path.join(top, "policy.yaml"), "w") as file:
            file.write(f"version: 1\nsandbox: {{ level: {level}, toolchains: [rust] }}\n")

        def run():
            out = os.path.join(top, "out")
            shutil.rmtree(out, ignore_errors=True)
            took, done = timed(
                [binary, "run", f"{top}/recipe.yaml", "--policy", f"{top}/policy.yaml", "--workspace", tree, "--out", out]
            )
            if done.returncode != 0:
                sys.exit(done.stderr)
            with open(os.path.join(out, "result.json")) as file:
                journal = json.load(file)["artefacts"]["journal"]
            with open(os.path.join(tree, journal)) as file:
                events = [json.loads(line)["entry"] for line in file]
            output = next(event["output"] for event in events if event["event"] == "ran")
            return took, output.count("Compiling ")

        first, second = run(), run()
        took, done = timed(["cargo", "build"], cwd=tree)
        hand = (took, done.stderr.count("Compiling "))
        for name, (took, compiled) in [("first run", first), ("second run", second), ("by hand", hand)]:
            print(f"{level:9} {name:11} {took:7.2f} s  {compiled} crates compiled")
        shutil.rmtree(top)


main()
