#!/usr/bin/env bash
# Lints the protos (buf STANDARD + COMMENTS) and checks them against the last released image (rule FILE).
# After a deliberate, compatible change: tests/check_protos.sh --accept writes the new image.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
tools=build/developer-tools
if [ ! -x "$tools/bin/buf" ]; then
  python3 -m venv "$tools" 2>/dev/null || { apt-get install -y -qq --no-install-recommends python3-venv >/dev/null; /usr/bin/python3 -m venv "$tools"; }
  "$tools/bin/pip" install --quiet --disable-pip-version-check -r tests/developer-requirements.txt
fi
buf="$tools/bin/buf"
cd proto
if [ "${1:-}" = "--accept" ]; then
  "../$buf" build -o released.binpb
fi
"../$buf" lint
"../$buf" breaking --against released.binpb
echo "protos: lint and breaking checks passed"
