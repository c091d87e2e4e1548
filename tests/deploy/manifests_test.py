#!/usr/bin/env python3
"""deploy/ holds together, and what would break it is found: each fault planted in a copy gives its complaint."""
import os
import pathlib
import shutil
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE)]
from image import image_complaints  # noqa: E402
from kubernetes_manifests import kubernetes_complaints  # noqa: E402
from manifests import compose_complaints, config_complaints, monitoring_complaints  # noqa: E402
from programs import ROOT  # noqa: E402

CONFIGS = "deploy/kubernetes/base/config/"
BASE = "deploy/kubernetes/base/"
# Check, file, what is replaced, by what, part of the complaint.
FAULTS = [
    (config_complaints, CONFIGS + "verifier.textproto", "max_sequences", "most_sequences", "most_sequences"),
    (config_complaints, CONFIGS + "drafter.textproto", "max_sequences: 64", "max_sequences: 5000", "max_sequences=5000"),
    (config_complaints, CONFIGS + "coordinator.textproto", "arborist-tiny/target", "arborist-tiny/targte", "not in the image"),
    (config_complaints, CONFIGS + "drafter.textproto", "0.0.0.0:9101", "0.0.0.0", "is not listened on"),
    (compose_complaints, "deploy/compose.yaml", "CMD, arborist, health", "CMD, arborist, helth", "the health check is"),
    (compose_complaints, "deploy/compose.yaml", "127.0.0.1:50051", "127.0.0.1:50061", "the health check is"),
    (compose_complaints, "deploy/compose.yaml", "arborist-drafter, --config", "arborist-drafter, --confg, --config", "has no --confg"),
    (compose_complaints, "deploy/compose.yaml", "/etc/arborist/drafter.", "/etc/arborist/drafters.", "in the container"),
    (compose_complaints, "deploy/compose.yaml", "127.0.0.1:50050:50050", "50050:50050", "open to the network"),
    (compose_complaints, "deploy/compose.yaml", "127.0.0.1:50050:50050", "127.0.0.1:50050:50051", "listens on 50050"),
    (compose_complaints, "deploy/compose.yaml", "./kubernetes/base/config", "./kubernetes/base/configs", "is not there"),
    (compose_complaints, "deploy/compose.yaml", "stop_grace_period: 150s", "stop_grace_period: 2m", "of draining"),
    (compose_complaints, "deploy/compose.yaml", "grafana:11.4.0", "grafana:latest", "any version"),
    (compose_complaints, "deploy/compose.yaml", "- prometheus:/prometheus", "- data:/prometheus", "no volume data"),
    (compose_complaints, "deploy/compose.yaml", "dockerfile: deploy/Dockerfile", "dockerfile: Dockerfile", "no Dockerfile"),
    (compose_complaints, CONFIGS + "coordinator.textproto", "drafter:50052", "drafter:50051", "where nobody listens"),
    (monitoring_complaints, "deploy/prometheus/prometheus.yml", "drafter:9101", "drafter:9102", "scrapes"),
    (monitoring_complaints, "deploy/prometheus/prometheus.yml", "scrape_interval: 5s", "scrape_interval: 15s", "timeInterval"),
    (monitoring_complaints, "deploy/grafana/provisioning/datasources/prometheus.yaml", ":9090", ":9091", "nobody listens"),
    (monitoring_complaints, "deploy/grafana/provisioning/datasources/prometheus.yaml", "uid: ", "uid: my-", "data source is not"),
    (monitoring_complaints, "deploy/grafana/provisioning/dashboards/arborist.yaml", "grafana/dashboards", "grafana/boards", "/boards in the"),
    (monitoring_complaints, "deploy/grafana/dashboards/arborist.json", '"y": 1, "w": 8', '"y": 1, "w": 9', "lies on another"),
    (monitoring_complaints, "deploy/grafana/dashboards/arborist.json", "$__rate_interval", "5m", "fixed time"),
    (kubernetes_complaints, BASE + "kustomization.yaml", "- drafter.yaml", "- drafters.yaml", "drafters.yaml is not there"),
    (kubernetes_complaints, BASE + "kustomization.yaml", "  - drafter.yaml\n", "", "does not name drafter.yaml"),
    (kubernetes_complaints, BASE + "kustomization.yaml", "name: drafter-config", "name: draft-config", "nothing to mount"),
    (kubernetes_complaints, BASE + "verifier.yaml", "grpc: {port: 50051, service", "grpc: {port: 50052, service", "startupProbe asks"),
    (kubernetes_complaints, BASE + "drafter.yaml", "arborist.v1.DrafterService", "arborist.v1.Drafter", "readinessProbe asks"),
    (kubernetes_complaints, BASE + "drafter.yaml", "grpc: {port: 50052}", "grpc: {port: 50052, service: x}", "livenessProbe asks"),
    (kubernetes_complaints, BASE + "verifier.yaml", "containerPort: 9101", "containerPort: 9102", "listens on 50051 and 9101"),
    (kubernetes_complaints, BASE + "verifier.yaml", 'prometheus.io/port: "9101"', 'prometheus.io/port: "9102"', "Prometheus is told"),
    (kubernetes_complaints, BASE + "verifier.yaml", "component: verifier\n  ports", "component: drafter\n  ports", "selects the pods of"),
    (kubernetes_complaints, BASE + "verifier.yaml", "port: 50051\n", "port: 50061\n", "where nobody listens"),
    (kubernetes_complaints, BASE + "coordinator.yaml", "  clusterIP: None\n", "", "one replica"),
    (kubernetes_complaints, BASE + "coordinator.yaml", "Seconds: 150", "Seconds: 60", "while it drains"),
    (kubernetes_complaints, BASE + "coordinator.yaml", "runAsUser: 65532", "runAsUser: 1000", "runs as 1000"),
    (kubernetes_complaints, BASE + "drafter.yaml", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "may write"),
    (kubernetes_complaints, BASE + "drafter.yaml", "image: arborist\n", "image: arborist-cpu\n", "does not know the image"),
    (image_complaints, "deploy/Dockerfile", "USER 65532:65532", "USER 0:0", "runs as 0:0"),
    (image_complaints, "deploy/Dockerfile", "STOPSIGNAL SIGTERM", "STOPSIGNAL SIGKILL", "SIGTERM expected"),
    (image_complaints, "deploy/Dockerfile", "--from=build", "--from=builder", "no stage builder"),
    (image_complaints, "deploy/Dockerfile", "--preset cpu-only", "--preset cpu", "no preset cpu"),
    (image_complaints, "deploy/Dockerfile", "COPY deploy/install_packages.sh", "COPY deploy/install.sh", "is not in the build's context"),
    (image_complaints, "deploy/Dockerfile", "--build-only", "--only-build", "has no --only-build"),
    (image_complaints, "deploy/Dockerfile", "debian:12-slim", "debian", "any version"),
    (image_complaints, ".dockerignore", "!cmake\n", "", "keeps cmake/"),
    (image_complaints, ".dockerignore", "*\n", "", "lets .git/HEAD in"),
    (image_complaints, "deploy/Dockerfile", "image.licenses", "image.licence", "no label licenses"),
]
CHECKS = sorted({fault[0] for fault in FAULTS}, key=lambda check: check.__name__)


