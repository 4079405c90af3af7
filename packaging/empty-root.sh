#!/usr/bin/env bash
# Shows that a program needs nothing around it: in a root directory that holds the program, a hosts file and the libraries that
# it names (none where it is static), it starts, resolves a name, and speaks to a service of that name.
#
# usage: packaging/empty-root.sh BINARY        (as root, or where user namespaces are allowed)
set -euo pipefail
[ $# -eq 1 ] || { sed -n '5s/^# //p' "$0" >&2; exit 2; }
binary=$(realpath "$1")
root=$(mktemp -d)
service=
trap 'rm -rf "$root"; [ -z "$service" ] || kill "$service" 2>/dev/null || true' EXIT
mkdir -p "$root/etc" "$root/tmp" "$root/proc" "$root/dev" "$root/work" "$root/home"
install -m 755 "$binary" "$root/overnight"
ldd "$binary" 2>/dev/null | grep -o '/[^ ]*' | while read -r library; do
  install -D -m 755 "$library" "$root$library"
done || true
printf '127.0.0.1 service.test\n' > "$root/etc/hosts"
: > "$root/dev/null"

# A service that refuses every request, and writes down that it was asked.
python3 - "$root/asked" <<'PYTHON' &
import http.server, sys
class Handler(http.server.BaseHTTPRequestHandler):
    def do_POST(self):
        open(sys.argv[1], "a").write(self.headers["Host"] + "\n")
        self.send_response(401); self.send_header("content-length", "2"); self.end_headers(); self.wfile.write(b"{}")
    def log_message(self, *_): pass
server = http.server.HTTPServer(("127.0.0.1", 0), Handler)
open(sys.argv[1] + ".port", "w").write(str(server.server_port))
server.serve_forever()
PYTHON
service=$!
for _ in $(seq 100); do [ -s "$root/asked.port" ] && break; sleep 0.1; done
port=$(cat "$root/asked.port")

chroot=$(PATH="$PATH:/usr/sbin:/sbin" command -v chroot)
inside=("$chroot" "$root")
[ "$(id -u)" = 0 ] || inside=(unshare --user --map-root-user --mount "$chroot" "$root")
within() { env -i HOME=/home OPENAI_API_KEY=k-0123456789 "${inside[@]}" /overnight -C /work "$@"; }
within --version
within policy check builtin:python >/dev/null
code=0
said=$(within run -p hi --model openai/m --base-url "http://service.test:$port/v1" --format json 2>&1) || code=$?
grep -q '^service.test:' "$root/asked" 2>/dev/null || { echo "the service was not asked (code $code)"; echo "$said"; exit 1; } >&2
echo "an empty root is enough: the name was resolved and the service asked"
