#!/usr/bin/env bash
# Installs what a build and a test run need on Debian 12, and nothing when all is there. Needs root only to install.
#   deploy/install_packages.sh [--build-only | --with-developer-tools]
set -euo pipefail

packages=(
  g++ cmake ninja-build ccache pkg-config python3          # build
  libgrpc++-dev libgrpc-dev protobuf-compiler-grpc         # the services
  libprotobuf-dev protobuf-compiler libabsl-dev
  libpcre2-dev libutf8proc-dev libssl-dev                  # tokenizer patterns and normal forms; checkpoint hashes
  prometheus-cpp-dev                                       # metrics
  libgtest-dev libgmock-dev libbenchmark-dev               # tests and benchmarks
)
case "${1:-}" in
  --build-only) ;;
  *) packages+=(prometheus python3-yaml                    # tests: what the processes serve, and what deploy/ says
       python3-grpcio python3-protobuf) ;;               # tests: a Python client
esac
if [ "${1:-}" = "--with-developer-tools" ]; then
  packages+=(clang-format-14 git
    python3-venv                                           # lint tools of tests/developer-requirements.txt
    clang-16 libclang-rt-16-dev)                           # fuzzing: libFuzzer (14 lacks std::source_location)
  command -v kubectl >/dev/null || packages+=(kubernetes-client)  # kubectl kustomize: 1.20 is enough; other packages have it, too
fi

missing=()
for package in "${packages[@]}"; do
  dpkg-query -W -f='${Status}' "$package" 2>/dev/null | grep -q 'ok installed' || missing+=("$package")
done
if [ ${#missing[@]} -eq 0 ]; then
  exit 0
fi
if [ "$(id -u)" -ne 0 ]; then
  echo "missing packages: ${missing[*]}; run as root, or: apt-get install ${missing[*]}" >&2
  exit 1
fi
echo "installing: ${missing[*]}"
export DEBIAN_FRONTEND=noninteractive
apt-get update -qq
apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
