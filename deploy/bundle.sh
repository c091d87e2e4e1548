#!/usr/bin/env bash
# See usage() below; tests/deploy/bundle_test.py unpacks a bundle and runs it.
set -euo pipefail
usage() {
  cat <<'USAGE'
usage: deploy/bundle.sh [--gpu] OUT.tar.gz

Packs the built programs with every shared library they need, except libc's and the compiler's, so that they run on another
Linux x86-64 machine of at least the same glibc, from any folder and without an environment variable:
  deploy/bundle.sh OUT.tar.gz          the three services and the client, their configs and the shipped pair of models
  deploy/bundle.sh --gpu OUT.tar.gz    the GPU tests and benches, and the C library with its header, as well

Programs come from ARBORIST_BIN, else from bin/ of the build folder ARBORIST_BINARY_DIR, else from build/release/bin. The bundle's
bin/COMMIT is what their build wrote, or "unknown" where a program is newer than that.
USAGE
}
gpu=false
case ${1:-} in
  --help | -h) usage; exit 0 ;;
  --gpu) gpu=true; shift ;;
esac
case $#${1:-} in
  0* | 1 | 1-* | [2-9]*) usage >&2; exit 2 ;;
esac
out=$(realpath -m "$1")
build="cmake --preset release && cmake --build --preset release"
here=$(realpath "$(dirname "${BASH_SOURCE[0]}")/..")
built=$(realpath -m "${ARBORIST_BIN:-${ARBORIST_BINARY_DIR:-$here/build/release}/bin}")
cd "$here"
names=(arborist arborist-coordinator arborist-drafter arborist-verifier)
lists=()
if $gpu; then
  lists=("$built/cuda_tests.txt" "$built/cuda_benches.txt")
  [ -f "${lists[0]}" ] || { echo "${lists[0]} is missing, expected a build with CUDA" >&2; exit 1; }
  mapfile -t more < <(sed '/^$/d' "${lists[@]}")
  names+=("${more[@]}" gate_test pair_gate)
fi

commit=$(cat "$built/COMMIT" 2>/dev/null || echo unknown)
for name in "${names[@]}"; do
  [ -x "$built/$name" ] || { echo "$built/$name is missing: $build" >&2; exit 1; }
  if [ "$commit" != unknown ] && [ "$built/$name" -nt "$built/COMMIT" ]; then
    echo "warning: $built/$name is newer than COMMIT beside it" >&2
    commit=unknown
  fi
done
head=$(git rev-parse --short=12 HEAD 2>/dev/null || echo unknown)
if [ "$commit" = unknown ]; then
  echo "warning: nobody knows which sources the programs are of; a whole build says it: $build" >&2
elif [ "$commit" != "$head" ]; then
  echo "warning: the programs are of commit $commit, this checkout, of which configs and models are, is at $head" >&2
fi

stage=$(mktemp -d)
trap 'rm -rf "$stage"' EXIT
mkdir -p "$stage/arborist/bin" "$stage/arborist/lib" "$stage/arborist/models"
for name in "${names[@]}"; do strip -s -o "$stage/arborist/bin/$name" "$built/$name"; done
if $gpu; then  # for tests/capi/torch_test.py, and for other engines
  mkdir "$stage/arborist/include"
  strip -s -o "$stage/arborist/lib/libarborist_kernels.so" "$built/../lib/libarborist_kernels.so"
  cp kernels/capi/arborist_kernels.h "$stage/arborist/include/"
fi
for list in ${lists[@]+"${lists[@]}"}; do cp "$list" "$stage/arborist/bin/"; done
# The programs look in ../lib first (an rpath of the build), so nothing has to be set.
for name in "${names[@]}"; do ldd "$built/$name"; done | awk '/=> \//{print $3}' | sort -u |
  grep -vE '/(ld-linux[^/]*|libc|libm|libdl|librt|libpthread|libstdc\+\+|libgcc_s)\.so' |
  while read -r library; do
    cp -L "$library" "$stage/arborist/lib/"
    strip -s "$stage/arborist/lib/$(basename "$library")" 2>/dev/null || true
  done
# A config's paths begin where its process was started: in a bundle that is its top folder.
cp -r deploy/config "$stage/arborist/config"
sed -i 's|"deploy/models/|"models/|' "$stage"/arborist/config/*.textproto
cp -r deploy/models/arborist-tiny "$stage/arborist/models/"
cp deploy/bundle_readme.txt "$stage/arborist/README.txt"
echo "$commit" >"$stage/arborist/bin/COMMIT"
mkdir -p "$(dirname "$out")"
tar -C "$stage" -czf "$out" arborist
echo "$out: $(du -h "$out" | cut -f1), ${#names[@]} programs, $(ls "$stage/arborist/lib" | wc -l) libraries, commit $commit"
