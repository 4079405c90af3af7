#!/usr/bin/env bash
# Delivers the run that the artifact holds, and writes the outputs of the step.
set -euo pipefail

words=(deliver "$RUNNER_TEMP/overnight" --to "$INPUT_TO" --format json)
while IFS= read -r line; do
  [ -z "$line" ] || words+=(--policy "$line")
done <<< "$INPUT_POLICY"

result=$(mktemp "$RUNNER_TEMP/overnight-delivery.XXXXXX")
code=0
overnight "${words[@]}" > "$result" || code=$?
outcome=$(jq -rs 'first | .outcome // empty' "$result" 2>/dev/null | tr -cd 'a-z_' | head -c 30) || outcome=
url=$(jq -rs 'first | .url // empty' "$result" 2>/dev/null | head -n 1 | tr -cd 'A-Za-z0-9:/._#?=-' | head -c 500) || url=
{
  echo "outcome=$outcome"
  echo "url=$url"
} >> "$GITHUB_OUTPUT"
jq -r '"- " + .outcome + ": " + (.branch // "") + " " + (.url // .reason // "") | gsub("[\\s]+"; " ")' "$result" 2>/dev/null | tr -d '<>`@[]!' >> "$GITHUB_STEP_SUMMARY" || true
exit "$code"
