#!/usr/bin/env bash
# Runs all tests N times (default 10), each time with another seed of the properties; stops at the first failure and says
# which seed it was. `PROPTEST_RNG_SEED=SEED cargo test` makes the same cases again. At the end it says how many tests have
# passed, counting a test once for each time.
set -euo pipefail
cd "$(dirname "$0")/.."

times=${1:-10}
case $times in
'' | *[!0-9]* | 0) echo "usage: tests/fresh.sh [TIMES]" >&2 && exit 2 ;;
esac

# Built once; the seed is read when the tests run.
mapfile -t built < <(cargo test --no-run --message-format=json 2>/dev/null |
  python3 -c '
import json, sys
for line in sys.stdin:
    if line.startswith("{"):
        message = json.loads(line)
        if message.get("profile", {}).get("test") and message.get("executable"):
            print(message["executable"])
')
[ "${#built[@]}" -gt 0 ] || { echo "the tests do not build: cargo test --no-run says why" >&2; exit 1; }

passed=0
log=$(mktemp)
trap 'rm -f "$log"' EXIT
for ((n = 1; n <= times; n++)); do
  seed=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ')
  for test in "${built[@]}"; do
    echo "== $n of $times, seed $seed: $(basename "$test")"
    if ! PROPTEST_RNG_SEED=$seed "$test" --quiet | tee "$log"; then
      echo "failed with PROPTEST_RNG_SEED=$seed in $test" >&2
      exit 1
    fi
    count=$(sed -nE 's/^test result: ok\. ([0-9]+) passed.*/\1/p' "$log")
    passed=$((passed + ${count:-0}))
  done
done
echo "$times times without a failure: $passed tests passed, in ${#built[@]} programs each time"
