"""Opens YAML files in yaml-language-server as an editor does, and prints what the editor would show, as JSON.

usage: editor.py SERVER SCHEMAS FILE...

SCHEMAS is a directory with the schemas by their file names; the server asks its editor for what the first line of a file
names. For each file: the diagnostics as it is, the keys offered in an empty line at its end, what is said of its first
key, and the diagnostics with a wrong key added.
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
    diagnostics.pop(uri, None)
    while uri not in diagnostics:
        take()
    return diagnostics[uri]


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
    first = next(n for n, line in enumerate(lines) if line and line[0] not in "#- ")
    send({"method": "textDocument/didOpen",
          "params": {"textDocument": {"uri": uri, "languageId": "yaml", "version": 1, "text": text}}})
    found = {"file": path, "problems": shown(uri)}
    document = {"textDocument": {"uri": uri}}
    number += 1
    offered = ask(number, "textDocument/completion", {**document, "position": {"line": len(lines), "character": 0}})
    offered = offered.get("items", []) if isinstance(offered, dict) else offered or []
    found["offered"] = sorted({item["label"] for item in offered})
    number += 1
    said = ask(number, "textDocument/hover", {**document, "position": {"line": first, "character": 1}})
    found["said"] = json.dumps(said, ensure_ascii=False)
    send({"method": "textDocument/didChange", "params": {
        "textDocument": {"uri": uri, "version": 2}, "contentChanges": [{"text": text + "\nstepps: 1\n"}]}})
    found["wrong"] = shown(uri)
    send({"method": "textDocument/didClose", "params": document})
    print(json.dumps(found, ensure_ascii=False), flush=True)
print(json.dumps({"asked": sorted(asked)}))
child.kill()
