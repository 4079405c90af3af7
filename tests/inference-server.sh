#!/usr/bin/env bash
# Drives `overnight` against a real inference server that speaks Chat Completions: llama.cpp's `llama-server`.
# Usage: tests/inference-server.sh OVERNIGHT [MODEL.gguf] [ARGUMENT…]   (LLAMA_SERVER names the program where it is not on the PATH)
# The arguments go to the server: a model whose own template knows no tools wants `--chat-template-file FILE`.
# A model of any size will do, even one that says nothing of use: what is looked at is the conversation, not its sense.
# Without a server or a model it says so and ends with 0.
set -uo pipefail
overnight=$(realpath "$1") model=${2:-${LLAMA_MODEL:-}} more=("${@:3}")
server=$(command -v "${LLAMA_SERVER:-llama-server}") || { echo "skipped: llama-server is missing"; exit 0; }
[ -n "$model" ] && [ -f "$model" ] || { echo "skipped: no model; name a .gguf file"; exit 0; }

work=$(mktemp -d)
children=()
trap 'for child in "${children[@]}"; do kill "$child" 2>/dev/null; done; wait 2>/dev/null; rm -rf "$work"' EXIT
port() { python3 -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }
real=$(port) between=$(port)

"$server" --model "$model" --host 127.0.0.1 --port "$real" --jinja --ctx-size 8192 --parallel 1 --predict 400 --temp 0 --seed 1 \
  "${more[@]}" \
  >"$work/server.log" 2>&1 &
children+=($!)
for _ in $(seq 300); do
  curl -sf "http://127.0.0.1:$real/health" >/dev/null && break
  kill -0 "${children[0]}" 2>/dev/null || { tail -n 20 "$work/server.log"; exit 1; }
  sleep 0.2
done

# Passes everything on; the first request of each conversation gets `tool_choice: required`, so that a model of any kind calls.
cat >"$work/between.py" <<'PYTHON'
import http.server, json, sys, urllib.request

class Between(http.server.BaseHTTPRequestHandler):
    def log_message(self, *_):
        pass

    def do_POST(self):
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        if body.get("tools") and body["messages"][-1]["role"] == "user":
            body["tool_choice"] = "required"
        request = urllib.request.Request(f"http://127.0.0.1:{sys.argv[2]}{self.path}", json.dumps(body).encode(), {"content-type": "application/json"})
        try:
            answer = urllib.request.urlopen(request)
        except urllib.error.HTTPError as error:
            answer = error
        self.send_response(answer.status)
        self.send_header("content-type", answer.headers["content-type"])
        self.send_header("connection", "close")
        self.end_headers()
        while piece := answer.read1(65536):
            self.wfile.write(piece)

http.server.ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Between).serve_forever()
PYTHON
python3 "$work/between.py" "$between" "$real" 2>"$work/between.log" &
children+=($!)

tree="$work/tree"
mkdir "$tree" && echo one >"$tree/a.txt"
git -C "$tree" init -q && git -C "$tree" -c user.name=t -c user.email=t@example.org add -A
git -C "$tree" -c user.name=t -c user.email=t@example.org commit -qm base
wrong=0
# run NAME PORT ARGUMENTS…: its files are in $work/NAME, its exit code in $code.
run() {
  local name=$1 to=$2
  shift 2
  (cd "$tree" && "$overnight" run --model openai/gpt-5 --base-url "http://127.0.0.1:$to/v1" --out "$work/$name" --quiet "$@") \
    >"$work/$name.out" 2>"$work/$name.err"
  code=$?
}
ask() { python3 -c "import json, sys; r = json.load(open(sys.argv[1])); print($2)" "$work/$1/result.json"; }
expect() { # WHAT FOUND WANTED
  if [ "$2" = "$3" ]; then echo "ok: $1"; else echo "WRONG: $1: $2, and $3 was expected"; wrong=$((wrong + 1)); fi
}
calls() { grep -c '"event":"call_finished"' "$work/$1/journal.jsonl"; }

# The loop: a call that is forced, its result told, and the end by the model or by a limit.
cat >"$work/loop.yaml" <<'YAML'
version: 1
name: loop
tools: { include: [list_directory] }
steps: [{ id: one, prompt: List the files of this directory. }]
YAML
run loop "$between" "$work/loop.yaml" --max-turns 2 --max-wall 5m
case $code in 0 | 6 | 7) echo "ok: the loop ended with $code" ;; *) expect "exit code of the loop" $code "0, 6 or 7" ;; esac
expect "the forced call was made" "$(calls loop | awk '{print ($1 > 0)}')" 1
expect "it is a call of the tool that there is" "$(grep '"event":"replied"' "$work/loop/journal.jsonl" | grep -c '"tool":"list_directory"' | awk '{print ($1 > 0)}')" 1
expect "tokens were counted" "$(ask loop "r['usage']['input'] > 0 and r['usage']['output'] > 0")" True

# A JSON answer by schema: enforced by the server, judged by the runner.
cat >"$work/json.yaml" <<'YAML'
version: 1
name: json
tools: { include: [] }
response: { schema: { type: object, additionalProperties: false, required: [mood], properties: { mood: { type: string, enum: [good, bad] } } } }
steps: [{ id: one, prompt: How are you? }]
YAML
run json "$real" "$work/json.yaml" --max-wall 5m
expect "exit code of the JSON answer" $code 0
expect "the answer fits its schema" "$(ask json "r['output']['mood'] in ('good', 'bad')" 2>&1)" True

# Cancellation: at once, and the server is free again.
(cd "$tree" && exec "$overnight" run -p 'Write a long story.' --model openai/gpt-5 --base-url "http://127.0.0.1:$real/v1" --out "$work/stop" --quiet) \
  >"$work/stop.out" 2>"$work/stop.err" &
child=$!
for _ in $(seq 100); do
  curl -sf "http://127.0.0.1:$real/slots" | grep -q '"is_processing": *true' && break
  sleep 0.05
done
begun=$(date +%s%N)
kill -INT $child
wait $child
expect "exit code of a cancelled run" $? 130
expect "it ended within a second" $((($(date +%s%N) - begun) / 1000000 < 1000)) 1
# A server looks whether anybody still listens when it is done with a batch of the prompt.
for _ in $(seq 600); do
  curl -sf "http://127.0.0.1:$real/slots" | grep -q '"is_processing": *true' || break
  sleep 0.05
done
expect "the server works on nothing any more" "$(curl -sf "http://127.0.0.1:$real/slots" | grep -c '"is_processing": *true')" 0
[ $wrong = 0 ] || { tail -n 5 "$work"/*.err; exit 1; }
