#!/usr/bin/env python3
"""What three real processes tell Prometheus: all of it documented, well-formed, there from the start, and true after requests.

    metrics_test.py --table    prints the table of common/metrics/README.md as the processes have it
"""
import os
import re
import shutil
import subprocess
import sys
import unittest
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from processes import SOURCE, Cluster, wait_until  # noqa: E402

README = os.path.join(SOURCE, "common", "metrics", "README.md")
PROCESSES = ("coordinator", "drafter", "verifier")
# Labels whose values the table names; the others' are open or many.
NAMED_VALUES = {"kind", "state", "reason", "cause", "phase", "choice", "temperature", "features", "method"}
SAMPLE = re.compile(r"^([a-z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? (\S+)$")
LABEL = re.compile(r'([a-z_]+)="((?:[^"\\]|\\.)*)"')
SECRET = "Xylophagous"


def port_of(service):
    with open(service.log.name, encoding="utf-8") as log:
        found = re.search(r"metrics on port (\d+)", log.read())
    return found and found.group(1)


def scrape(service):
    with urllib.request.urlopen(f"http://127.0.0.1:{port_of(service)}/metrics", timeout=10) as page:
        return page.read().decode()


def start():
    cluster = Cluster()
    for name in PROCESSES:
        getattr(cluster, name).flags += ["--metrics-listen", "127.0.0.1:0"]
    cluster.start()
    return cluster


class Page:
    """One scrape: help and type by family, values by sample, label values by family."""

    def __init__(self, text):
        self.text, self.help, self.type, self.value, self.labels = text, {}, {}, {}, {}
        for line in text.splitlines():
            if line.startswith("# HELP "):
                self.help[line.split(" ")[2]] = line.split(" ", 3)[3]
            elif line.startswith("# TYPE "):
                self.type[line.split(" ")[2]] = line.split(" ")[3]
            else:
                name, labels, value = SAMPLE.match(line).groups()
                self.value[line.rsplit(" ", 1)[0]] = float(value)
                family = self.family(name)
                keys = self.labels.setdefault(family, {})
                for key, text_of in LABEL.findall(labels or ""):
                    if key not in ("le", "quantile"):
                        keys.setdefault(key, []).append(text_of)

    def family(self, sample):
        for suffix in ("_bucket", "_count", "_sum"):
            if sample.endswith(suffix) and self.type.get(sample[:-len(suffix)]) in ("histogram", "summary"):
                return sample[:-len(suffix)]
        return sample

    def total(self, name):
        """Over all labels."""
        return sum(value for key, value in self.value.items() if key.split("{")[0] == name)


def table(pages):
    rows = {}
    for process in PROCESSES:
        page = pages[process]
        for name, kind in page.type.items():
            row = rows.setdefault(name, {"type": kind, "help": page.help[name], "of": [], "labels": {}})
            row["of"].append(process)
            if row["type"] != kind:
                raise AssertionError(f"{name} has two types")
            if row["help"] != page.help[name]:
                row["help"] = " / ".join(dict.fromkeys([*row["help"].split(" / "), page.help[name]]))
            for key, values in page.labels[name].items():
                row["labels"].setdefault(key, []).extend(values)
    lines = []
    for name, row in sorted(rows.items()):
        of = "all" if len(row["of"]) == len(PROCESSES) else ", ".join(row["of"])
        labels = "; ".join(key + (": " + ", ".join(sorted(set(values))) if key in NAMED_VALUES else "")
                           for key, values in sorted(row["labels"].items()) if not name.endswith("config_info"))
        lines.append(f"| `{name}` | {row['type']} | {labels} | {of} | {row['help']} |")
    return lines


