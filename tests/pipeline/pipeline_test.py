#!/usr/bin/env python3
"""Three real processes: the text is plain decoding's, whatever drafts, and whatever happens to the drafter."""
import os
import re
import signal
import subprocess
import sys
import time
import unittest
import urllib.request

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from processes import Cluster, Service, client, wait_until  # noqa: E402

PROMPT = "import os\nimport sys\n\n\ndef read_file(path, encoding='utf-8'):\n    \"\"\"Return the contents of a file.\"\"\"\n"
COMMON = ("--prompt", PROMPT, "--ignore-eos", "--max-tokens", 300)
SAMPLED = ("--temperature", 0.8, "--top-p", 0.95, "--seed", 7)


def metrics(verifier):
    """By name with labels; it was started with --metrics-listen and port 0."""
    with open(verifier.log.name, encoding="utf-8") as log:
        port = re.findall(r"metrics on port (\d+)", log.read())[-1]
    with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=10) as page:
        lines = page.read().decode().splitlines()
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in lines if line.startswith("arborist_"))}


class WithDrafter(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.cluster = Cluster()
        cls.cluster.verifier.flags += ["--metrics-listen", "127.0.0.1:0"]
        cls.cluster.start()

    @classmethod
    def tearDownClass(cls):
        cls.cluster.stop()

    def test_every_mode_writes_the_bytes_of_plain_decoding(self):
        for sampling in (("--temperature", 0), SAMPLED):
            plain = self.cluster.generate(*COMMON, *sampling, "--speculation", "off")
            self.assertEqual(len(plain["token_ids"]), 300)
            self.assertEqual(plain["verified_nodes"], 0)
            for speculation in (("tree", 16), ("tree", 64), ("chain", 7), ("auto", 16)):
                mode, nodes = speculation
                answer = self.cluster.generate(*COMMON, *sampling, "--speculation", mode, "--tree-nodes", nodes)
                self.assertEqual(answer["token_ids"], plain["token_ids"], speculation)
                self.assertEqual(answer["text"], plain["text"], speculation)
                self.assertEqual(answer["fallbacks"], 0)
                if mode != "auto":  # which drafts where it pays, and on some machines that is nowhere
                    self.assertGreater(answer["mean_accepted_length"], 1.3, speculation)
                    self.assertGreater(answer["verified_nodes"], 0)

    def test_another_seed_writes_another_text_and_the_same_seed_the_same(self):
        one = self.cluster.generate(*COMMON, "--temperature", 1, "--seed", 1)
        two = self.cluster.generate(*COMMON, "--temperature", 1, "--seed", 2)
        again = self.cluster.generate(*COMMON, "--temperature", 1, "--seed", 1)
        self.assertNotEqual(one["token_ids"], two["token_ids"])
        self.assertEqual(one["token_ids"], again["token_ids"])

    def test_a_drawn_seed_is_reported_and_reproduces_the_text(self):
        drawn = self.cluster.generate(*COMMON, "--temperature", 1)
        again = self.cluster.generate(*COMMON, "--temperature", 1, "--seed", drawn["seed"], "--speculation", "off")
        self.assertEqual(drawn["token_ids"], again["token_ids"])

    def test_a_stop_string_cuts_the_text_inside_an_accepted_run(self):
        plain = self.cluster.generate(*COMMON, "--temperature", 0, "--speculation", "off")
        stop = plain["text"][120:126]
        for mode in ("off", "tree", "chain"):
            answer = self.cluster.generate(*COMMON, "--temperature", 0, "--speculation", mode, "--stop", stop)
            self.assertEqual(answer["text"], plain["text"][:plain["text"].index(stop)], mode)
            self.assertEqual(answer["finish_reason"], "stop")
            ids = answer["token_ids"]
            self.assertEqual(ids, plain["token_ids"][:len(ids)])

    def test_requests_side_by_side_write_what_they_write_alone(self):
        alone = [self.cluster.generate(*COMMON, "--temperature", 1, "--seed", seed, "--speculation", "off") for seed in range(6)]
        running = [self.cluster.generate_process(*COMMON, "--temperature", 1, "--seed", seed, "--speculation", mode)
                   for seed, mode in zip(range(6), ("tree", "off", "chain", "tree", "auto", "tree"))]
        for expected, process in zip(alone, running):
            self.assertEqual(process.communicate_checked()["token_ids"], expected["token_ids"])

    def test_auto_goes_from_the_drafter_to_the_verifier_and_back_without_changing_a_token(self):
        # Whatever pays on this machine, trials do the other thing, and where trees do not pay they take requests from the
        # verifier to the drafter. The first trial is of requests that begin there.
        sampling = ("--temperature", 0.6, "--seed", 3)
        plain = self.cluster.generate(*COMMON, *sampling, "--speculation", "off")
        trials = 'arborist_auto_trials_total{features="yes",temperature="to_0.7"}'
        for _ in range(60):
            answers = [self.cluster.generate_process(*COMMON, *sampling, "--speculation", "auto") for _ in range(3)]
            for answer in (process.communicate_checked() for process in answers):
                self.assertEqual(answer["token_ids"], plain["token_ids"])
                self.assertEqual(answer["fallbacks"], 0)
            if metrics(self.cluster.verifier)[trials] >= 2:
                break
        else:
            self.fail("no path has changed")

    def test_a_bad_value_is_an_error_that_names_the_field(self):
        for flags, field in ((("--temperature", -1), "temperature"), (("--top-p", 1.5), "top_p"),
                             (("--tree-nodes", 4000), "tree_nodes"), (("--max-tokens", 10 ** 7), "max_tokens")):
            status, out, err = self.cluster.generate("--prompt", "x", *flags, check=False)
            self.assertNotEqual(status, 0)
            self.assertIn(field, out + err)
        self.cluster.generate("--prompt", "x", "--max-tokens", 3)


class ShadowVerification(unittest.TestCase):
    """Oracles beside every step: the text stays, and the metrics say that nothing differs."""

    def setUp(self):
        self.cluster = Cluster()
        self.cluster.verifier.flags += ["--shadow-fraction", "1", "--metrics-listen", "127.0.0.1:0"]
        self.cluster.start()

    def tearDown(self):
        self.cluster.stop()

    def test_the_text_stays_and_no_kernel_differs(self):
        self.assertEqual(metrics(self.cluster.verifier)["arborist_shadow_steps_total"], 0)
        plain = self.cluster.generate(*COMMON, *SAMPLED, "--speculation", "off")
        tree = self.cluster.generate(*COMMON, *SAMPLED, "--speculation", "tree", "--tree-nodes", 16)
        self.assertEqual(tree["token_ids"], plain["token_ids"])
        seen = metrics(self.cluster.verifier)
        self.assertGreater(seen["arborist_shadow_steps_total"], 20)
        for kernel in ("tree_attention_mla", "moe_route", "sample_target", "tree_accept", "kv_compact"):
            self.assertGreater(seen[f'arborist_shadow_rows_total{{kernel="{kernel}"}}'], 20, kernel)
            self.assertEqual(seen[f'arborist_shadow_faults_total{{kernel="{kernel}"}}'], 0, kernel)
            self.assertLess(seen[f'arborist_shadow_worst_relative_difference_ratio{{kernel="{kernel}"}}'], 1e-4, kernel)
        self.assertEqual(self.cluster.verifier.terminate(), 0)


class AVerifierThatShadowVerificationFoundWrong(unittest.TestCase):
    """Any difference is a fault here: the first request stays where it is, new ones go to the other verifier."""

    def setUp(self):
        self.cluster = Cluster()
        self.addCleanup(self.cluster.stop)
        self.wrong = self.cluster.verifier
        self.other = Service(self.cluster.folder, "verifier", list(self.wrong.flags))
        self.other.address = self.wrong.address + ".other"
        self.addCleanup(self.other.kill)
        with open(self.wrong.config, encoding="utf-8") as shipped:
            text = shipped.read()
        self.wrong.config = os.path.join(self.cluster.folder, "wrong.textproto")
        with open(self.wrong.config, "w", encoding="utf-8") as config:
            config.write(f"{text}\nshadow {{ fraction: 1 relative_limit: 1e-12 not_serving_on_fault: true }}\n")
        self.wrong.start()
        self.cluster.drafter.start()

    def health(self):
        return subprocess.run([client(), "health", "--address", self.wrong.address, "--service", "arborist.v1.VerifierService"],
                              capture_output=True, text=True, timeout=30).stdout

    def test_new_requests_go_to_the_other_one(self):
        log = self.wrong.log.name  # before the other one, of the same name, begins its own
        self.cluster.coordinator.flags += ["--verifier", self.other.address]
        os.rename(log, log + ".wrong")
        self.other.start()
        self.cluster.coordinator.start()
        first = self.cluster.generate(*COMMON, *SAMPLED, "--speculation", "off")
        wait_until(lambda: self.health() == "NOT_SERVING\n", 20, "no difference was found")
        for mode in ("off", "tree", "auto"):
            answer = self.cluster.generate(*COMMON, *SAMPLED, "--speculation", mode)
            self.assertEqual(answer["token_ids"], first["token_ids"])
        self.other.kill()
        wait_until(lambda: self.cluster.generate(*COMMON, check=False)[0] == 1, 20, "the wrong verifier takes new requests")
        status, _, err = self.cluster.generate("--prompt", "x", check=False)
        self.assertEqual(status, 1)
        self.assertIn("NO_VERIFIER", err)
        self.assertEqual(self.wrong.terminate(), 0)


def waits_for_signals(pid):
    """Whether the process holds SIGTERM back, which it does from its first line on; before that the signal just kills it."""
    with open(f"/proc/{pid}/status", encoding="utf-8") as status:
        blocked = re.search(r"SigBlk:\s*([0-9a-f]+)", status.read()).group(1)
    return int(blocked, 16) >> (signal.SIGTERM - 1) & 1 == 1


class AShortContext(unittest.TestCase):
    def test_it_is_no_fault_of_the_request_that_the_drafter_looks_farther_back(self):
        cluster = Cluster()
        self.addCleanup(cluster.stop)
        with open(cluster.verifier.config, encoding="utf-8") as shipped:
            text = shipped.read()
        cluster.verifier.config = os.path.join(cluster.folder, "short.textproto")
        with open(cluster.verifier.config, "w", encoding="utf-8") as config:
            config.write(f"{text}\ncontext_length: 100\n")
        cluster.start()
        common = ("--prompt", PROMPT, "--ignore-eos")
        plain = cluster.generate(*common, "--speculation", "off")
        self.assertEqual(plain["finish_reason"], "context_limit")
        for mode in ("tree", "chain"):
            answer = cluster.generate(*common, "--speculation", mode)
            self.assertEqual((answer["token_ids"], answer["fallbacks"]), (plain["token_ids"], 0))
            self.assertGreater(answer["verified_nodes"], 0)


class AVerifierThatEnds(unittest.TestCase):
    def setUp(self):
        self.cluster = Cluster()
        self.addCleanup(self.cluster.stop)
        self.verifier = self.cluster.verifier
        self.verifier.flags += ["--metrics-listen", "127.0.0.1:0"]
        self.cluster.start()

    def begin(self, mode):
        """Eight answers that all have been begun, and what plain decoding writes."""
        flags = [(*COMMON, "--temperature", 0.8, "--seed", seed, "--speculation") for seed in range(8)]
        plain = [self.cluster.generate(*one, "off")["token_ids"] for one in flags]
        running = [self.cluster.generate_process(*one, mode) for one in flags]
        wait_until(lambda: metrics(self.verifier)['arborist_sequences{state="running"}'] == len(flags), 60, "they do not all run")
        return running, plain

    def test_it_finishes_what_it_has_begun_with_another_owner_too(self):
        running, plain = self.begin("tree")
        self.verifier.signal(signal.SIGTERM)
        self.cluster.drafter.signal(signal.SIGSTOP)  # silent: the coordinator takes over what it drafted for
        self.assertEqual([one.communicate_checked()["token_ids"] for one in running], plain)
        self.cluster.drafter.signal(signal.SIGCONT)  # else its streams, which nobody ends, last until the drain is over
        self.assertEqual(self.verifier.process.wait(timeout=20), 0)

    def test_it_finishes_what_changes_between_plain_decoding_and_a_drafter(self):
        self.cluster.generate(*COMMON, "--speculation", "auto")
        running, plain = self.begin("auto")
        self.assertEqual(self.verifier.terminate(seconds=60), 0)
        self.assertEqual([one.communicate_checked()["token_ids"] for one in running], plain)

    def test_nothing_new_is_begun(self):
        running, plain = self.begin("off")
        self.verifier.signal(signal.SIGTERM)

        def drains():
            with open(self.verifier.log.name, encoding="utf-8") as log:
                return "draining" in log.read()
        wait_until(drains, 10, "it does not drain")
        status, _, err = self.cluster.generate("--prompt", "x", "--speculation", "off", check=False)
        self.assertEqual(status, 1, err)
        self.assertIn("NO_VERIFIER", err)
        self.assertEqual([one.communicate_checked()["token_ids"] for one in running], plain)


class SignalWhileLoading(unittest.TestCase):
    def test_it_ends_with_status_0_and_serves_no_more(self):
        cluster = Cluster()
        self.addCleanup(cluster.stop)
        for service, sign in ((cluster.verifier, "listens on"), (cluster.drafter, "")):
            service.start(wait=False)
            log = service.log.name

            def said():
                with open(log, encoding="utf-8") as file:
                    return file.read()
            wait_until(lambda: sign in said(), 20, "it does not listen")
            wait_until(lambda: waits_for_signals(service.process.pid), 20, "it does not hold signals back")
            self.assertEqual(service.terminate(seconds=5), 0, said())
            self.assertRegex(said(), r"signal 15, (ends while the model is being loaded|draining)\n$")


class DrafterFaults(unittest.TestCase):
    """Each test has a cluster of its own, since it breaks one."""

    def setUp(self):
        self.cluster = Cluster()
        self.addCleanup(self.cluster.stop)

    def plain(self):
        return self.cluster.generate(*COMMON, *SAMPLED, "--speculation", "off")

    def test_without_a_drafter_from_the_start_the_answer_is_plain_decoding(self):
        self.cluster.start(drafter=False)
        answer = self.cluster.generate(*COMMON, *SAMPLED, "--speculation", "tree", "--tree-nodes", 16)
        self.assertEqual(answer["token_ids"], self.plain()["token_ids"])
        self.assertEqual(answer["verified_nodes"], 0)

    def run_and_break(self, number):
        """Breaks the drafter at different moments of an answer; every answer must be plain decoding's."""
        self.cluster.start()
        expected = self.plain()["token_ids"]
        hit = 0
        for delay in (0.02, 0.04, 0.06, 0.1, 0.15):
            running = self.cluster.generate_process(*COMMON, *SAMPLED, "--speculation", "tree", "--tree-nodes", 16)
            time.sleep(delay)
            self.cluster.drafter.signal(number)
            answer = running.communicate_checked()
            self.assertEqual(answer["token_ids"], expected, f"broken after {delay} s")
            hit += answer["fallbacks"]
            self.cluster.drafter.kill()
            self.cluster.drafter.start()
        self.assertGreater(hit, 0, "no answer was under way when its drafter broke")
        wait_until(lambda: self.cluster.generate(*COMMON, *SAMPLED, "--speculation", "tree")["verified_nodes"] > 0, 20,
                   "the new drafter is not used")

    def test_a_killed_drafter_costs_no_token(self):
        self.run_and_break(signal.SIGKILL)

    def test_a_silent_drafter_costs_no_token(self):
        self.run_and_break(signal.SIGSTOP)

    def test_sigterm_ends_every_process_with_status_0(self):
        self.cluster.start()
        self.cluster.generate("--prompt", "x", "--max-tokens", 5)
        for service in (self.cluster.coordinator, self.cluster.drafter, self.cluster.verifier):
            self.assertEqual(service.terminate(), 0, service.name)


if __name__ == "__main__":
    unittest.main(verbosity=2)
