"""Counts the denials that a scripted run meets with the 300 commands of `daily_commands.txt`, which models type every day.

    python3 tests/bench/denials.py target/release/overnight [--policy FILE] [--calls 10] [--list]

The run is a real one, in a throw-away repository with a little Rust, Node and Python, under `builtin:build` with those toolchains unless
a policy is named. A command may fail (its program is not there, nothing is installed): only what the policy denies is counted, before
it starts and at its execs. Some of the 300 should be denied: what commits, pushes, installs or runs as another user.
"""

import argparse
import collections
import json
import os
import subprocess
import tempfile

BUILD = """version: 1
extends: [builtin:build]
sandbox: { level: auto, network: none, toolchains: [rust, node, python] }
"""
FILES = {
    "README.md": "# A tree\n\nOne and two.\n",
    "Cargo.toml": '[package]\nname = "little"\nversion = "0.1.0"\nedition = "2021"\n',
    "src/lib.rs": "pub fn add(a: i32, b: i32) -> i32 {\n    a + b\n}\n",
    "tests/all.rs": "#[test]\nfn adds() {\n    assert_eq!(little::add(1, 2), 3);\n}\n",
    "package.json": '{"name": "little", "version": "0.1.0", "scripts": {"test": "node --test", "lint": "true", "build": "true"}}\n',
    "index.js": "exports.add = (a, b) => a + b;\n",
    "app.py": "def add(a, b):\n    return a + b\n",
    "tests/test_app.py": "import app, unittest\n\n\nclass T(unittest.TestCase):\n    def test_add(self):\n        self.assertEqual(app.add(1, 2), 3)\n",
    "Makefile": "test:\n\t@true\n\nbuild:\n\t@true\n",
    "run.sh": "#!/bin/sh\necho run\n",
    ".gitignore": "target\nnode_modules\n",
}


def write(path, text):
    os.makedirs(os.path.dirname(path), exist_ok=True)
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("binary")
    parser.add_argument("--policy")
    parser.add_argument("--calls", type=int, default=10, help="commands a reply")
    parser.add_argument("--list", action="store_true", help="print each denied command with its code")
    args = parser.parse_args()
    with open(os.path.join(os.path.dirname(__file__), "daily_commands.txt"), encoding="utf-8") as file:
        commands = file.read().splitlines()
    with tempfile.TemporaryDirectory(prefix="overnight-denials-") as top:
        tree = os.path.join(top, "tree")
        for path, text in FILES.items():
            write(os.path.join(tree, path), text)
        who = {"GIT_CONFIG_GLOBAL": "/dev/null"}
        for role in ("AUTHOR", "COMMITTER"):
            who |= {f"GIT_{role}_NAME": "a", f"GIT_{role}_EMAIL": "a@example.org"}
        for git in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "base"], ["commit", "-q", "--allow-empty", "-m", "more"]):
            subprocess.run(["git", *git], cwd=tree, check=True, env=os.environ | who)
        replies = []
        for start in range(0, len(commands), args.calls):
            some = commands[start : start + args.calls]
            replies.append({"calls": [{"tool": "run_shell_command", "args": {"command": command}} for command in some]})
        replies.append({"text": "done"})
        script, policy, out = (os.path.join(top, name) for name in ("script.yaml", "policy.yaml", "out"))
        write(script, json.dumps({"replies": replies}))
        write(policy, BUILD)
        run = [os.path.abspath(args.binary), "run", "-p", "go", "--model", f"script:{script}", "--policy", args.policy or policy]
        run += ["--workspace", tree, "--out", out, "--quiet", "--max-wall", "40m", "--max-turns", "1000"]
        subprocess.run(run, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, check=False)
        with open(os.path.join(out, "result.json"), encoding="utf-8") as file:
            result = json.load(file)
    if result["usage"]["turns"] != len(replies):
        print(f"the run ended early, after {result['usage']['turns']} of {len(replies)} replies: {result['message']}")
    denied = {entry["call"]: entry for entry in result["denied"]}
    codes = collections.Counter(entry["code"].split(":")[0] for entry in denied.values())
    print(f"{len(commands)} commands, {len(denied)} denied")
    for code, count in codes.most_common():
        print(f"  {count:4} {code}")
    if args.list:
        for call, entry in denied.items():
            print(f"{entry['code']:32} {commands[int(call[1:]) - 1]}")


if __name__ == "__main__":
    main()
