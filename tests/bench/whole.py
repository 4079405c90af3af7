"""Times the whole program from outside: start to first request, the loop's own time a turn, long runs, `--version`.

    cargo build --release && python3 tests/bench/whole.py target/release/overnight [--rounds 20] [--only NAME]

A server on loopback speaks Chat Completions. All clocks are this process's own: the moment before a program is started,
the moment when a request has come in whole, the moment when a reply has been sent. Nothing but Python and git is needed.
With `--peer COMMAND`, any other client is timed by the same server: `{url}` and `{tree}` in the command are replaced.
"""

import argparse
import json
import os
import shlex
import shutil
import socket
import statistics
import subprocess
import sys
import tempfile
import threading
import time

PROMPT = "Read the lines that you are told to read."


class Server:
    """Answers each request with one more read of a file, and with a text after `turns` of them."""

    def __init__(self, turns, file="lines.txt"):
        self.turns = turns
        self.file = file
        self.came = []
        self.sent = []
        self.sizes = []
        self.connections = 0
        self.listener = socket.create_server(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self):
        while True:
            try:
                connection, _ = self.listener.accept()
            except OSError:
                return
            self.connections += 1
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection):
        buffer, turn = b"", 0
        while True:
            while b"\r\n\r\n" not in buffer:
                piece = connection.recv(1 << 20)
                if not piece:
                    return
                buffer += piece
            head, buffer = buffer.split(b"\r\n\r\n", 1)
            lengths = [line.split(b":")[1] for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")]
            wanted = int(lengths[0]) if lengths else 0
            self.sizes.append(wanted)
            pieces, held = [buffer], len(buffer)
            while held < wanted:
                pieces.append(connection.recv(1 << 20))
                held += len(pieces[-1])
            buffer = b"".join(pieces)[wanted:]
            self.came.append(time.perf_counter())
            turn += 1
            connection.sendall(self.reply(turn))
            self.sent.append(time.perf_counter())

    def reply(self, turn):
        if turn <= self.turns:
            call = {"name": "read_file", "arguments": json.dumps({"file_path": self.file, "start_line": turn, "end_line": turn})}
            message = {"role": "assistant", "content": None, "tool_calls": [{"id": f"c{turn}", "type": "function", "function": call}]}
            finish = "tool_calls"
        else:
            message, finish = {"role": "assistant", "content": "All lines were read."}, "stop"
        body = json.dumps({
            "id": "x", "object": "chat.completion", "model": "bench",
            "choices": [{"index": 0, "message": message, "finish_reason": finish}],
            "usage": {"prompt_tokens": 10, "completion_tokens": 5, "total_tokens": 15},
        }).encode()
        head = f"HTTP/1.1 200 OK\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n"
        return head.encode() + body

    def turns_taken(self):
        return [came - sent for sent, came in zip(self.sent, self.came[1:])]

    def close(self):
        self.listener.close()


def make_tree(files):
    tree = tempfile.mkdtemp(prefix="overnight-bench-")
    with open(os.path.join(tree, "lines.txt"), "w") as out:
        out.writelines(f"This is line {n} of a file that is read line by line.\n" for n in range(1, 1001))
    for n in range(files):
        folder = os.path.join(tree, f"d{n % 40}", f"s{n % 200}")
        os.makedirs(folder, exist_ok=True)
        with open(os.path.join(folder, f"f{n}.rs"), "w") as out:
            out.write(f"// file {n}\n" * 40)
    git = ["git", "-c", "user.name=b", "-c", "user.email=b@bench.test", "-C", tree]
    for step in (["init", "-q"], ["add", "."], ["commit", "-qm", "start"]):
        subprocess.run(git + step, check=True)
    return tree


class Run:
    """One run to its end."""

    def __init__(self, program, tree, turns, out, peer=None):
        server = Server(turns)
        shutil.rmtree(out, ignore_errors=True)
        url = f"http://127.0.0.1:{server.port}/v1"
        if peer:
            command = shlex.split(peer.replace("{url}", url).replace("{tree}", tree))
        else:
            command = [program, "run", "-p", PROMPT, "--model", "openai/bench", "--base-url", url, "--workspace", tree,
                       "--out", out, "--max-turns", str(turns + 10), "--quiet"]
        environment = {"PATH": os.environ["PATH"], "HOME": tree + "-home", "OPENAI_API_KEY": "bench-key-0000"}
        begun = time.perf_counter()
        child = subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, cwd=tree)
        self.peak_kb = 0
        watching = threading.Thread(target=self.watch, args=(child.pid,), daemon=True)
        watching.start()
        _, errors = child.communicate()
        self.wall = time.perf_counter() - begun
        server.close()
        if child.returncode != 0 or len(server.came) != turns + 1:
            raise SystemExit(f"exit {child.returncode} after {len(server.came)} requests: {errors.decode()[-2000:]}")
        self.first = server.came[0] - begun
        self.turns = server.turns_taken()
        self.sizes = server.sizes
        self.end = begun + self.wall - server.sent[-1]
        self.connections = server.connections
        shutil.rmtree(out, ignore_errors=True)

    def watch(self, pid):
        while (now := peak_kb(pid)) is not None:
            self.peak_kb = max(self.peak_kb, now)
            time.sleep(0.005)


