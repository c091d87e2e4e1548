#!/usr/bin/env python3
"""Prometheus with the shipped scrape config beside three real processes under load: every expression of the dashboard has data."""
import json
import math
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.parse
import urllib.request

sys.path.insert(0, os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "pipeline"))
from metrics_test import PROCESSES, port_of, start  # noqa: E402
from processes import SOURCE, wait_until  # noqa: E402

DEPLOY = os.path.join(SOURCE, "deploy")
RATE_INTERVAL = "20s"
# What the dashboard is for, each with the metric that shows it.
TOPICS = {
    "time to first token": "arborist_time_to_first_token_seconds_bucket",
    "inter-token latency": "arborist_inter_token_latency_seconds_bucket",
    "throughput": "arborist_generated_tokens_total",
    "accepted length": "arborist_speculative_accepted_length_sum",
    "budget": "arborist_auto_nodes",
    "queue": 'arborist_sequences{state="queued"}',
    "KV cache": "arborist_kv_cache_used_ratio",
    "errors": 'arborist_requests_total{code!="OK"}',
}


def expressions():
    """(panel, expression) of each target."""
    with open(os.path.join(DEPLOY, "grafana/dashboards/arborist.json"), encoding="utf-8") as file:
        board = json.load(file)
    return [(panel["title"], target["expr"]) for panel in board["panels"] for target in panel.get("targets", [])]


def scrape_config(folder, ports):
    """The shipped file, with the three targets where they are and a faster scrape; nothing else differs."""
    with open(os.path.join(DEPLOY, "prometheus/prometheus.yml"), encoding="utf-8") as file:
        text = file.read()
    for name, port in ports.items():
        text, found = re.subn(rf"\b{name}:\d+", f"127.0.0.1:{port}", text)
        if found != 1:
            raise AssertionError(f"prometheus.yml names {name} {found} times, expected once")
    text = re.sub(r"scrape_interval: \S+", "scrape_interval: 1s", re.sub(r"scrape_timeout: \S+", "scrape_timeout: 1s", text))
    path = os.path.join(folder, "prometheus.yml")
    with open(path, "w", encoding="utf-8") as file:
        file.write(text)
    return path


class Prometheus:
    def __init__(self, folder, ports):
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            address = f"127.0.0.1:{free.getsockname()[1]}"
        self.url = f"http://{address}"
        self.log = open(os.path.join(folder, "prometheus.log"), "wb")
        self.process = subprocess.Popen(
            ["prometheus", f"--config.file={scrape_config(folder, ports)}", f"--storage.tsdb.path={folder}/data",
             f"--web.listen-address={address}"], stdin=subprocess.DEVNULL, stdout=self.log, stderr=self.log)

    def stop(self):
        self.process.kill()
        self.process.wait(timeout=30)
        self.log.close()

    def query(self, expression):
        """The samples of an instant query as (labels, value)."""
        data = urllib.parse.urlencode({"query": expression}).encode()
        try:
            with urllib.request.urlopen(f"{self.url}/api/v1/query", data, timeout=30) as answer:
                body = json.load(answer)
        except urllib.error.HTTPError as error:
            raise AssertionError(f"{expression}: {error.read().decode()}") from error
        result = body["data"]["result"]
        return [(sample["metric"], float(sample["value"][1])) for sample in result]

    def ready(self):
        if self.process.poll() is not None:
            with open(self.log.name, encoding="utf-8") as log:
                raise RuntimeError(f"prometheus ended: {log.read()[-2000:]}")
        try:
            up = self.query("up")
        except (OSError, AssertionError):
            return False
        return len(up) == len(PROCESSES) and all(value == 1 for _, value in up)


class Load:
    """Clients that ask in every mode until told to stop; one of them asks for what is refused."""

    REQUESTS = [
        ("--speculation", "tree", "--tree-nodes", 16, "--temperature", 0),
        ("--speculation", "auto", "--temperature", 0.6),
        ("--speculation", "chain", "--temperature", 1),
        ("--speculation", "off", "--temperature", 0),
        ("--temperature", 101),
    ]

    def __init__(self, cluster):
        self.cluster, self.ended = cluster, threading.Event()
        self.threads = [threading.Thread(target=self.run, args=(flags,)) for flags in self.REQUESTS]
        for thread in self.threads:
            thread.start()

    def run(self, flags):
        while not self.ended.is_set():
            self.cluster.generate("--prompt", "import os\nimport sys\n", "--max-tokens", 100, "--ignore-eos", *flags, check=False)
            time.sleep(0.1)

    def stop(self):
        self.ended.set()
        for thread in self.threads:
            thread.join()


@unittest.skipUnless(shutil.which("prometheus"), "no prometheus (Debian package prometheus)")
class Dashboard(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = tempfile.mkdtemp(prefix="arborist-prometheus-")
        cls.addClassCleanup(shutil.rmtree, cls.folder, ignore_errors=True)
        cls.cluster = start()
        cls.addClassCleanup(cls.cluster.stop)
        cls.prometheus = Prometheus(cls.folder, {name: port_of(getattr(cls.cluster, name)) for name in PROCESSES})
        cls.addClassCleanup(cls.prometheus.stop)
        cls.load = Load(cls.cluster)
        cls.addClassCleanup(cls.load.stop)
        wait_until(cls.prometheus.ready, 60, "Prometheus scrapes the three processes")

    def samples(self, expression):
        """What a panel would draw: numbers, not the gaps that NaN leaves."""
        found = self.prometheus.query(expression.replace("$__rate_interval", RATE_INTERVAL))
        return [(labels, value) for labels, value in found if math.isfinite(value)]

    def test_every_expression_of_the_dashboard_has_data(self):
        missing = expressions()
        self.assertGreater(len(missing), 40)

        def all_there():
            missing[:] = [(panel, text) for panel, text in missing if not self.samples(text)]
            time.sleep(0.5)
            return not missing

        try:
            wait_until(all_there, 90, "data")
        except AssertionError:
            self.fail("no data: " + "; ".join(f"{panel}: {text}" for panel, text in missing))

    def test_what_the_dashboard_shows_under_load_is_more_than_zeros(self):
        for expression in (
                "sum(rate(arborist_generated_tokens_total[$__rate_interval]))",
                'sum by (code) (rate(arborist_requests_total{code!="OK"}[$__rate_interval]))',
                "histogram_quantile(0.5, sum by (le) (rate(arborist_time_to_first_token_seconds_bucket[$__rate_interval])))",
                "sum(rate(arborist_speculative_accepted_length_sum[$__rate_interval])) / "
                "sum(rate(arborist_speculative_accepted_length_count[$__rate_interval]))"):
            self.assertIn(expression, [text for _, text in expressions()])
            wait_until(lambda: any(value > 0 for _, value in self.samples(expression)), 60, f"above 0: {expression}")

    def test_an_expression_of_what_nobody_exports_has_none(self):
        self.assertEqual(self.samples("sum(rate(arborist_no_such_metric_total[$__rate_interval]))"), [])


class Content(unittest.TestCase):
    def test_the_dashboard_shows_what_it_is_for(self):
        shown = "\n".join(text for _, text in expressions())
        for topic, metric in TOPICS.items():
            self.assertIn(metric, shown, topic)


if __name__ == "__main__":
    unittest.main()
