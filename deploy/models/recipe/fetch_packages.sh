#!/bin/sh
# Fetches the packages of packages.txt into the directory $1 through the configured Debian 12 mirror.
set -eu
list=$(cd "$(dirname "$0")" && pwd)/packages.txt
mkdir -p "$1"
cd "$1"
grep -v '^#' "$list" | xargs apt-get download -q
