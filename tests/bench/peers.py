#!/usr/bin/env python3
"""The same scripted jobs by `overnight batch` and by other agents: time, CPU time and memory without any model's own time.

usage: python3 tests/bench/peers.py target/release/overnight [JOBS] [--gemini PATH] [--codex PATH] [--mini PATH]

A job is a fresh copy of a repository with 20 files; the first reply writes one file with the agent's own tool, the second says
that it is done. All agents talk HTTP to one server in this process; four jobs run at once. Gemini CLI and `codex exec` are
started for each job by `xargs -P4`. mini-swe-agent runs its own batch (`mini-extra swebench`, four workers in one process) with
its local environment in place of a container. A copy is made within the time that counts. A job is right if the file that is
left (of overnight: the patch, applied) has the content that was asked for.

Codex keeps its sandbox `workspace-write`, overnight that of its policy; the others have none.

Prints one line a tool. Memory is that of the largest process, read by GNU time. Nothing is installed: the programs (`gemini`,
`codex`, `mini-extra`) are looked up in PATH or named by flags. (With litellm 1.106, mini-swe-agent 2.4 also wants
`pip install mcp`.) Everything happens in a temporary directory; no network, no key.
"""

import argparse
import http.server
import json
import os
import re
import shlex
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

AT_ONCE = 4


class Server(http.server.ThreadingHTTPServer):
    """Speaks Chat Completions, Responses and Gemini. The job's number stands in the prompt as JOB-n."""

    def __init__(self):
        super().__init__(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server_port}"
        self.requests = []
        threading.Thread(target=self.serve_forever, daemon=True).start()


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True

    def log_message(self, *_):
        pass

    def do_POST(self):
        text = self.rfile.read(int(self.headers["content-length"])).decode()
        asked = json.loads(text)
        self.server.requests.append(self.path)
        job = int(re.search(r"JOB-(\d+)", text)[1])
        if self.path.endswith("/chat/completions"):
            self.send("application/json", json.dumps(chat(asked, job)))
        elif self.path.endswith("/responses"):
            self.send("text/event-stream", events(responses(asked, job)))
        else:
            self.send("text/event-stream", events([gemini(asked, job)]))

    def send(self, kind, text):
        body = text.encode()
        self.send_response(200)
        self.send_header("content-type", kind)
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)


def events(values):
    lines = []
    for value in values:
        if "type" in value:
            lines.append(f"event: {value['type']}\n")
        lines.append(f"data: {json.dumps(value)}\n\n")
    return "".join(lines)


def content(job):
    return f"done {job}\n"


def chat(asked, job):
    """Of overnight, and of mini-swe-agent, which has one tool and ends with a command."""
    ended = asked["messages"][-1]["role"] == "tool"
    if any(tool["function"]["name"] == "bash" for tool in asked["tools"]):
        command = "echo COMPLETE_TASK_AND_SUBMIT_FINAL_OUTPUT" if ended else f"echo 'done {job}' > {job}/out.txt"
        call = {"name": "bash", "arguments": json.dumps({"command": command})}
    elif not ended:
        call = {"name": "write_file", "arguments": json.dumps({"file_path": "out.txt", "content": content(job)})}
    else:
        call = None
    message = {"role": "assistant", "content": "Done."}
    if call:
        message = {"role": "assistant", "content": None, "tool_calls": [{"id": f"c{ended:d}", "type": "function", "function": call}]}
    return {
        "id": "x", "object": "chat.completion", "created": 1, "model": "bench",
        "choices": [{"index": 0, "message": message, "finish_reason": "tool_calls" if call else "stop"}],
        "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
    }


def responses(asked, job):
    if any(item["type"] == "custom_tool_call_output" for item in asked["input"]):
        said = [{"type": "output_text", "text": "Done.", "annotations": []}]
        item = {"type": "message", "id": "m1", "role": "assistant", "status": "completed", "content": said}
    else:
        patch = f"*** Begin Patch\n*** Add File: out.txt\n+{content(job)}*** End Patch\n"
        item = {"type": "custom_tool_call", "id": "t1", "call_id": "c1", "name": "apply_patch", "input": patch, "status": "completed"}
    usage = {"input_tokens": 10, "output_tokens": 5, "total_tokens": 15}
    return [
        {"type": "response.created", "response": {"id": "r"}},
        {"type": "response.output_item.added", "output_index": 0, "item": item},
        {"type": "response.output_item.done", "output_index": 0, "item": item},
        {"type": "response.completed", "response": {"id": "r", "output": [item], "usage": usage}},
    ]


