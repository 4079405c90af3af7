#!/usr/bin/env python3
"""A fleet of scripted jobs: overhead of the supervisor, its memory, the same after kills, up-to-date jobs, and merges.

usage: python3 tests/bench/fleet.py target/release/overnight [JOBS]

Prints one line a figure. Everything happens in a temporary directory; no network, no key.
"""

import hashlib
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

BINARY = str(Path(sys.argv[1]).resolve())
JOBS = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
AT_ONCE = 8


def environment(home):
    return {"PATH": os.environ["PATH"], "HOME": str(home), "LC_ALL": "C"}


def git(directory, *arguments):
    identity = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    subprocess.run(["git", *identity, *arguments], cwd=directory, check=True, capture_output=True)


def make(root):
    (root / "home").mkdir()
    repository = root / "r0"
    repository.mkdir()
    for n in range(20):
        (repository / f"f{n}.txt").write_text("text\n" * 20)
    git(repository, "init", "-q", "-b", "main")
    git(repository, "add", "-A")
    git(repository, "commit", "-q", "-m", "base")
    (root / "recipe.yaml").write_text(
        "version: 1\nname: write\nparameters:\n  - { name: n, type: string }\nexpect: change\n"
        "steps:\n  - { id: write, prompt: 'Write {{ n }}.' }\n"
    )
    (root / "policy.yaml").write_text("version: 1\nextends: [builtin:edit]\nsandbox: { level: none }\n")
    reply = {"calls": [{"tool": "write_file", "args": {"file_path": "out.txt", "content": "done\n"}}]}
    (root / "script.yaml").write_text(json.dumps({"replies": [reply, {"text": "done"}]}))
    lines = ["version: 1", "recipe: recipe.yaml", "policy: policy.yaml", "models: ['script:script.yaml']", "targets:"]
    lines += [f"  - {{ path: r0, id: j{n}, params: {{ n: 'n{n}' }} }}" for n in range(JOBS)]
    (root / "m.yaml").write_text("\n".join(lines) + "\n")


def batch(root, *more, out="out"):
    command = [BINARY, "batch", "m.yaml", "--out", out, "--jobs", str(AT_ONCE), "--quiet", "--format", "json", *more]
    return subprocess.Popen(command, cwd=root, env=environment(root / "home"), stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)


def peak(pid):
    try:
        for line in Path(f"/proc/{pid}/status").read_text().splitlines():
            if line.startswith("VmHWM"):
                return int(line.split()[1]) / 1024
    except OSError:
        pass
    return 0


def finish(child):
    """Waits; gives seconds, peak memory in MB, and the result."""
    started, most = time.perf_counter(), 0
    while child.poll() is None:
        most = max(most, peak(child.pid))
        time.sleep(0.02)
    return time.perf_counter() - started, most, json.loads(child.stdout.read())


def plain(root, jobs):
    """The same runs by a shell loop of AT_ONCE at once, each isolated, in seconds."""
    started = time.perf_counter()
    running, next_job = [], 0
    while next_job < jobs or running:
        running = [child for child in running if child.poll() is None]
        while len(running) < AT_ONCE and next_job < jobs:
            command = [
                BINARY, "run", "recipe.yaml", "--policy", "policy.yaml", "--model", "script:script.yaml", "--workspace", "r0",
                "--isolate", "--param", f"n=n{next_job}", "--out", f"plain/{next_job}", "--quiet",
            ]
            quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
            running.append(subprocess.Popen(command, cwd=root, env=environment(root / "home"), **quiet))
            next_job += 1
        time.sleep(0.002)
    return time.perf_counter() - started


def rows(root, out="out"):
    return [json.loads(line) for line in (root / out / "runs.jsonl").read_text().splitlines()]


def check(root, out="out"):
    """Every job passed in the end. Gives the rows beyond one a job: a script does not look again after an interrupted write."""
    found = rows(root, out)
    last = {row["job"]: row for row in found}
    assert len(last) == JOBS, len(last)
    assert all(row["verdict"] == "passed" for row in last.values())
    return len(found) - JOBS


def killed(root):
    random.seed(7)
    whole = time.perf_counter()
    for _ in range(10):
        child = batch(root, out="killed")
        time.sleep(random.uniform(0.3, 2.5))
        child.send_signal(signal.SIGKILL)
        child.wait()
        child.stdout.close()
    finish(batch(root, out="killed"))
    return time.perf_counter() - whole, check(root, "killed")


