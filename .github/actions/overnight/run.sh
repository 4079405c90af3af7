#!/usr/bin/env bash
# Runs a recipe. The program itself writes the outputs of the step, the job's summary and annotations (`--github`). Ends with 0 always:
# a later step of the action fails.
set -euo pipefail

# Anything else would silently mean the weaker of the two.
for name in isolate fail; do
  value=INPUT_${name^^}
  case ${!value:-true} in
    true | false) ;;
    *) echo "::error::'$name' must be true or false"; exit 2 ;;
  esac
done

out=$RUNNER_TEMP/overnight
rm -rf "$out"
words=(run "$INPUT_RECIPE" --workspace "$INPUT_WORKSPACE" --out "$out" --github)
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
[ "${INPUT_ISOLATE:-true}" != true ] || words+=(--isolate)

code=0
overnight "${words[@]}" || code=$?
# What the later steps go by, also where the program was killed or its command line was wrong.
{
  echo "code=$code"
  [ ! -d "$out" ] || echo "upload=$out"
} >> "$GITHUB_OUTPUT"