def peak_kb(pid):
    """The most memory that a process has held so far; `None` once it is gone."""
    try:
        with open(f"/proc/{pid}/status") as status:
            found = [line for line in status if line.startswith("VmHWM")]
    except OSError:
        return None
    return int(found[0].split()[1]) if found else None


def watch_all(peaks, count):
    """Fills in the peak of each process whose id is in `peaks`, until `count` of them are gone."""
    gone = set()
    while len(gone) < count:
        for pid in [pid for pid in list(peaks) if pid not in gone]:
            now = peak_kb(pid)
            if now is None:
                gone.add(pid)
            else:
                peaks[pid] = max(peaks[pid], now)
        time.sleep(0.01)


BARE = """
import os, socket, sys
port, record, sizes = int(sys.argv[1]), sys.argv[2], [int(size) for size in sys.stdin.read().split()]
requests = [b"POST / HTTP/1.1\\r\\ncontent-length: %d\\r\\n\\r\\n" % size + b"x" * size for size in sizes]
line, out = b"x" * 500 + b"\\n", os.open(record, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
service = socket.create_connection(("127.0.0.1", port))
service.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
for request in requests:
    service.sendall(request)
    reply = service.recv(1 << 16)
    for _ in range(3):
        os.write(out, line)
        os.fdatasync(out)
"""


class Bare:
    """A client that does nothing: it sends requests of the same sizes and appends three durable lines for each reply."""

    def __init__(self, sizes, folder):
        server = Server(len(sizes) - 1)
        os.makedirs(folder, exist_ok=True)
        command = [sys.executable, "-c", BARE, str(server.port), os.path.join(folder, "record")]
        subprocess.run(command, input=" ".join(map(str, sizes)).encode(), check=True)
        server.close()
        self.turns = server.turns_taken()
        shutil.rmtree(folder)


def at_once(program, tree, count, turns):
    """This many runs in trees of their own against one server: wall clock, and of each run its CPU time and peak memory."""
    server = Server(turns)
    places = [tempfile.mkdtemp(prefix="overnight-bench-many-") for _ in range(count)]
    for place in places:
        shutil.copytree(tree, os.path.join(place, "tree"))
    begun, children, peaks = time.perf_counter(), [], {}
    threading.Thread(target=watch_all, args=(peaks, count), daemon=True).start()
    for place in places:
        work = os.path.join(place, "tree")
        command = [program, "run", "-p", PROMPT, "--model", "openai/bench", "--base-url", f"http://127.0.0.1:{server.port}/v1",
                   "--workspace", work, "--out", os.path.join(place, "out"), "--max-turns", str(turns + 10), "--quiet"]
        environment = {"PATH": os.environ["PATH"], "HOME": place, "OPENAI_API_KEY": "bench-key-0000"}
        children.append(subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL))
        peaks[children[-1].pid] = 0
    cpu = []
    for child in children:
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if child.returncode != 0:
            raise SystemExit(f"one of {count} runs at once ended with {child.returncode}")
        cpu.append(used.ru_utime + used.ru_stime)
    wall = time.perf_counter() - begun
    server.close()
    peak = list(peaks.values())
    for place in places:
        shutil.rmtree(place)
    return wall, cpu, peak


