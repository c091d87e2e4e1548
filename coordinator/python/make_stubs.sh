#!/usr/bin/env bash
# Writes the Python stubs of the public API, and of the error details beside it, into a folder for PYTHONPATH:
#   coordinator/python/make_stubs.sh FOLDER
# Needs protobuf-compiler and protobuf-compiler-grpc (Debian), or grpcio-tools (PyPI) in the python3 that is found first. Debian's come
# first: what an old compiler writes a newer runtime reads, not the other way round.
set -euo pipefail
folder=${1:?usage: make_stubs.sh FOLDER}
proto=$(cd "$(dirname "${BASH_SOURCE[0]}")/../../proto" && pwd)
if plugin=$(command -v grpc_python_plugin) && command -v protoc >/dev/null; then
  compiler=(protoc "--plugin=protoc-gen-grpc_python=$plugin")
elif python3 -c 'import grpc_tools' 2>/dev/null; then
  compiler=(python3 -m grpc_tools.protoc)
else
  echo "neither grpc_python_plugin nor grpc_tools is there, expected the Debian packages protobuf-compiler and" \
    "protobuf-compiler-grpc, or grpcio-tools from PyPI" >&2
  exit 1
fi
mkdir -p "$folder"
"${compiler[@]}" --proto_path="$proto" --python_out="$folder" --grpc_python_out="$folder" \
  arborist/v1/coordinator.proto arborist/v1/sequence.proto google/rpc/status.proto google/rpc/error_details.proto
