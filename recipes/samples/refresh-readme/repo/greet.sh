#!/bin/sh
# Greets whoever is named.
case ${1-} in
  --help)
    echo "usage: greet.sh [--loud] NAME"
    echo "  --loud  in capitals"
    ;;
  --loud) echo "HELLO, $2!" | tr '[:lower:]' '[:upper:]' ;;
  *) echo "Hello, $1!" ;;
esac
