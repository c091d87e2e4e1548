#!/usr/bin/env bash
# Lints the protos (buf STANDARD + COMMENTS) and checks them against the last released image (rule FILE).
# After a deliberate, compatible change: tests/check_protos.sh --accept writes the new image.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tests/developer_tools.sh
buf="$tools/bin/buf"
cd proto
if [ "${1:-}" = "--accept" ]; then
  "$buf" build -o released.binpb
fi
"$buf" lint
"$buf" breaking --against released.binpb
echo "protos: lint and breaking checks passed"
