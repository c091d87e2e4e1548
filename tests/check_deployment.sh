#!/usr/bin/env bash
# Holds deploy/ against the schemas of those who read it: Compose, Kubernetes (the oldest release that the base is for, and the newest
# known), Dockerfile and Prometheus. Nothing is fetched; what the files say of one another is tests/deploy/manifests_test.py.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
source tests/developer_tools.sh
rendered=build/kubernetes-base.yaml

"$tools/bin/hadolint" --no-color deploy/Dockerfile
"$tools/bin/check-jsonschema" --builtin-schema vendor.compose-spec deploy/compose.yaml
kubectl kustomize deploy/kubernetes/base >"$rendered"
for release in 1.30 1.37; do
  "$tools/bin/kubernetes-validate" --strict --no-warn --quiet -k "$release" "$rendered"
done
promtool check config deploy/prometheus/prometheus.yml >/dev/null
echo "deployment: Dockerfile, compose.yaml, Kubernetes base ($(grep -c '^kind:' "$rendered") objects) and prometheus.yml are well-formed"
