"""Opens YAML files in yaml-language-server as an editor does, and prints what the editor would show, as JSON.

usage: editor.py SERVER SCHEMAS FILE...

SCHEMAS is a directory with the schemas by their file names; the server asks its editor for what the first line of a file
names. For each file: the diagnostics as it is, the keys offered in an empty line at its end, what is said of its first
key, the keys offered in a new entry of the list at its end (null where it ends otherwise), and the diagnostics with a
wrong key added.
"""
import json
import pathlib
import subprocess
import sys

server, schemas = sys.argv[1], pathlib.Path(sys.argv[2])
child = subprocess.Popen(["node", server, "--stdio"], stdin=subprocess.PIPE, stdout=subprocess.PIPE)
diagnostics = {}
answers = {}
asked = set()


def send(message):
    body = json.dumps({"jsonrpc": "2.0", **message}).encode()
    child.stdin.write(b"Content-Length: %d\r\n\r\n" % len(body) + body)
    child.stdin.flush()


def take():
    """Reads one message and answers it where it is a request."""
    length = 0
    while (line := child.stdout.readline().strip()):
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    if not length:
        sys.exit("the server ended")
    message = json.loads(child.stdout.read(length))
    method = message.get("method")
    if method == "textDocument/publishDiagnostics":
        diagnostics[message["params"]["uri"]] = [one["message"] for one in message["params"]["diagnostics"]]
    elif method == "workspace/configuration":
        send({"id": message["id"], "result": [settings.get(item["section"], {}) for item in message["params"]["items"]]})
    elif method == "vscode/content":
        uri = message["params"] if isinstance(message["params"], str) else message["params"][0]
        asked.add(uri)
        file = schemas / uri.rsplit("/", 1)[-1]
        if file.is_file():
            send({"id": message["id"], "result": file.read_text()})
        else:
            send({"id": message["id"], "error": {"code": -32000, "message": "no such schema: " + uri}})
    elif method and "id" in message:
        send({"id": message["id"], "result": None})
    elif "id" in message:
        answers[message["id"]] = message.get("result", message.get("error"))


def ask(number, method, params):
    send({"id": number, "method": method, "params": params})
    while number not in answers:
        take()
    return answers.pop(number)


def shown(uri):
    """The diagnostics of the text that was sent last."""
    while uri not in diagnostics:
        take()
    return diagnostics[uri]


def labels(document, line, character):
    """The keys that completion offers at this place."""
    global number
    number += 1
    offered = ask(number, "textDocument/completion", {**document, "position": {"line": line, "character": character}})
    offered = offered.get("items", []) if isinstance(offered, dict) else offered or []
    return sorted({item["label"] for item in offered})


def change(uri, version, text):
    diagnostics.pop(uri, None)
    send({"method": "textDocument/didChange",
          "params": {"textDocument": {"uri": uri, "version": version}, "contentChanges": [{"text": text}]}})


settings = {"yaml": {"validate": True, "hover": True, "completion": True, "schemaStore": {"enable": False}}, "[yaml]": {}}
ask(1, "initialize", {
    "processId": None,
    "rootUri": None,
    "capabilities": {"workspace": {"configuration": True}, "textDocument": {"hover": {"contentFormat": ["markdown"]}}},
})
send({"method": "initialized", "params": {}})
send({"method": "yaml/registerContentRequest", "params": None})
send({"method": "workspace/didChangeConfiguration", "params": {"settings": settings}})
number = 1
for path in sys.argv[3:]:
    uri = "file://" + path
    text = pathlib.Path(path).read_text()
    lines = text.splitlines()
    keys = [n for n, line in enumerate(lines) if line and line[0] not in "#- "]
    first, last = keys[0], keys[-1]
    send({"method": "textDocument/didOpen",
          "params": {"textDocument": {"uri": uri, "languageId": "yaml", "version": 1, "text": text}}})
    found = {"file": path, "problems": shown(uri)}
    document = {"textDocument": {"uri": uri}}
    found["offered"] = labels(document, len(lines), 0)
    number += 1
    said = ask(number, "textDocument/hover", {**document, "position": {"line": first, "character": 1}})
    found["said"] = json.dumps(said, ensure_ascii=False)
    found["entry"] = None
    if lines[last].endswith(":") and lines[-1] != lines[last] and lines[last + 1].startswith("  - "):
        change(uri, 2, "\n".join(lines) + "\n  - ")
        found["entry"] = labels(document, len(lines), 4)
        shown(uri)
    change(uri, 3, text + "\nstepps: 1\n")
    found["wrong"] = shown(uri)
    send({"method": "textDocument/didClose", "params": document})
    print(json.dumps(found, ensure_ascii=False), flush=True)
print(json.dumps({"asked": sorted(asked)}))
child.kill()
