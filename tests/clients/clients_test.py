#!/usr/bin/env python3
"""Clients of other languages and tools against three real processes: the Python example with generated stubs, the README's
lines, and a client that knows nothing but reflection. Runs with a Python that has grpc and google.protobuf."""
import contextlib
import json
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import urllib.request

HERE = os.path.dirname(os.path.abspath(__file__))
SOURCE = os.path.dirname(os.path.dirname(HERE))
sys.path[:0] = [os.path.join(SOURCE, "tests", "pipeline"), os.path.join(SOURCE, "coordinator", "python"), HERE]

STUBS = tempfile.TemporaryDirectory(prefix="arborist-stubs-")
subprocess.run([os.path.join(SOURCE, "coordinator", "python", "make_stubs.sh"), STUBS.name], check=True)
subprocess.run(["protoc", f"--proto_path={HERE}", f"--python_out={STUBS.name}", f"--grpc_python_out={STUBS.name}",
                f"--plugin=protoc-gen-grpc_python={shutil.which('grpc_python_plugin')}", "reflection.proto"], check=True)
sys.path.insert(0, STUBS.name)

import grpc  # noqa: E402
import example  # noqa: E402
from arborist.v1 import coordinator_pb2 as pb  # noqa: E402
from arborist.v1 import sequence_pb2  # noqa: E402
from processes import MODELS, Cluster, Service, client, wait_until  # noqa: E402
from reflection import Reflected  # noqa: E402

CLUSTER = Cluster()


def setUpModule():
    unittest.addModuleCleanup(STUBS.cleanup)
    unittest.addModuleCleanup(CLUSTER.stop)
    for service in (CLUSTER.verifier, CLUSTER.coordinator):
        service.flags += ["--metrics-listen", "127.0.0.1:0"]
    CLUSTER.start()


def metric(service, name):
    with open(service.log.name, encoding="utf-8") as log:
        port = re.search(r"metrics on port (\d+)", log.read()).group(1)
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        return float(re.search(rf"^{re.escape(name)} (\S+)$", page.read().decode(), re.M).group(1))


class MakeStubs(unittest.TestCase):
    """coordinator/python/make_stubs.sh without Debian's compiler."""

    def make(self, python):
        """Its end, and what a python3 that does `python` was asked."""
        with tempfile.TemporaryDirectory(prefix="arborist-bin-") as folder:
            for name in ("bash", "dirname", "mkdir"):
                os.symlink(shutil.which(name), os.path.join(folder, name))
            with open(os.path.join(folder, "python3"), "w", encoding="utf-8") as file:
                file.write(f'#!/bin/sh\necho "$@" >>{folder}/asked\n{python}\n')
            os.chmod(file.name, 0o755)
            done = subprocess.run([os.path.join(folder, "bash"), os.path.join(SOURCE, "coordinator/python/make_stubs.sh"), f"{folder}/stubs"],
                                  env={"PATH": folder}, capture_output=True, text=True, timeout=60)
            with open(os.path.join(folder, "asked"), encoding="utf-8") as asked:
                return done, asked.read().splitlines()

    def test_grpc_tools_makes_them_instead(self):
        done, asked = self.make("exit 0")
        self.assertEqual((done.returncode, done.stderr), (0, ""))
        self.assertRegex(asked[-1], "^-m grpc_tools.protoc --proto_path=.* arborist/v1/coordinator.proto ")

    def test_if_that_is_missing_too_both_are_named(self):
        done, _ = self.make("exit 1")
        self.assertEqual(done.returncode, 1)
        for name in ("grpc_python_plugin", "protobuf-compiler-grpc", "grpc_tools", "grpcio-tools"):
            self.assertIn(name, done.stderr)


