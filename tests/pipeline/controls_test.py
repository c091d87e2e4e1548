#!/usr/bin/env python3
"""Three real processes and every control of a request, as flags of `arborist generate`: each does what it says, and the answer
with all that is told beside it is the same plainly decoded, with trees and with chains."""
import json
import os
import re
import subprocess
import sys
import tempfile
import unittest

sys.path.insert(0, os.path.dirname(os.path.abspath(__file__)))
from processes import Cluster, client  # noqa: E402

PROMPT = "import os\nimport sys\n\n\ndef read_file(path, encoding='utf-8'):\n    \"\"\"Return the contents of a file.\"\"\"\n"
GREEDY = ("--temperature", 0)
SAMPLED = ("--temperature", 0.8, "--top-p", 0.95, "--seed", 7)
MODES = (("off", 0), ("tree", 16), ("chain", 7))
TOLD = ("text", "token_ids", "log_probs", "top_log_probs", "prompt_text", "prompt_token_ids", "prompt_log_probs", "finish_reason",
        "stop_string")

CLUSTER = Cluster()


def setUpModule():
    unittest.addModuleCleanup(CLUSTER.stop)
    CLUSTER.start()


class Controls(unittest.TestCase):
    def generate(self, *flags):
        status, out, err = CLUSTER.generate(*flags, check=False)
        self.assertEqual(status, 0, err)
        return json.loads(out)

    def same_in_every_mode(self, *flags, prompt=PROMPT, tokens=60):
        """The answer, which all three modes give."""
        first = None
        for mode, nodes in MODES:
            answer = self.generate("--prompt", prompt, "--max-tokens", tokens, *flags, "--speculation", mode, "--tree-nodes", nodes)
            told = [[one[key] for key in TOLD] for one in answer.get("answers", [answer])]
            if first is None:
                first, first_told = answer, told
            self.assertEqual(told, first_told, mode)
        return first

    def ids(self, text):
        """Of a text in the middle of an answer."""
        done = subprocess.run([client(), "tokenize", "--address", CLUSTER.coordinator.address, "--omit-special-tokens", "--text", text],
                              capture_output=True, text=True, check=True, timeout=60)
        return [int(word) for word in done.stdout.split(",")]

    def test_penalties_change_the_text_and_trees_do_not(self):
        for sampling in (GREEDY, SAMPLED):
            plain = self.generate("--prompt", PROMPT, "--max-tokens", 60, *sampling)
            for penalty in (("--repetition-penalty", 1.3), ("--presence-penalty", 1.5), ("--frequency-penalty", 0.7),
                            ("--repetition-penalty", 0.9, "--presence-penalty", -0.5, "--frequency-penalty", 0.3)):
                answer = self.same_in_every_mode(*sampling, *penalty)
                self.assertNotEqual(answer["token_ids"], plain["token_ids"], penalty)

    def test_a_heavy_frequency_penalty_leaves_no_token_twice_in_a_row(self):
        ids = self.same_in_every_mode(*GREEDY, "--frequency-penalty", 2, "--ignore-eos")["token_ids"]
        self.assertGreater(len(set(ids)), 20)

    def test_a_bias_of_100_chooses_its_token_and_one_of_minus_100_never_does(self):
        word = self.ids(" file")[0]
        answer = self.same_in_every_mode(*SAMPLED, "--logit-bias", f"{word}:100", "--ignore-eos", tokens=20)
        self.assertEqual(answer["token_ids"], [word] * 20)
        plain = self.generate("--prompt", PROMPT, "--max-tokens", 60, *GREEDY)
        hated = plain["token_ids"][3]
        answer = self.same_in_every_mode(*GREEDY, "--logit-bias", f"{hated}:-100")
        self.assertNotIn(hated, answer["token_ids"])

    def test_only_allowed_tokens_are_chosen(self):
        allowed = self.ids("0123456789")
        answer = self.same_in_every_mode(*SAMPLED, "--allowed-ids", ",".join(map(str, allowed)), "--ignore-eos")
        self.assertEqual(len(answer["token_ids"]), 60)
        self.assertLessEqual(set(answer["token_ids"]), set(allowed))
        self.assertGreater(len(set(answer["token_ids"])), 1)

    def test_bad_words_never_appear_across_tokens_either(self):
        plain = self.generate("--prompt", PROMPT, "--max-tokens", 60, *GREEDY)
        for bad in (plain["text"].split()[1], plain["text"][10:13], plain["text"][21]):
            answer = self.same_in_every_mode(*GREEDY, "--bad-word", bad, "--bad-word", "never ever")
            self.assertNotIn(bad, answer["text"])
            self.assertNotEqual(answer["text"], plain["text"])

    def test_no_stop_id_ends_an_answer_before_min_tokens(self):
        plain = self.generate("--prompt", PROMPT, "--max-tokens", 60, *GREEDY, "--ignore-eos")
        stop = plain["token_ids"][2]
        stopped = self.same_in_every_mode(*GREEDY, "--ignore-eos", "--stop-id", stop)
        self.assertEqual(stopped["token_ids"], plain["token_ids"][:plain["token_ids"].index(stop) + 1])
        answer = self.same_in_every_mode(*GREEDY, "--ignore-eos", "--stop-id", stop, "--min-tokens", 10)
        self.assertGreaterEqual(len(answer["token_ids"]), 10)
        self.assertNotIn(stop, answer["token_ids"][:10])

    def test_a_stop_string_across_tokens_and_runs_ends_the_text_before_it(self):
        for sampling in (GREEDY, SAMPLED):
            plain = self.generate("--prompt", PROMPT, "--max-tokens", 60, *sampling, "--ignore-eos", "--log-probs")
            text = plain["text"]
            for stop in (text[20:32], text[50], text[40:47]):
                answer = self.same_in_every_mode(*sampling, "--ignore-eos", "--log-probs", "--stop", "never ever", "--stop", stop)
                self.assertEqual((answer["finish_reason"], answer["stop_string"]), ("stop", stop))
                self.assertEqual(answer["text"], text[:text.index(stop)])
                count = len(answer["token_ids"])
                self.assertEqual(answer["token_ids"], plain["token_ids"][:count])
                self.assertEqual(answer["log_probs"], plain["log_probs"][:count])

    def test_the_context_limit_ends_an_answer_inside_a_run(self):
        done = subprocess.run([client(), "model", "--address", CLUSTER.coordinator.address], capture_output=True, text=True, check=True,
                              timeout=60)
        context = json.loads(done.stdout)["context_length"]
        ids = self.ids(PROMPT)
        prompt = (ids * (context // len(ids) + 1))[:context - 23]
        first = None
        for mode, nodes in MODES:
            answer = self.generate("--token-ids", ",".join(map(str, prompt)), *SAMPLED, "--ignore-eos", "--log-probs", "--speculation", mode,
                                   "--tree-nodes", nodes)
            told = [answer[key] for key in TOLD]
            first = first or told
            self.assertEqual(told, first, mode)
            self.assertEqual((answer["finish_reason"], len(answer["token_ids"])), ("context_limit", 23))

    def test_usage_counts_what_was_drafted_verified_and_accepted(self):
        for mode, nodes in MODES:
            answer = self.generate("--prompt", PROMPT, "--max-tokens", 60, *SAMPLED, "--ignore-eos", "--echo", "--speculation", mode,
                                   "--tree-nodes", nodes)
            usage, lengths = answer["usage"], answer["accepted_lengths"]
            self.assertEqual(usage["prompt_tokens"], len(answer["prompt_token_ids"]))
            self.assertEqual((usage["completion_tokens"], usage["cached_tokens"]), (60, 0))
            self.assertEqual((sum(lengths), len(lengths)), (60, answer["rounds"]))
            self.assertEqual(usage["verified_tokens"], answer["verified_nodes"])
            self.assertEqual(usage["drafted_tokens"], answer["verified_nodes"] + answer["cut_nodes"])
            # Every round has a token of the target's own, but for the last one where max_tokens may leave it out.
            accepted = sum(lengths) - len(lengths)
            self.assertIn(usage["accepted_tokens"], (0,) if mode == "off" else (accepted, accepted + 1), mode)
            self.assertEqual(usage["accepted_tokens"] > 0, mode != "off")
            self.assertLessEqual(usage["accepted_tokens"], usage["verified_tokens"])

    def test_log_probabilities_are_told_for_every_token_and_in_order(self):
        for sampling in (GREEDY, SAMPLED):
            answer = self.same_in_every_mode(*sampling, "--log-probs", "--top-log-probs", 20)
            self.assertEqual(len(answer["log_probs"]), len(answer["token_ids"]))
            self.assertEqual(len(answer["top_log_probs"]), len(answer["token_ids"]))
            for token, log_prob, top in zip(answer["token_ids"], answer["log_probs"], answer["top_log_probs"]):
                self.assertLessEqual(log_prob, 0)
                self.assertEqual(len(top), 20)
                keys = [(-entry["log_prob"], entry["token_id"]) for entry in top]
                self.assertEqual(keys, sorted(keys))
                listed = {entry["token_id"]: entry["log_prob"] for entry in top}
                self.assertEqual(listed.get(token, log_prob), log_prob)
                if sampling is GREEDY:
                    self.assertEqual(top[0]["token_id"], token)
        self.assertEqual(self.generate("--prompt", PROMPT, "--max-tokens", 5)["log_probs"], [])

    def test_log_probabilities_are_of_raw_logits(self):
        word = self.ids(" file")[0]
        plain = self.generate("--prompt", PROMPT, "--max-tokens", 1, *GREEDY, "--log-probs", "--top-log-probs", 1)
        forced = self.generate("--prompt", PROMPT, "--max-tokens", 1, *GREEDY, "--log-probs", "--top-log-probs", 1,
                               "--logit-bias", f"{word}:100")
        self.assertEqual(forced["token_ids"], [word])
        self.assertLess(forced["log_probs"][0], plain["log_probs"][0])
        self.assertEqual(forced["top_log_probs"], plain["top_log_probs"])

    def test_a_prompts_log_probabilities_are_those_of_the_answer_that_wrote_it(self):
        written = self.generate("--prompt", PROMPT, "--max-tokens", 40, *GREEDY, "--log-probs", "--echo", "--ignore-eos")
        whole = written["prompt_token_ids"] + written["token_ids"]
        read = self.generate("--token-ids", ",".join(map(str, whole)), "--max-tokens", 1, "--prompt-log-probs")
        self.assertEqual(len(read["prompt_log_probs"]), len(whole) - 1)
        self.assertEqual(read["prompt_log_probs"][-40:], written["log_probs"])

    def test_echo_repeats_the_prompt_before_the_answer(self):
        answer = self.same_in_every_mode(*SAMPLED, "--echo")
        self.assertEqual(answer["prompt_text"], PROMPT)
        self.assertEqual(len(answer["prompt_token_ids"]), answer["usage"]["prompt_tokens"])

    def test_several_answers_differ_and_the_first_is_that_of_one(self):
        answers = self.same_in_every_mode(*SAMPLED, "--n", 4, "--log-probs", "--echo", "--prompt-log-probs")["answers"]
        self.assertEqual([answer["sample_index"] for answer in answers], [0, 1, 2, 3])
        self.assertEqual(len({tuple(answer["token_ids"]) for answer in answers}), 4)
        alone = self.generate("--prompt", PROMPT, "--max-tokens", 60, *SAMPLED, "--log-probs", "--echo", "--prompt-log-probs")
        self.assertEqual([alone[key] for key in TOLD], [answers[0][key] for key in TOLD])
        for answer in answers:
            self.assertEqual(answer["usage"]["completion_tokens"], len(answer["token_ids"]))
            self.assertEqual(answer["seed"], 7)

    def test_a_regex_is_matched_by_the_whole_answer(self):
        pattern = r"[a-z]{3,8}\([0-9]{1,3}(, [0-9]{1,3}){0,2}\)"
        for sampling in (GREEDY, SAMPLED):
            answer = self.same_in_every_mode(*sampling, "--regex", pattern)
            self.assertIn(answer["finish_reason"], ("stop", "constraint"))
            self.assertRegex(answer["text"], f"^{pattern}$")

    def test_a_schema_from_a_file_is_kept(self):
        schema = {"type": "object", "additionalProperties": False, "required": ["name", "sizes"],
                  "properties": {"name": {"enum": ["read", "write"]}, "sizes": {"type": "array", "maxItems": 3, "items": {"enum": [1, 20, 300]}}}}
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump(schema, file)
            file.flush()
            for sampling in (GREEDY, SAMPLED):
                answer = self.same_in_every_mode(*sampling, "--json-schema-file", file.name, tokens=150)
                self.assertIn(answer["finish_reason"], ("stop", "constraint"))
                value = json.loads(answer["text"])
                self.assertEqual(set(value), {"name", "sizes"})
                self.assertIn(value["name"], ("read", "write"))
                self.assertLessEqual(len(value["sizes"]), 3)
                self.assertLessEqual(set(value["sizes"]), {1, 20, 300})

    def test_everything_at_once(self):
        answers = self.same_in_every_mode(*SAMPLED, "--n", 2, "--repetition-penalty", 1.2, "--presence-penalty", 0.5, "--frequency-penalty",
                                          0.5, "--logit-bias", "40:2", "--bad-word", "file", "--min-tokens", 5, "--stop", "return",
                                          "--log-probs", "--top-log-probs", 5, "--prompt-log-probs", "--echo", "--priority", 3,
                                          "--request-timeout", "60s")["answers"]
        for answer in answers:
            self.assertNotIn("file", answer["text"])
            self.assertNotIn("return", answer["text"])
            self.assertEqual(len(answer["top_log_probs"]), len(answer["token_ids"]))

    def test_a_requests_own_timeout_is_told_by_the_server(self):
        status, out, _ = CLUSTER.generate("--prompt", PROMPT, "--ignore-eos", "--max-tokens", 1900, "--request-timeout", "30ms", check=False)
        error = json.loads(out)["error"]
        self.assertEqual((status, error["code"], error["origin"]), (1, "DEADLINE_EXCEEDED", "coordinator"))

    def test_a_bad_value_is_refused_with_field_value_and_expectation(self):
        with tempfile.NamedTemporaryFile("wb", suffix=".png") as picture:
            picture.write(b"\x89PNG")
            picture.flush()
            cases = ((("--repetition-penalty", 0), "repetition_penalty"), (("--repetition-penalty", 11), "repetition_penalty"),
                     (("--presence-penalty", 3), "presence_penalty"), (("--frequency-penalty", "nan"), "frequency_penalty"),
                     (("--logit-bias", "99999:1"), "logit_bias[0].token_id"), (("--logit-bias", "5:101"), "logit_bias[0].bias"),
                     (("--logit-bias", "5:1", "--logit-bias", "5:2"), "logit_bias[1].token_id"),
                     (("--allowed-ids", "1,-1"), "allowed_token_ids[1]"), (("--allowed-ids", "1,1"), "allowed_token_ids[1]"),
                     (("--bad-word", ""), "bad_words[0]"), (("--bad-word", "x" * 257), "bad_words[0]"),
                     (("--min-tokens", 9, "--max-tokens", 8), "min_tokens"), (("--n", -1), "n"), (("--n", 100000), "n"),
                     (("--top-log-probs", 21), "top_log_probs"), (("--json-schema", "{"), "json_schema"), (("--regex", "("), "regex"),
                     (("--priority", 101), "priority"), (("--media", f"image/png:{picture.name}"), "media"))
            for flags, field in cases:
                with self.subTest(flags=flags):
                    status, out, err = CLUSTER.generate("--prompt", "x", *flags, check=False)
                    error = json.loads(out)["error"]
                    self.assertEqual(status, 1)
                    self.assertEqual(error["code"], "UNIMPLEMENTED" if field == "media" else "INVALID_ARGUMENT", error)
                    # What only the verifier knows it names as it got it.
                    named = error["fields"][0]["field"].removeprefix("sequence.sampling.")
                    self.assertEqual(re.match(r"\w+", named).group(0), re.match(r"\w+", field).group(0), error)
                    self.assertIn("expected", error["message"])
                    self.assertIn(f"field {error['fields'][0]['field']}: ", err)
        self.assertEqual(len(self.generate("--prompt", "x", "--max-tokens", 3, "--ignore-eos")["token_ids"]), 3)


if __name__ == "__main__":
    unittest.main(verbosity=2)
