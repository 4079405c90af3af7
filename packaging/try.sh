#!/usr/bin/env bash
# Makes the packages of a built program and tries each as a user gets it: the archive unpacked, the wheel in a fresh virtual
# environment, the npm packages in a fresh folder. Each must run a sample, without a key and without network.
#
# usage: packaging/try.sh BINARY [TARGET] [OUT]
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -ge 1 ] || { sed -n '5s/^# //p' "$0" >&2; exit 2; }
binary=$(realpath "$1") target=${2:-$(uname -m)-unknown-linux-gnu}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
out=${3:-$work/out}
"$here/package.sh" "$binary" "$target" "$out" >/dev/null
(cd "$out" && sha256sum --check --quiet SHA256SUMS)

# A home and a PATH of its own, so that nothing of this machine's is taken for the package's.
tried() {
  local name=$1 program=$2 home=$work/home-$1
  mkdir -p "$home"
  local -a clean=(env -i HOME="$home" PATH="${3:+$3:}/usr/local/bin:/usr/bin:/bin")
  [ "$("${clean[@]}" "$program" --version)" = "$("$binary" --version)" ] || { echo "$name: another version" >&2; exit 1; }
  (cd "$home" && "${clean[@]}" "$program" run builtin:fix-tests --sample --out "$home/run" >"$home/log" 2>&1) ||
    { echo "$name: the sample failed" >&2; cat "$home/log" >&2; exit 1; }
  [ -s "$home/run/changes.patch" ] || { echo "$name: the sample left no patch" >&2; exit 1; }
  echo "$name: the sample passed"
}

mkdir "$work/archive"
tar -C "$work/archive" -xzf "$out"/overnight-*.tar.gz
tried archive "$(echo "$work"/archive/*/overnight)"
[ -s "$(echo "$work"/archive/*/man)/overnight-run.1" ] && [ -s "$(echo "$work"/archive/*/completions)/overnight.bash" ]

python3 -m venv "$work/venv"
"$work/venv/bin/python" -m pip install --quiet --disable-pip-version-check --no-index "$out"/*.whl
tried wheel "$work/venv/bin/overnight"

mkdir "$work/node"
(cd "$work/node" && npm init --yes >/dev/null 2>&1 &&
  npm install --silent --no-audit --no-fund --offline --omit=optional "$out"/overnight-runner-linux-*.tgz &&
  npm install --silent --no-audit --no-fund --offline --omit=optional "$out"/overnight-runner-[0-9]*.tgz)
tried npm "$work/node/node_modules/.bin/overnight" "$(dirname "$(command -v node)")"
