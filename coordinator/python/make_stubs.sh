#!/usr/bin/env bash
# Writes the Python stubs of the public API, and of the error details beside it, into a folder for PYTHONPATH:
#   coordinator/python/make_stubs.sh FOLDER
# Needs protobuf-compiler and protobuf-compiler-grpc (Debian). With grpcio-tools from PyPI the same command is
#   python3 -m grpc_tools.protoc --proto_path=proto --python_out=FOLDER --grpc_python_out=FOLDER FILES
set -euo pipefail
folder=${1:?usage: make_stubs.sh FOLDER}
proto=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../proto" && pwd)
plugin=$(command -v grpc_python_plugin) || { echo "grpc_python_plugin is not there, expected the package protobuf-compiler-grpc" >&2; exit 1; }
mkdir -p "$folder"
protoc --proto_path="$proto" --python_out="$folder" --grpc_python_out="$folder" --plugin=protoc-gen-grpc_python="$plugin" \
  arborist/v1/coordinator.proto arborist/v1/sequence.proto google/rpc/status.proto google/rpc/error_details.proto
