#!/usr/bin/env bash
# Installs, builds and runs the tests; ends with ctest's summary.
#   ./tests/run.sh           the quick tier (under 15 minutes on 2 cores from nothing)
#   ./tests/run.sh --full    everything: quick and full tiers, CUDA compilation where an nvcc is, format, protos, sanitizers, fuzzing
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

tier=quick
case "${1:-}" in
  "") ;;
  --full) tier=full ;;
  *) echo "usage: tests/run.sh [--full]" >&2; exit 2 ;;
esac

jobs=$(nproc)
# Objects are found again from another checkout of the same sources: paths under this one are taken as relative.
export CCACHE_BASEDIR=$PWD CCACHE_NOHASHDIR=1
table=()
started=$SECONDS
stage_started=$SECONDS

# Closes the running stage in the time table.
stage_done() {
  table+=("$(printf '%6d s  %s' $((SECONDS - stage_started)) "$1")")
  stage_started=$SECONDS
}

print_table() {
  echo
  echo "time table:"
  printf '%s\n' "${table[@]}"
  printf '%6d s  total\n' $((SECONDS - started))
}

build() {  # preset, then optional targets
  local preset=$1
  shift
  cmake --preset "$preset" >"build/$preset.configure.log" 2>&1 || { cat "build/$preset.configure.log"; exit 1; }
  cmake --build --preset "$preset" -j "$jobs" ${1:+--target "$@"}
}

mkdir -p build
if [ "$tier" = full ]; then
  deploy/install_packages.sh --with-developer-tools
else
  deploy/install_packages.sh
fi
stage_done "packages"

if [ "$tier" = quick ]; then
  build release
  stage_done "build release"
  status=0
  ctest --test-dir build/release -L quick -j "$jobs" --output-on-failure || status=$?
  print_table
  exit "$status"
fi

tests/check_format.sh
stage_done "format"
tests/check_protos.sh
stage_done "protos"
tests/check_deployment.sh
stage_done "deployment"

# Sanitizer builds are CPU only and run the tests named here: those with threads, hand-written memory or outside input.
source tests/sanitizer_tests.sh
for preset in asan-ubsan tsan; do
  declare -n names="${preset//-/_}_tests"
  build "$preset" "${names[@]}"
  stage_done "build $preset"
  TSAN_OPTIONS="suppressions=$PWD/tests/tsan.suppressions halt_on_error=1" \
    UBSAN_OPTIONS=print_stacktrace=1 \
    ctest --test-dir "build/$preset" -R "^($(IFS='|'; echo "${names[*]}"))\$" -j "$jobs" --output-on-failure
  stage_done "test $preset (${#names[@]} tests)"
done

tests/fuzz/run.sh --seconds 60
stage_done "fuzz (60 s a target)"

build release
stage_done "build release"
# Last, so that ctest's summary closes the run.
status=0
ctest --test-dir build/release -j "$jobs" --output-on-failure --no-tests=error >build/ctest.log 2>&1 || status=$?
cat build/ctest.log
stage_done "test release (all tiers)"
print_table
echo
tail -n 40 build/ctest.log | sed -n '/tests passed/,$p'
exit "$status"
