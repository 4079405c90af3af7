#!/usr/bin/env bash
# Puts a release of overnight onto the PATH of the following steps. Its words come from the environment, never from a text.
#   install.sh place     says where the program goes, for the cache
#   install.sh install   fetches it where the cache has none, holds it against its digest
set -euo pipefail

version=$INPUT_VERSION
if [ "$version" = path ]; then
  command -v overnight >/dev/null || { echo "::error::overnight is not on the PATH; name a release in 'version'"; exit 8; }
  exit 0
fi
[[ $version =~ ^[0-9]+\.[0-9]+\.[0-9]+([.-][0-9A-Za-z.-]+)?$ ]] || { echo "::error::'version' must be one as 0.1.0, or path"; exit 2; }
case $(uname -m) in
  x86_64) target=x86_64-unknown-linux-musl ;;
  aarch64 | arm64) target=aarch64-unknown-linux-musl ;;
  *) echo "::error::there is no release of overnight for $(uname -m)"; exit 8 ;;
esac
directory=${RUNNER_TOOL_CACHE:-$RUNNER_TEMP}/overnight/$version/$target

if [ "$1" = place ]; then
  echo "directory=$directory" >> "$GITHUB_OUTPUT"
  exit 0
fi
if [ ! -x "$directory/overnight" ]; then
  [[ $INPUT_REPOSITORY =~ ^[A-Za-z0-9._-]+/[A-Za-z0-9._-]+$ ]] || { echo "::error::'repository' must be OWNER/NAME"; exit 2; }
  name=overnight-$version-$target
  base=$GITHUB_SERVER_URL/$INPUT_REPOSITORY/releases/download/v$version
  work=$(mktemp -d "$RUNNER_TEMP/overnight-install.XXXXXX")
  fetch() { curl --fail --silent --show-error --location --retry 3 --max-time 300 --output "$work/$1" "$base/$1"; }
  fetch "$name.tar.gz"
  if [ -n "$INPUT_SHA256" ]; then
    printf '%s  %s\n' "$INPUT_SHA256" "$name.tar.gz" > "$work/expected"
  else
    fetch SHA256SUMS
    grep -F "  $name.tar.gz" "$work/SHA256SUMS" > "$work/expected"
  fi
  (cd "$work" && sha256sum --check --quiet expected) || { echo "::error::the archive is not the one that its digest names"; exit 8; }
  tar -C "$work" -xzf "$work/$name.tar.gz"
  mkdir -p "$directory"
  install -m 755 "$work/$name/overnight" "$directory/overnight"
  rm -rf "$work"
fi
echo "$directory" >> "$GITHUB_PATH"