def synthetic(root, bundles, runs):
    """Bundles as shards write them, with `runs` rows each."""
    place = root / f"bundles-{bundles}-{runs}"
    total = bundles * runs
    jobs = [
        {"job": f"j{n}", "id": f"j{n}", "name": f"j{n}", "recipe": "r.yaml", "policies": [], "target": "r0", "ref": None,
         "params": {"n": n}, "input": None, "model": "a/b", "trial": 1}
        for n in range(total)
    ]
    key = lambda job: json.dumps(job, separators=(",", ":"))
    manifest = hashlib.sha256("\n".join(sorted(map(key, jobs))).encode()).hexdigest()
    plan = {"schema": "overnight/batch-plan/v1", "name": "m", "manifest": manifest, "trials": 1, "jobs": jobs}
    place.mkdir()
    shared = place / "plan.json"
    text = json.dumps(plan, separators=(",", ":"))
    shared.write_text(text)
    sealed_plan = {"bytes": len(text), "sha256": hashlib.sha256(text.encode()).hexdigest()}
    at = "2026-01-01T00:00:00Z"
    for index in range(bundles):
        own = place / f"{index + 1}-of-{bundles}"
        own.mkdir()
        os.link(shared, own / "plan.json")
        names = [f"j{n}" for n in range(index * runs, (index + 1) * runs)]
        lines = "".join(
            json.dumps({"job": name, "digest": "0" * 64, "id": name, "name": name, "recipe": "r", "target": "r0", "params": {},
                        "model": "a/b", "trial": 1, "attempt": 1, "verdict": "passed", "exit_code": 0, "reason": "", "message": "",
                        "cost": 0.01, "unpriced": False, "tokens": 1000, "turns": 2, "seconds": 1.5, "base": "0" * 40,
                        "patch": None, "patch_digest": None, "run": f"jobs/{name}/000000000000", "started": at, "ended": at,
                        "shard": f"{index + 1}/{bundles}"}) + "\n"
            for name in names
        )
        (own / "runs.jsonl").write_text(lines)
        sealed = {"bytes": len(lines), "sha256": hashlib.sha256(lines.encode()).hexdigest()}
        bundle = {"schema": "overnight/bundle/v1", "manifest": manifest, "shard": f"{index + 1}/{bundles}", "jobs": names,
                  "not_run": {}, "record": {"head": "", "events": 0}, "files": {"plan.json": sealed_plan, "runs.jsonl": sealed}}
        (own / "bundle.json").write_text(json.dumps(bundle))
    return place


def merged(root, bundles, runs):
    place = synthetic(root, bundles, runs)
    names = [str(place / f"{index + 1}-of-{bundles}") for index in range(bundles)]
    command = [BINARY, "merge", *names, "--out", "merged", "--format", "json"]
    child = subprocess.Popen(command, cwd=root, env=environment(root / "home"), stdout=subprocess.PIPE)
    seconds, most, result = finish(child)
    assert result["jobs"]["passed"] == bundles * runs, result
    shutil.rmtree(root / "merged")
    shutil.rmtree(place)
    return seconds, most


def main():
    root = Path(tempfile.mkdtemp(prefix="overnight-fleet-"))
    try:
        make(root)
        alone = plain(root, JOBS)
        seconds, most, _ = finish(batch(root))
        assert check(root) == 0
        print(f"{JOBS} jobs, {AT_ONCE} at once: {seconds:.1f} s; as plain runs {alone:.1f} s; "
              f"{(seconds - alone) / JOBS * 1000:+.1f} ms a job; supervisor {most:.1f} MB")
        seconds, most, result = finish(batch(root))
        assert result["jobs"]["run"] == 0 and result["jobs"]["up_to_date"] == JOBS
        print(f"the same again, {JOBS} up to date: {seconds:.2f} s, {most:.1f} MB")
        seconds, more = killed(root)
        print(f"the same with ten kills: {seconds:.1f} s, every job passed, {more} rows more than jobs")
        for bundles, runs in [(1000, 1), (10000, 1), (100, 100), (100, 1000)]:
            seconds, most = merged(root, bundles, runs)
            print(f"merge of {bundles} bundles with {bundles * runs} runs: {seconds:.1f} s, {most:.0f} MB")
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