def resumed(program, turns, rounds):
    """A run of many turns with 2 kB each, ended by its budget; then resumed from copies of its directory.

    Gives the times from start to first request, those to the end, and the sizes of the requests of the run."""
    tree, out = make_tree(0), tempfile.mkdtemp(prefix="overnight-bench-out-")
    with open(os.path.join(tree, "long.txt"), "w") as long:
        long.writelines(f"{n} {'x' * 1990}\n" for n in range(1, turns + 1))
    environment = {"PATH": os.environ["PATH"], "HOME": tree + "-home", "OPENAI_API_KEY": "bench-key-0000"}

    def start(server, *arguments):
        url = f"http://127.0.0.1:{server.port}/v1"
        command = [program, *arguments, "--base-url", url, "--workspace", tree, "--quiet"]
        begun = time.perf_counter()
        ended = subprocess.run(command, env=environment, cwd=tree, capture_output=True)
        server.close()
        return begun, time.perf_counter() - begun, ended

    server = Server(turns, "long.txt")
    base = os.path.join(out, "base")
    with open(os.path.join(out, "prices.json"), "w") as prices:
        json.dump([{"model": "openai/bench", "window": 10_000_000}], prices)
    environment["OVERNIGHT_PRICES"] = os.path.join(out, "prices.json")
    limits = ["--max-turns", str(turns), "--max-tokens", "100000000"]
    _, _, ended = start(server, "run", "-p", PROMPT, "--model", "openai/bench", "--out", base, *limits)
    if ended.returncode != 6:
        raise SystemExit(f"exit {ended.returncode}, and 6 was expected: {ended.stderr.decode()[-2000:]}")
    first, whole = [], []
    for n in range(rounds):
        copy = os.path.join(out, str(n))
        shutil.copytree(base, copy)
        again = Server(0)
        begun, took, ended = start(again, "resume", copy, "--max-turns", str(turns + 1))
        if ended.returncode != 0:
            raise SystemExit(f"exit {ended.returncode} of a resume: {ended.stderr.decode()[-2000:]}")
        first.append(again.came[0] - begun)
        whole.append(took)
        shutil.rmtree(copy)
    shutil.rmtree(out)
    shutil.rmtree(tree)
    return first, whole, server.sizes


def row(name, values, unit="ms", scale=1000.0):
    values = sorted(value * scale for value in values)
    print(f"| {name} | {statistics.median(values):.2f} {unit} | {values[0]:.2f} | {values[-1]:.2f} |", flush=True)


def around(run, turn):
    return statistics.median(run.turns[max(turn - 6, 0):turn + 5])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("program")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--only", default="")
    parser.add_argument("--peer")
    given = parser.parse_args()
    program = os.path.abspath(given.program)
    memory = "/dev/shm" if os.path.isdir("/dev/shm") else tempfile.gettempdir()
    quick = os.path.join(memory, f"overnight-bench-out-{os.getpid()}")
    durable = os.path.join(tempfile.gettempdir(), f"overnight-bench-out-{os.getpid()}")
    print("| what | median | least | most |\n| --- | --- | --- | --- |")
    wanted = lambda name: given.only in name
    trees = []

    def tree(files):
        trees.append(make_tree(files))
        return trees[-1]

    try:
        if wanted("version"):
            row("`--version`", [timed([program, "--version"]) for _ in range(given.rounds)])
        small = tree(10)
        if wanted("start"):
            row("start to first request, 11 files", [Run(program, small, 0, quick, given.peer).first for _ in range(given.rounds)])
        if wanted("start-large"):
            large = tree(20_000)
            row("start to first request, 20,001 files", [Run(program, large, 0, quick, given.peer).first for _ in range(given.rounds)])
        if wanted("turns"):
            for name, out in (("not synced (memory)", quick), ("synced (disk)", durable)):
                runs = [Run(program, small, 510, out, given.peer) for _ in range(3)]
                row(f"a turn around turn 10, {name}", [around(run, 10) for run in runs])
                row(f"a turn around turn 500, {name}", [around(run, 500) for run in runs])
                bare = [Bare(run.sizes, out) for run in runs]
                row(f"a bare client with three appends around turn 10, {name}", [around(run, 10) for run in bare])
                row(f"a bare client with three appends around turn 500, {name}", [around(run, 500) for run in bare])
        if wanted("hundred"):
            runs = [Run(program, small, 99, durable, given.peer) for _ in range(max(given.rounds // 4, 3))]
            row("100 turns, wall", [run.wall for run in runs])
            row("100 turns, from the last reply to the end", [run.end for run in runs])
            row("100 turns, peak memory", [run.peak_kb for run in runs], "MB", 1 / 1024)
            row("100 turns, connections", [run.connections for run in runs], "", 1)
        if wanted("resume"):
            for turns in (50, 500):
                first, whole, sizes = resumed(program, turns, given.rounds)
                row(f"resume after {turns} turns of 2 kB, start to first request", first)
                row(f"resume after {turns} turns of 2 kB, start to end", whole)
            row("the last request of these 500 turns", [sizes[-1]], "kB", 1 / 1000)
        if wanted("many"):
            wall, cpu, peak = at_once(program, small, 40, 100)
            row("40 runs of 101 turns at once, wall", [wall])
            row("of these a run, CPU time with its children", cpu)
            row("of these a run, peak memory", peak, "MB", 1 / 1024)
    finally:
        for path in trees:
            shutil.rmtree(path, ignore_errors=True)


def timed(command):
    begun = time.perf_counter()
    subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
    return time.perf_counter() - begun


main()