class WithStubs(unittest.TestCase):
    """coordinator/python/example.py, function by function."""

    @classmethod
    def setUpClass(cls):
        cls.stub = example.connect(CLUSTER.coordinator.address)
        cls.stub.GetModel(pb.GetModelRequest(), timeout=60)  # connects: a test's short deadline is then the call's alone
        cls.request = pb.GenerateRequest(text=example.PROMPT, max_tokens=40, temperature=0, ignore_eos=True)
        cls.plain = CLUSTER.generate("--prompt", example.PROMPT, "--max-tokens", 40, "--temperature", 0, "--ignore-eos")

    def failure(self, request, **options):
        with self.assertRaises(grpc.RpcError) as raised:
            example.generate(self.stub, request, **options)
        return example.failure_of(raised.exception)

    def test_generate_returns_the_text_that_the_command_line_prints(self):
        text, final = example.generate(self.stub, self.request)
        self.assertEqual(text, self.plain["text"])
        self.assertEqual(final.usage.completion_tokens, 40)
        self.assertEqual(final.finish_reason, sequence_pb2.FINISH_REASON_MAX_TOKENS)

    def test_stream_yields_the_same_text_in_pieces(self):
        pieces = list(example.stream(self.stub, self.request))
        self.assertGreater(len(pieces), 1)
        self.assertEqual("".join(pieces), self.plain["text"])

    @contextlib.contextmanager
    def ends_at_the_server(self, *causes):
        """The coordinator counts one more end of these causes, and the verifier is free again."""
        def ends():
            return sum(metric(CLUSTER.coordinator, f'arborist_cancelled_requests_total{{cause="{cause}"}}') for cause in causes)
        before = ends()
        yield
        wait_until(lambda: ends() == before + 1, 10, f"the coordinator counts no end by {causes}")
        wait_until(lambda: metric(CLUSTER.verifier, 'arborist_sequences{state="running"}') == 0, 10, "the sequence still runs")

    def test_cancel_stops_the_server(self):
        with self.ends_at_the_server("client_gone"):
            text, code = example.first_words(self.stub, pb.GenerateRequest(text=example.PROMPT, ignore_eos=True), count=3)
            self.assertEqual(code, grpc.StatusCode.CANCELLED)
            self.assertGreaterEqual(len(text.split()), 3)

    def test_a_deadline_ends_the_call_at_both_ends(self):
        # A timeout travels rounded up, so that this end may hang up a moment before the server's clock says so.
        with self.ends_at_the_server("deadline", "client_gone"):
            failure = self.failure(pb.GenerateRequest(text=example.PROMPT, ignore_eos=True), timeout=0.05)
            self.assertEqual(failure.code, grpc.StatusCode.DEADLINE_EXCEEDED)

    def test_an_error_names_field_value_expectation_origin_and_reason(self):
        failure = self.failure(pb.GenerateRequest(text=example.PROMPT, temperature=-1))
        self.assertEqual(failure.code, grpc.StatusCode.INVALID_ARGUMENT)
        self.assertEqual((failure.reason, failure.origin), ("BAD_REQUEST", "coordinator"))
        self.assertEqual(failure.fields, {"temperature": "temperature=-1, expected a number in [0, 100]"})
        self.assertIsNone(failure.retry_seconds)

    def test_an_error_without_a_server_has_a_code_and_no_origin(self):
        with self.assertRaises(grpc.RpcError) as raised:
            example.generate(example.connect("unix:/nonexistent/socket"), self.request, timeout=5)
        failure = example.failure_of(raised.exception)
        self.assertEqual((failure.code, failure.origin, failure.fields), (grpc.StatusCode.UNAVAILABLE, "", {}))

    def test_an_unknown_model_and_a_medium_are_refused_by_name(self):
        self.assertEqual(self.failure(pb.GenerateRequest(text="x", model="none")).reason, "UNKNOWN_MODEL")
        failure = self.failure(pb.GenerateRequest(text="x", media=[pb.Media(mime_type="image/png", data=b"x")]))
        self.assertEqual((failure.code, failure.reason), (grpc.StatusCode.UNIMPLEMENTED, "UNSUPPORTED_FIELD"))
        self.assertEqual(list(failure.fields), ["media"])

    def test_an_error_that_time_may_heal_says_when_to_try_again(self):
        alone = Service(CLUSTER.folder, "coordinator",
                        ["--verifier", "unix:/nonexistent/socket", "--tokenizer", os.path.join(MODELS, "target")])
        alone.address += ".alone"
        self.addCleanup(alone.kill)
        alone.start(wait=False)
        health = [client(), "health", "--address", alone.address, "--wait", "20s"]
        self.assertEqual(subprocess.run(health, capture_output=True, timeout=30).returncode, 0)
        with self.assertRaises(grpc.RpcError) as raised:
            example.generate(example.connect(alone.address), self.request, timeout=20)
        failure = example.failure_of(raised.exception)
        self.assertEqual((failure.code, failure.reason, failure.retry_seconds), (grpc.StatusCode.UNAVAILABLE, "NO_VERIFIER", 1.0))

    def test_several_answers_are_those_of_the_command_line(self):
        request = pb.GenerateRequest(text=example.PROMPT, max_tokens=20, temperature=1, seed=7)
        texts = example.several(self.stub, request, 3)
        answers = CLUSTER.generate("--prompt", example.PROMPT, "--max-tokens", 20, "--temperature", 1, "--seed", 7, "--n", 3)
        self.assertEqual(texts, [answer["text"] for answer in answers["answers"]])
        self.assertEqual(len(set(texts)), 3)

    def test_structured_output_fits_its_schema(self):
        value = example.structured(self.stub, "A file as JSON: ", example.SCHEMA)
        self.assertEqual(sorted(value), ["hidden", "name", "size"])
        self.assertIsInstance(value["name"], str)
        self.assertLessEqual(len(value["name"]), 8)
        self.assertIs(type(value["size"]), int)
        self.assertIs(type(value["hidden"]), bool)

    def test_the_example_is_a_program_that_shows_all_of_it(self):
        done = subprocess.run([sys.executable, example.__file__, CLUSTER.coordinator.address], capture_output=True, text=True,
                              timeout=120, env=dict(os.environ, PYTHONPATH=STUBS.name))
        self.assertEqual(done.returncode, 0, done.stderr)
        for part in ("generate: 40 tokens", "stream", "cancel: CANCELLED", "deadline: DEADLINE_EXCEEDED", "error: Failure(",
                     "answer 2: ", "structured: {"):
            self.assertIn(f"== {part}", done.stdout)

    def test_the_readmes_lines_stream_an_answer(self):
        with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as readme:
            blocks = re.findall(r"^```python\n(.*?)^```$", readme.read(), re.DOTALL | re.MULTILINE)
        self.assertEqual(len(blocks), 1)
        self.assertIn("127.0.0.1:50050", blocks[0])
        lines = blocks[0].replace("127.0.0.1:50050", CLUSTER.coordinator.address)
        done = subprocess.run([sys.executable, "-c", lines], capture_output=True, text=True, timeout=60,
                              env=dict(os.environ, PYTHONPATH=STUBS.name))
        self.assertEqual(done.returncode, 0, done.stderr)
        prompt = re.search(r'text="([^"]*)"', lines).group(1)
        self.assertEqual(done.stdout, CLUSTER.generate("--prompt", prompt, "--max-tokens", 40, "--temperature", 0)["text"])


