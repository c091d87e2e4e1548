#!/usr/bin/env bash
# Packs the built programs with every shared library they need, except libc's and the compiler's, so that they run on another
# Linux x86-64 machine of at least the same glibc, from any folder and without an environment variable:
#   deploy/bundle.sh OUT.tar.gz          the three services and the client
#   deploy/bundle.sh --gpu OUT.tar.gz    the GPU tests and benches, and the C library, as well
set -euo pipefail
gpu=false
if [ "${1:-}" = --gpu ]; then
  gpu=true
  shift
fi
[ $# -eq 1 ] || { echo "usage: deploy/bundle.sh [--gpu] OUT.tar.gz" >&2; exit 2; }
out=$(realpath -m "$1")
cd "$(dirname "${BASH_SOURCE[0]}")/.."
built=${ARBORIST_BINARY_DIR:-build/release}/bin
names=(arborist arborist-coordinator arborist-drafter arborist-verifier)
lists=()
if $gpu; then
  lists=("$built/cuda_tests.txt" "$built/cuda_benches.txt")
  [ -f "${lists[0]}" ] || { echo "${lists[0]} is missing, expected a build with CUDA" >&2; exit 1; }
  mapfile -t more < <(sed '/^$/d' "${lists[@]}")
  names+=("${more[@]}" gate_test pair_gate)
fi

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage/arborist/bin" "$stage/arborist/lib"
for name in "${names[@]}"; do
  [ -x "$built/$name" ] || { echo "$built/$name is missing: cmake --preset release && cmake --build --preset release" >&2; exit 1; }
  strip -s -o "$stage/arborist/bin/$name" "$built/$name"
done
git rev-parse --short=12 HEAD >"$stage/arborist/bin/COMMIT" 2>/dev/null || echo unknown >"$stage/arborist/bin/COMMIT"
if $gpu; then  # for tests/capi/torch_test.py
  strip -s -o "$stage/arborist/lib/libarborist_kernels.so" "$built/../lib/libarborist_kernels.so"
fi
for list in ${lists[@]+"${lists[@]}"}; do cp "$list" "$stage/arborist/bin/"; done
# The programs look in ../lib first (an rpath of the build), so nothing has to be set.
for name in "${names[@]}"; do ldd "$built/$name"; done | awk '/=> \//{print $3}' | sort -u |
  grep -vE '/(ld-linux[^/]*|libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s)\.so' |
  while read -r library; do
    cp -L "$library" "$stage/arborist/lib/"
    strip -s "$stage/arborist/lib/$(basename "$library")" 2>/dev/null || true
  done
cp -r deploy/config "$stage/arborist/config"
mkdir -p "$(dirname "$out")"
tar -C "$stage" -czf "$out" arborist
echo "$out: $(du -h "$out" | cut -f1), ${#names[@]} programs, $(ls "$stage/arborist/lib" | wc -l) libraries, commit $(cat "$stage/arborist/bin/COMMIT")"
