#!/usr/bin/env bash
# Runs a recipe, writes the outputs of the step and the job's summary. Ends with 0 always: a later step of the action fails.
set -euo pipefail

out=$RUNNER_TEMP/overnight
rm -rf "$out"
words=(run "$INPUT_RECIPE" --workspace "$INPUT_WORKSPACE" --out "$out" --format json)
while IFS= read -r line; do
  [ -z "$line" ] || words+=(--policy "$line")
done <<< "$INPUT_POLICY"
while IFS= read -r line; do
  [ -z "$line" ] || words+=(--param "$line")
done <<< "$INPUT_PARAMS"
[ -z "$INPUT_MODEL" ] || words+=(--model "$INPUT_MODEL")
[ -z "$INPUT_INPUT" ] || words+=(--input "$INPUT_INPUT")
[ -z "$INPUT_MAX_COST" ] || words+=(--max-cost "$INPUT_MAX_COST")
[ -z "$INPUT_MAX_WALL" ] || words+=(--max-wall "$INPUT_MAX_WALL")
[ "$INPUT_ISOLATE" != true ] || words+=(--isolate)

result=$(mktemp "$RUNNER_TEMP/overnight-result.XXXXXX")
code=0
overnight "${words[@]}" > "$result" || code=$?

# A word of a closed list and a number: nothing that a model wrote gets into the outputs.
verdict=$(jq -r '.verdict // empty' "$result" 2>/dev/null | tr -cd 'a-z_' | head -c 20) || verdict=
cost=$(jq -r '.cost // empty | tostring' "$result" 2>/dev/null | tr -cd '0-9.' | head -c 20) || cost=
patch=
[ ! -f "$out/changes.patch" ] || patch=$out/changes.patch
run=
[ ! -d "$out" ] || run=$out
{
  echo "exit-code=$code"
  echo "verdict=$verdict"
  echo "cost=$cost"
  echo "patch=$patch"
  echo "run=$run"
} >> "$GITHUB_OUTPUT"

# A summary of a job may have 1 MiB.
if [ -f "$out/summary.md" ]; then
  head -c 1000000 "$out/summary.md" >> "$GITHUB_STEP_SUMMARY"
fi