class WithReflection(unittest.TestCase):
    """What grpcurl does: nothing here is generated from our protos."""

    def reflected(self, service):
        client = Reflected(service.address)
        self.addCleanup(client.close)
        return client

    def test_every_process_lists_its_service_health_and_reflection(self):
        for service, name in ((CLUSTER.coordinator, "CoordinatorService"), (CLUSTER.drafter, "DrafterService"),
                              (CLUSTER.verifier, "VerifierService")):
            self.assertEqual(self.reflected(service).services(),
                             [f"arborist.v1.{name}", "grpc.health.v1.Health", "grpc.reflection.v1alpha.ServerReflection"])

    def test_every_process_answers_health_as_reflection_describes_it(self):
        for service, name in ((CLUSTER.coordinator, "CoordinatorService"), (CLUSTER.drafter, "DrafterService"),
                              (CLUSTER.verifier, "VerifierService")):
            client = self.reflected(service)
            for asked in ("", f"arborist.v1.{name}"):
                self.assertEqual(client.call("grpc.health.v1.Health", "Check", service=asked), {"status": "SERVING"})
            with self.assertRaises(grpc.RpcError) as raised:
                client.call("grpc.health.v1.Health", "Check", service="nobody")
            self.assertEqual(raised.exception.code(), grpc.StatusCode.NOT_FOUND)

    def test_generate_is_called_with_a_request_that_only_reflection_described(self):
        client = self.reflected(CLUSTER.coordinator)
        answers = client.call("arborist.v1.CoordinatorService", "Generate", text=example.PROMPT, max_tokens=20, temperature=0,
                              speculation={"mode": "SPECULATION_MODE_TREE", "tree_nodes": 8})
        text = "".join(answer["chunk"].get("text", "") for answer in answers if "chunk" in answer)
        self.assertEqual(text, CLUSTER.generate("--prompt", example.PROMPT, "--max-tokens", 20, "--temperature", 0)["text"])
        self.assertEqual(answers[-1]["final"]["finish_reason"], "FINISH_REASON_MAX_TOKENS")

    def test_handshakes_are_called_the_same_way(self):
        verifier = self.reflected(CLUSTER.verifier).call("arborist.v1.VerifierService", "GetInfo")
        drafter = self.reflected(CLUSTER.drafter).call("arborist.v1.DrafterService", "GetInfo")
        self.assertEqual(verifier["protocol_version"], drafter["protocol_version"])

    def test_the_readmes_grpcurl_lines_name_what_there_is(self):
        client = self.reflected(CLUSTER.coordinator)
        with open(os.path.join(SOURCE, "README.md"), encoding="utf-8") as readme:
            lines = re.findall(r"^grpcurl -plaintext (?:-d '(.*)' )?127.0.0.1:50050 (describe )?(\S+)$", readme.read(), re.M)
        self.assertEqual(len(lines), 3)
        for data, describe, name in lines:
            if describe:
                client.load(file_containing_symbol=name)
            else:
                self.assertTrue(client.call(*name.split("/"), **json.loads(data)), name)

    def test_details_of_errors_are_described_too(self):
        client = self.reflected(CLUSTER.coordinator)
        for name in ("google.rpc.ErrorInfo", "google.rpc.BadRequest", "google.rpc.RetryInfo"):
            client.load(file_containing_symbol=name)
            self.assertEqual(client.pool.FindMessageTypeByName(name).full_name, name)

    def test_what_is_not_there_is_an_error(self):
        client = self.reflected(CLUSTER.coordinator)
        with self.assertRaises(LookupError):
            client.load(file_containing_symbol="arborist.v1.Nothing")
        with self.assertRaises(KeyError):
            client.method("arborist.v1.CoordinatorService", "Nothing")


if __name__ == "__main__":
    unittest.main(verbosity=2)
