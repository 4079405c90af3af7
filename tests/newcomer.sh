#!/usr/bin/env bash
# Does what a newcomer does who has only the README and the guide: an empty home, an empty environment, the program on the PATH, and
# each command of "A first recipe" as it is printed, in order, on a repository of their own. Blocks that are marked `skip:` need a key.
#
# usage: tests/newcomer.sh OVERNIGHT
set -euo pipefail
[ $# -eq 1 ] || { sed -n '5s/^# //p' "$0" >&2; exit 2; }
program=$(realpath "$1")
top=$(cd "$(dirname "$0")/.." && pwd)
guide=$top/.github/docs/src
world=$(mktemp -d)
trap 'rm -rf "$world"' EXIT
mkdir "$world/home" "$world/bin" "$world/work"
ln -s "$program" "$world/bin/overnight"

# The README must lead to the page that is followed here.
grep -q '(.github/docs/src/first-recipe.md)' "$top/README.md" || { echo "the README does not lead to the first recipe" >&2; exit 1; }

# The page as a script: shell as it stands, and each file that it shows.
{
  echo 'set -euo pipefail'
  echo 'overnight --version'
  echo 'overnight doctor'
  awk '
    /^```/ && !inside {
      info = $0; sub(/^```/, "", info)
      inside = 1; kind = ""
      if (info ~ /skip:/) next
      if (info == "sh") { kind = "sh"; next }
      if (match(info, /(file|policy|recipe)=[^ ]+/)) {
        name = substr(info, RSTART, RLENGTH); sub(/^[a-z]+=/, "", name)
        kind = "file"
        print "cat > \"" name "\" <<'\''END OF FILE'\''"
      }
      next
    }
    /^```$/ && inside { if (kind == "file") print "END OF FILE"; inside = 0; kind = ""; next }
    inside && kind != "" { print }
  ' "$guide/first-recipe.md"
  # The patch was applied, the tests pass, and the report is there to be opened.
  echo 'python3 -m unittest discover'
  echo 'git diff --stat'
  echo 'ls .overnight/runs/*/report.html .overnight/runs/*/junit.xml'
} > "$world/script"
grep -q 'overnight run ' "$world/script" || { echo "no command was found in the guide" >&2; exit 1; }

path=$world/bin
for needed in git python3 bash; do
  path=$path:$(dirname "$(command -v "$needed")")
done
if ! (cd "$world/work" && env -i HOME="$world/home" PATH="$path:/usr/bin:/bin" bash "$world/script" > "$world/log" 2>&1); then
  cat "$world/log" >&2
  echo "the guide cannot be followed as it is printed" >&2
  exit 1
fi
left=$(ls -A "$world/home")
echo "the first recipe works as it is printed; the home has: ${left:-nothing}"
