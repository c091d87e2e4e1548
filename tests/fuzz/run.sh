#!/usr/bin/env bash
# Builds the fuzz targets and runs each for a while, as many at a time as there are processors, at most two. Ends with 1 if one
# of them crashed, hung or ran out of memory; the input is then under build/fuzz/findings, to be tried again with
#   build/fuzz/bin/TARGET build/fuzz/findings/FILE
# and, when mended, to be kept in tests/fuzz/seeds. What the runs learn stays in build/fuzz/corpus and speeds up the next.
#   tests/fuzz/run.sh [--seconds N] [TARGET...]      default: 60 seconds each of all targets
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."

seconds=60
if [ "${1:-}" = --seconds ]; then
  seconds=$2
  shift 2
fi
bin=${ARBORIST_FUZZ_BIN:-build/fuzz/bin}
if [ -z "${ARBORIST_FUZZ_BIN:-}" ]; then
  mkdir -p build
  cmake --preset fuzz >build/fuzz.configure.log 2>&1 || { cat build/fuzz.configure.log; exit 1; }
  cmake --build --preset fuzz -j "$(nproc)" --target arborist_fuzz_targets
fi
targets=("$@")
if [ ${#targets[@]} -eq 0 ]; then
  mapfile -t targets < <(basename -a "$bin"/*_fuzz)
fi

out=build/fuzz
mkdir -p "$out/findings" "$out/logs"
rm -f "$out"/findings/* "$out"/logs/*

fuzz() {  # one target
  local name=$1 seeds=tests/fuzz/seeds/${1%_fuzz} dictionary=tests/fuzz/dictionaries/${1%_fuzz}.dict status=0
  mkdir -p "$out/corpus/$name"
  "$bin/$name" "$out/corpus/$name" "$seeds" -max_total_time="$seconds" -max_len=8192 -timeout=60 -rss_limit_mb=2560 -print_final_stats=1 \
    $([ -e "$dictionary" ] && echo "-dict=$dictionary") -artifact_prefix="$out/findings/$name-" >"$out/logs/$name.log" 2>&1 || status=$?
  if [ "$status" -ne 0 ]; then
    echo "$status" >"$out/findings/$name.failed"
  fi
}

parallel=$(nproc)
parallel=$((parallel < 2 ? parallel : 2))
for name in "${targets[@]}"; do
  while [ "$(jobs -rp | wc -l)" -ge "$parallel" ]; do
    wait -n || true
  done
  fuzz "$name" &
done
wait

for name in "${targets[@]}"; do
  log=$out/logs/$name.log
  executions=$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")
  coverage=$(sed -n 's/.* cov: \([0-9]*\) .*/\1/p' "$log" | tail -n 1)
  printf '%-22s %9s executions, %5s edges\n' "$name" "${executions:-0}" "${coverage:-0}"
done
failed=0
for name in "${targets[@]}"; do
  if [ -e "$out/findings/$name.failed" ]; then
    failed=1
    echo "FAILED: $name (status $(cat "$out/findings/$name.failed"))"
    grep -E 'check failed|runtime error|ERROR:|SUMMARY|Base64' "$out/logs/$name.log" | head -n 8 || true
    ls "$out/findings/$name"-* 2>/dev/null || true
  fi
done
exit "$failed"