def gemini(asked, job):
    if any("functionResponse" in part for part in asked["contents"][-1]["parts"]):
        part = {"text": "Done."}
    else:
        part = {"functionCall": {"name": "write_file", "args": {"file_path": "out.txt", "content": content(job)}}}
    return {
        "candidates": [{"index": 0, "content": {"role": "model", "parts": [part]}, "finishReason": "STOP"}],
        "usageMetadata": {"promptTokenCount": 10, "candidatesTokenCount": 5, "totalTokenCount": 15},
    }


def prompt(job):
    return f"JOB-{job}: write the file out.txt with the one line that you are told."


class Bench:
    def __init__(self, root, jobs):
        self.root, self.jobs, self.server = root, jobs, Server()
        self.base = root / "base"
        self.base.mkdir()
        for n in range(20):
            (self.base / f"f{n}.txt").write_text("text\n" * 20)
        git = ["git", "-c", "user.name=a", "-c", "user.email=a@example.org"]
        for step in (["init", "-q", "-b", "main"], ["add", "-A"], ["commit", "-q", "-m", "base"]):
            subprocess.run([*git, *step], cwd=self.base, check=True)

    def place(self, name):
        place = self.root / name
        (place / "home").mkdir(parents=True)
        return place

    def measure(self, name, place, command, variables, right):
        """Runs the command to its end and prints the tool's line."""
        environment = {"PATH": os.environ["PATH"], "HOME": str(place / "home"), "LC_ALL": "C.UTF-8", **variables}
        figures, log = place / "figures", place / "log"
        self.server.requests.clear()
        begun = time.perf_counter()
        with open(log, "w") as out:
            subprocess.run(["time", "-q", "-o", figures, "-f", "%U %S %M", *command], cwd=place, env=environment,
                           stdin=subprocess.DEVNULL, stdout=out, stderr=out)
        wall = time.perf_counter() - begun
        user, system, largest = map(float, figures.read_text().split())
        done = [job for job in range(self.jobs) if right(job)]
        print(f"{name}: {len(done)} of {self.jobs} jobs right; {wall:.1f} s, {wall / self.jobs:.3f} s a job; "
              f"CPU {(user + system) / self.jobs:.3f} s a job; largest process {largest / 1024:.0f} MB; "
              f"{len(self.server.requests) / self.jobs:.1f} requests a job", flush=True)
        if len(done) < self.jobs:
            print(log.read_text()[-3000:], file=sys.stderr)

    def loop(self, name, place, command, variables):
        """One process for each job, started by xargs in a copy of its own; the number of the job replaces {}."""
        line = f"git clone -q {shlex.quote(str(self.base))} {{}} && cd {{}} && exec {shlex.join(command)}"
        every = f"seq 0 {self.jobs - 1} | xargs -P{AT_ONCE} -I{{}} sh -c {shlex.quote(line)}"
        self.measure(name, place, ["sh", "-c", every], variables, lambda job: written(place / str(job)))

    def overnight(self, program):
        place = self.place("overnight")
        (place / "recipe.yaml").write_text(
            "version: 1\nname: write\nparameters:\n  - { name: n, type: integer }\nexpect: change\n"
            f"steps:\n  - {{ id: write, prompt: '{prompt('{{ n }}')}' }}\n"
        )
        (place / "policy.yaml").write_text("version: 1\nextends: [builtin:edit]\n")
        lines = ["version: 1", "recipe: recipe.yaml", "policy: policy.yaml", "models: [openai/bench]", "targets:"]
        lines += [f"  - {{ path: ../base, id: j{n}, params: {{ n: {n} }} }}" for n in range(self.jobs)]
        (place / "m.yaml").write_text("\n".join(lines) + "\n")

        def right(job):
            copy = self.root / "applied" / str(job)
            subprocess.run(["git", "clone", "-q", self.base, copy], check=True)
            patch = place / "out" / "patches" / f"j{job}.patch"
            return subprocess.run(["git", "apply", patch], cwd=copy, stderr=subprocess.DEVNULL).returncode == 0 and written(copy)

        command = [program, "batch", "m.yaml", "--out", "out", "--jobs", str(AT_ONCE), "--quiet"]
        self.measure("overnight batch", place, command, {"OPENAI_BASE_URL": self.server.url + "/v1"}, right)

    def gemini(self, program):
        place = self.place("gemini")
        settings = {
            "security": {"auth": {"selectedType": "gemini-api-key"}},
            "privacy": {"usageStatisticsEnabled": False},
            "general": {"enableAutoUpdate": False},
        }
        (place / "home" / ".gemini").mkdir()
        (place / "home" / ".gemini" / "settings.json").write_text(json.dumps(settings))
        command = [program, "-p", prompt("{}"), "--yolo", "--skip-trust", "-m", "gemini-2.5-flash"]
        self.loop("Gemini CLI, a loop", place, command, {"GEMINI_API_KEY": "bench", "GOOGLE_GEMINI_BASE_URL": self.server.url})

    def codex(self, program):
        place = self.place("codex")
        (place / "home" / ".codex").mkdir()
        (place / "home" / ".codex" / "config.toml").write_text(
            'model = "gpt-5.5"\nmodel_provider = "bench"\ncheck_for_update_on_startup = false\n'
            '[analytics]\nenabled = false\n[features]\nplugins = false\n'
            f'[model_providers.bench]\nname = "bench"\nbase_url = "{self.server.url}/v1"\nwire_api = "responses"\n'
        )
        command = [program, "exec", "--skip-git-repo-check", "-s", "workspace-write", prompt("{}")]
        self.loop("codex exec, a loop", place, command, {})

    def mini(self, program):
        place = self.place("mini")
        (place / "data").mkdir()
        rows = [{"instance_id": str(n), "problem_statement": prompt(n)} for n in range(self.jobs)]
        (place / "data" / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        config = {
            "environment": {"cwd": str(place), "environment_class": "local"},
            "run": {"env_startup_command": f"git clone -q {shlex.quote(str(self.base))} {{{{ instance_id }}}}"},
            "model": {"model_name": "openai/bench", "model_kwargs": {"api_base": self.server.url + "/v1", "api_key": "bench"}},
        }
        (place / "bench.yaml").write_text(json.dumps(config))
        command = [program, "swebench", "--subset", str(place / "data"), "--split", "test", "-w", str(AT_ONCE), "-o", "out",
                   "-c", "swebench.yaml", "-c", "bench.yaml"]
        variables = {"MSWEA_COST_TRACKING": "ignore_errors", "LITELLM_LOCAL_MODEL_COST_MAP": "True", "HF_HUB_OFFLINE": "1"}
        self.measure("mini-swe-agent, its batch without containers", place, command, variables,
                     lambda job: written(place / str(job)))


def written(copy):
    """Whether this copy has the file of the job that it is named after."""
    file = copy / "out.txt"
    return file.exists() and file.read_text() == content(copy.name)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("jobs", type=int, nargs="?", default=100)
    parser.add_argument("--gemini", default="gemini")
    parser.add_argument("--codex", default="codex")
    parser.add_argument("--mini", default="mini-extra")
    given = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="overnight-peers-"))
    try:
        bench = Bench(root, given.jobs)
        tools = [("overnight", bench.overnight, given.program), ("Gemini CLI", bench.gemini, given.gemini),
                 ("codex", bench.codex, given.codex), ("mini-swe-agent", bench.mini, given.mini)]
        for name, run, program in tools:
            if found := shutil.which(program):
                run(os.path.abspath(found))
            else:
                print(f"{name}: not installed", flush=True)
    finally:
        shutil.rmtree(root, ignore_errors=True)


if __name__ == "__main__":
    main()
