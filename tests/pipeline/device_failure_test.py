#!/usr/bin/env python3
"""A device that fails under a running verifier or drafter: the call ends with a status that names the failure, health hears NOT_SERVING,
and the process ends by itself with status 1 and one line that says why. On the CPU the failure is only reported; on a GPU (skipped
without one) it is CUDA's own. Each test has a cluster of its own, since it breaks one. --report=FILE runs those on a GPU alone and
writes {"passed", "failed", "skipped"} as JSON."""
import concurrent.futures
import json
import os
import select
import subprocess
import sys
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from processes import Cluster, client  # noqa: E402

PROMPT = "import os\nimport sys\n\n\ndef read_file(path):\n"
COMMON = ("--prompt", PROMPT, "--ignore-eos", "--max-tokens", 40, "--temperature", 0, "--speculation", "tree", "--tree-nodes", 8)
ILLEGAL = r"{}: an illegal memory access was encountered \(cudaErrorIllegalAddress\)"
SAMPLING_GONE = 'kind: DEVICE_FAULT_KIND_ILLEGAL_ACCESS memory: "sampling"'
CANDIDATES_GONE = 'kind: DEVICE_FAULT_KIND_ILLEGAL_ACCESS memory: "draft candidates"'
SECONDS = 20  # of a process that ends by itself
CLUSTERS_AT_ONCE = 6  # on a GPU: most of a test is three processes that start


class OnTheCpu(unittest.TestCase):
    device = "cpu"
    of_the_verifier = 'kind: DEVICE_FAULT_KIND_ILLEGAL_ACCESS memory: "activations"'
    launch_error = "device work: a planted launch error"
    illegal_access = "device work: a planted illegal access to "

    def setUp(self):
        self.cluster = Cluster(device=self.device)
        self.addCleanup(self.cluster.stop)
        self.trigger = os.path.join(self.cluster.folder, "fail-now")

    def plant(self, service, fault):
        """Gives the service a config with this fault, which waits for the trigger file."""
        with open(service.config, encoding="utf-8") as shipped:
            text = shipped.read()
        service.config = os.path.join(self.cluster.folder, f"{service.name}.textproto")
        with open(service.config, "w", encoding="utf-8") as config:
            config.write(f'{text}\ngpu {{ fault {{ {fault} trigger_path: "{self.trigger}" }} }}\n')

    def log(self, service):
        with open(service.log.name, encoding="utf-8") as log:
            return log.read()

    def fail_under_a_call(self, service):
        """Returns what the call that was running said. Checks health, exit status and reason."""
        before = self.cluster.generate(*COMMON)
        watch = subprocess.Popen([client(), "health", "--address", service.address, "--watch", "--timeout", f"{3 * SECONDS}s",
                                  "--service", f"arborist.v1.{service.name.capitalize()}Service"], stdout=subprocess.PIPE, text=True)
        self.addCleanup(watch.wait)
        self.addCleanup(watch.kill)
        self.assertEqual(watch.stdout.readline(), "SERVING\n")
        with open(self.trigger, "w", encoding="utf-8"):
            pass
        for _ in range(5):  # on a busy machine a call may decode plainly, without the drafter that is to fail
            answer = self.cluster.generate_process(*COMMON).communicate_checked(check=False)
            if select.select([watch.stdout], [], [], 1)[0]:
                break
        self.assertEqual(watch.stdout.readline(), "NOT_SERVING\n")
        self.assertEqual(service.process.wait(timeout=SECONDS), 1, self.log(service))
        reasons = [line for line in self.log(service).splitlines() if line.startswith(f"{service.name}: the device failed: ")]
        self.assertEqual(len(reasons), 1, self.log(service))
        self.assertNotIn("no step has ended", self.log(service))  # the reason is another
        self.assertIn(f"{service.name}: its device failed, draining\n", self.log(service))  # and no signal of somebody
        self.assertEqual(self.log(service).splitlines()[-1], f"arborist-{service.name}: ended because its device failed")
        return answer, reasons[0], before

    def verifier_fails(self, fault, named):
        self.plant(self.cluster.verifier, fault)
        self.cluster.start()
        (status, out, err), reason, _ = self.fail_under_a_call(self.cluster.verifier)
        self.assertRegex(reason, named)
        self.assertNotEqual(status, 0, out)
        self.assertRegex(out + err, named)

    def drafter_fails(self, fault, named):
        self.plant(self.cluster.drafter, fault)
        self.cluster.start()
        (status, out, err), reason, before = self.fail_under_a_call(self.cluster.drafter)
        self.assertRegex(reason, named)
        self.assertEqual(status, 0, err)  # whoever loses its drafter decodes plainly, and loses no token
        self.assertEqual(json.loads(out)["token_ids"], before["token_ids"])

    def is_refused_at_the_start(self, service, wanted):
        self.plant(service, "kind: DEVICE_FAULT_KIND_OUT_OF_MEMORY allocation: 3")
        service.start(wait=False)
        self.assertEqual(service.process.wait(timeout=3 * SECONDS), 1)
        self.assertRegex(self.log(service).splitlines()[-1], f"^arborist-{service.name}: .*{wanted}")

    def test_a_launch_error_of_the_verifier(self):
        self.verifier_fails("kind: DEVICE_FAULT_KIND_LAUNCH_ERROR", self.launch_error)

    def test_an_illegal_access_of_the_verifier(self):
        self.verifier_fails(self.of_the_verifier, self.illegal_access)

    def test_a_launch_error_of_the_drafter(self):
        self.drafter_fails("kind: DEVICE_FAULT_KIND_LAUNCH_ERROR", self.launch_error)

    def test_an_illegal_access_of_the_drafter(self):
        self.drafter_fails(CANDIDATES_GONE, self.illegal_access)

    def test_a_verifier_without_memory_is_refused_at_the_start(self):
        self.is_refused_at_the_start(self.cluster.verifier, "[0-9]+ bytes")

    def test_a_drafter_without_memory_is_refused_at_the_start(self):
        self.is_refused_at_the_start(self.cluster.drafter, "[0-9]+ bytes")


