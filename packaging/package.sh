#!/usr/bin/env bash
# Makes what is published of a built program: the archive, the Python wheel, the npm packages and their checksums.
#
# usage: packaging/package.sh BINARY TARGET OUT
#   BINARY  a built `overnight` that runs on this machine
#   TARGET  its target, as x86_64-unknown-linux-musl
#   OUT     a directory that does not exist yet, or is empty
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
[ $# -eq 3 ] || { sed -n '4,7s/^# \{0,1\}//p' "$0" >&2; exit 2; }
binary=$(realpath "$1") target=$2 out=$3

version=$("$binary" --version | awk '{print $2}')
declared=$(sed -n 's/^version = "\(.*\)"$/\1/p' "$here/../Cargo.toml" | head -n 1)
[ "$version" = "$declared" ] || { echo "the program is $version, Cargo.toml says $declared" >&2; exit 1; }
mkdir -p "$out"
[ -z "$(ls -A "$out")" ] || { echo "$out is not empty" >&2; exit 1; }
out=$(realpath "$out")
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
# The same input gives the same bytes: names in order, one time, nobody's user id.
stamp=${SOURCE_DATE_EPOCH:-$(git -C "$here" log -1 --format=%ct 2>/dev/null || echo 1)}

# The archive: program, licence, manual pages, completions.
name=overnight-$version-$target
mkdir -p "$work/$name/completions"
install -m 755 "$binary" "$work/$name/overnight"
install -m 644 "$here/../LICENSE" "$here/../README.md" "$work/$name/"
"$binary" man --dir "$work/$name/man" >/dev/null
for shell in bash zsh fish; do
  "$binary" completions "$shell" --fixed > "$work/$name/completions/overnight.$shell"
done
tar -C "$work" --sort=name --mtime="@$stamp" --owner=0 --group=0 --numeric-owner -cf - "$name" | gzip -n > "$out/$name.tar.gz"

# The wheel.
python3 "$here/wheel.py" "$binary" "$target" "$out" "$stamp"

# npm: one package with the program for this platform, and the launcher that names all of them.
case $target in
  x86_64-*) cpu=x64 ;;
  aarch64-*) cpu=arm64 ;;
  *) echo "npm has no name for the processor of $target" >&2; exit 1 ;;
esac
mkdir -p "$work/platform/bin" "$work/launcher"
install -m 755 "$binary" "$work/platform/bin/overnight"
cp -r "$here/npm/." "$work/launcher/"
install -m 644 "$here/../LICENSE" "$work/platform/"
install -m 644 "$here/../LICENSE" "$here/../README.md" "$work/launcher/"
sed "s/0\.0\.0/$version/g" "$here/npm/package.json" > "$work/launcher/package.json"
cat > "$work/platform/package.json" <<JSON
{
  "name": "overnight-runner-linux-$cpu",
  "version": "$version",
  "description": "The program of overnight-runner for Linux on $cpu.",
  "license": "MIT",
  "os": ["linux"],
  "cpu": ["$cpu"],
  "files": ["bin"]
}
JSON
for package in platform launcher; do
  (cd "$work/$package" && npm pack --silent --pack-destination "$out" >/dev/null)
done

(cd "$out" && sha256sum -- * > SHA256SUMS)
cat "$out/SHA256SUMS"