class Metrics(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = start()
        cls.before = cls.pages()
        flags = ("--ignore-eos", "--temperature", 0, "--prompt", f"{SECRET} imports os\nimport sys\n")
        cls.tree = cls.cluster.generate(*flags, "--max-tokens", 60, "--speculation", "tree", "--tree-nodes", 8)
        cls.plain = cls.cluster.generate(*flags, "--max-tokens", 20, "--speculation", "off")
        cls.cluster.generate("--prompt", "x", "--max-tokens", 4, "--temperature", 101, check=False)
        # Steps and calls are counted just after their last message.
        wait_until(lambda: cls.pages()["verifier"].value['arborist_sequences{state="running"}'] == 0, 20, "sequences end")
        wait_until(lambda: cls.pages()["drafter"].value['arborist_speculations_total{code="OK"}'] == 1, 20, "the call ends")
        cls.after = cls.pages()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    @classmethod
    def pages(cls):
        return {name: Page(scrape(getattr(cls.cluster, name))) for name in PROCESSES}

    def test_the_table_in_the_readme_is_what_the_processes_serve(self):
        with open(README, encoding="utf-8") as file:
            section = file.read().split("## The metrics")[1]
        documented = [line for line in section.splitlines() if line.startswith("| `")]
        self.assertEqual(documented, table(self.before), "metrics_test.py --table prints the right one")

    def test_everything_is_there_before_the_first_request(self):
        for name in PROCESSES:
            self.assertEqual(set(self.after[name].value), set(self.before[name].value), name)

    @unittest.skipUnless(shutil.which("promtool"), "no promtool (Debian package prometheus)")
    def test_promtool_finds_nothing(self):
        for name in PROCESSES:
            ours = "".join(line + "\n" for line in self.after[name].text.splitlines()
                           if not re.match(r"(# (HELP|TYPE) )?exposer_", line))  # prometheus-cpp's own
            found = subprocess.run(["promtool", "check", "metrics"], input=ours, capture_output=True, text=True, timeout=60)
            self.assertEqual((found.returncode, found.stdout + found.stderr), (0, ""), name)

    def test_the_coordinator_counts_what_clients_got(self):
        page = self.after["coordinator"]
        value = page.value
        self.assertEqual(value['arborist_requests_total{code="OK"}'], 2)
        self.assertEqual(value['arborist_requests_total{code="INVALID_ARGUMENT"}'], 1)
        self.assertEqual(value["arborist_generated_tokens_total"], 80)
        self.assertEqual(value["arborist_time_to_first_token_seconds_count"], 2)
        first_chunks = 80 - value["arborist_inter_token_latency_seconds_count"]
        self.assertTrue(2 <= first_chunks <= 40, first_chunks)
        self.assertEqual(value["arborist_speculative_draft_nodes_total"], self.tree["verified_nodes"])
        self.assertEqual(value["arborist_speculative_accepted_length_sum"], value["arborist_speculative_accepted_tokens_total"])
        self.assertEqual(page.total("arborist_speculative_accepted_by_depth_total"), value["arborist_speculative_accepted_tokens_total"])
        self.assertEqual(value["arborist_requests_in_flight"], 0)
        self.assertEqual(value["arborist_drafter_connected"], 1)
        self.assertEqual(page.total("arborist_speculative_fallback_total"), 0)

    def test_drafter_and_verifier_count_rounds_steps_and_pages(self):
        drafter, verifier = self.after["drafter"].value, self.after["verifier"].value
        rounds = self.after["coordinator"].value["arborist_speculative_rounds_total"]
        self.assertGreater(rounds, 0)
        self.assertGreaterEqual(drafter["arborist_draft_duration_seconds_count"], rounds)
        self.assertGreaterEqual(drafter['arborist_verify_rpc_duration_seconds_count{kind="tree"}'], rounds)
        self.assertEqual(drafter["arborist_verifier_connected"], 1)
        self.assertEqual(drafter["arborist_trees_refused_total"], 0)
        self.assertGreaterEqual(verifier["arborist_verify_duration_seconds_count"], rounds + 20)
        self.assertGreater(verifier['arborist_computed_rows_total{kind="prompt"}'], 0)
        self.assertGreater(verifier["arborist_step_last_success_timestamp_seconds"], verifier["process_start_time_seconds"])
        self.assertEqual(verifier["arborist_step_failures_total"], 0)
        self.assertEqual(verifier["arborist_kv_cache_used_ratio"], 0, "the pages came back")
        self.assertGreater(verifier['arborist_startup_duration_seconds{phase="total"}'], 0)

    def test_logs_hold_no_text_of_a_request(self):
        answer = self.plain["text"].strip()
        self.assertGreater(len(answer), 10)
        for name in PROCESSES:
            with open(getattr(self.cluster, name).log.name, encoding="utf-8", errors="replace") as log:
                lines = log.read()
            self.assertNotIn(SECRET, lines, name)
            self.assertNotIn(answer[:24], lines, name)
            self.assertNotIn(SECRET, self.after[name].text, name)


    def test_the_coordinator_logs_the_end_of_every_request(self):
        with open(self.cluster.coordinator.log.name, encoding="utf-8") as log:
            lines = [line for line in log if " event=request " in line]
        self.assertEqual(len(lines), 3, lines)
        shape = (r"time=\S+Z level=INFO event=request id=\S+ client_id=\S+ code=%s reason=\S+ "
                 r"answers=1 prompt_tokens=%s output_tokens=%s seconds=[0-9.e-]+\n")
        for line, code, prompt, output in ((lines[0], "OK", r"\d+", 60), (lines[1], "OK", r"\d+", 20),
                                           (lines[2], "INVALID_ARGUMENT", 0, 0)):
            self.assertRegex(line, "^" + shape % (code, prompt, output) + "$")
        self.assertIn(f" id={self.tree['request_id']} ", lines[0])


if __name__ == "__main__":
    if "--table" in sys.argv:
        running = start()
        try:
            print("\n".join(table({name: Page(scrape(getattr(running, name))) for name in PROCESSES})))
        finally:
            running.stop()
    else:
        unittest.main()