class OnAGpu(OnTheCpu):
    device = "cuda"
    of_the_verifier = SAMPLING_GONE
    launch_error = r"planted_fault: invalid argument \(cudaErrorInvalidValue\)"
    illegal_access = ""

    def setUp(self):
        super().setUp()
        probe = self.cluster.verifier
        probe.flags += ["--model", "/nonexistent"]
        probe.start(wait=False)
        probe.process.wait(timeout=SECONDS)
        if "device=CUDA" in self.log(probe):
            self.skipTest(self.log(probe).splitlines()[-1])
        probe.flags = probe.flags[:-2]

    def verifier_fails(self, fault, named):
        super().verifier_fails(fault, named or ILLEGAL.format(r"device work in choosing tokens \(one of mark, sample_target[^)]*, tree_accept\)"))

    def drafter_fails(self, fault, named):
        super().drafter_fails(fault, named or ILLEGAL.format(r"device work in candidates and trees \(one of mark, [^)]*top_k_log_prob[^)]*, tree_build, small_copy\)"))

    def test_an_illegal_access_in_the_forward_pass_names_its_part(self):
        super().verifier_fails('kind: DEVICE_FAULT_KIND_ILLEGAL_ACCESS memory: "activations"',
                               ILLEGAL.format(r"device work in its beginning \(one of small_copy, embedding_lookup, [^)]*\)"))

    def test_an_illegal_access_of_the_verifier_launch_by_launch_names_the_kernel(self):
        self.cluster.verifier.flags.append("--gpu-launch-by-launch")
        super().verifier_fails(SAMPLING_GONE, ILLEGAL.format("sample_target[^:]*(: [a-z]+)?"))

    def test_an_illegal_access_of_the_drafter_launch_by_launch_names_the_kernel(self):
        self.cluster.drafter.flags.append("--gpu-launch-by-launch")
        super().drafter_fails(CANDIDATES_GONE, ILLEGAL.format("top_k_log_prob[^:]*(: [a-z]+)?"))


def run_on_a_gpu(report):
    cases = list(unittest.defaultTestLoader.loadTestsFromTestCase(OnAGpu))
    counts = {"passed": 0, "failed": [], "skipped": 0}
    with concurrent.futures.ThreadPoolExecutor(CLUSTERS_AT_ONCE) as pool:
        for case, result in zip(cases, pool.map(lambda case: case.run(unittest.TestResult()), cases)):
            print(f"{case.id()}: {'passed' if result.wasSuccessful() else 'failed'}, {len(result.skipped)} skipped", flush=True)
            for _, why in result.errors + result.failures:
                counts["failed"].append(case.id())
                print(f"FAILED {case.id()}: {why[-2000:]}", flush=True)
            counts["skipped"] += len(result.skipped)
            counts["passed"] += result.wasSuccessful() and not result.skipped
    with open(report, "w", encoding="utf-8") as file:
        json.dump(counts, file)
    return 1 if counts["failed"] else 0


if __name__ == "__main__":
    if sys.argv[-1].startswith("--report="):
        sys.exit(run_on_a_gpu(sys.argv[-1].removeprefix("--report=")))
    unittest.main(verbosity=2)
