#!/usr/bin/env bash
# Runs what needs a GPU, and keeps the result as JSON under tests/gpu/results/.
#   tests/gpu/run.sh --check      every test with a GPU part
#   tests/gpu/run.sh --sanitize   the same under compute-sanitizer: memcheck, racecheck, initcheck
#   tests/gpu/run.sh --gate       the exactness gate and its planted faults on the device, with both models
#   tests/gpu/run.sh --bench      every kernel bench: figure, floor, ratio
# Programs come from build/release/bin, or from ARBORIST_BIN (a bundle of deploy/bundle.sh needs no build). Each mode ends
# in under 9 minutes.
set -euo pipefail
exec python3 "$(dirname "${BASH_SOURCE[0]}")/gpu_run.py" "$@"