class Copy:
    """This checkout with a deploy/ of its own; all else, and the models, are links."""

    def __enter__(self):
        self.root = pathlib.Path(tempfile.mkdtemp(prefix="arborist-deploy-"))
        for each in ROOT.iterdir():
            if each.name not in ("deploy", ".dockerignore"):
                os.symlink(each, self.root / each.name)
        shutil.copy(ROOT / ".dockerignore", self.root)
        shutil.copytree(ROOT / "deploy", self.root / "deploy", ignore=shutil.ignore_patterns("models"))
        os.symlink(ROOT / "deploy/models", self.root / "deploy/models")
        return self.root

    def __exit__(self, *_):
        shutil.rmtree(self.root)


class Manifests(unittest.TestCase):
    def test_what_is_shipped_holds_together(self):
        for check in CHECKS:
            with self.subTest(check.__name__):
                self.assertEqual(check(str(ROOT)), [])

    def test_every_planted_fault_is_found(self):
        for check, path, old, new, complaint in FAULTS:
            with self.subTest(f"{path}: {new or 'without ' + old}"), Copy() as root:
                text = (root / path).read_text()
                self.assertIn(old, text)
                (root / path).write_text(text.replace(old, new))
                self.assertIn(complaint, "; ".join(check(str(root))))


if __name__ == "__main__":
    unittest.main()
