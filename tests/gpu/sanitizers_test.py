"""What sanitizers.py makes of a program's output, with a script in the place of compute-sanitizer."""

import os
import pathlib
import sys
import tempfile
import time
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent))
import sanitizers  # noqa: E402

GOOD = """========= COMPUTE-SANITIZER
[==========] Running 2 tests from 1 test suite.
[ RUN      ] Rows.One/a
[       OK ] Rows.One/a (3 ms)
[ RUN      ] Rows.One/b
[       OK ] Rows.One/b (12 ms)
========= ERROR SUMMARY: 0 errors
"""


class SanitizersTest(unittest.TestCase):
    def row_of(self, output, code):
        with tempfile.TemporaryDirectory() as folder:
            tool = pathlib.Path(folder, "compute-sanitizer")
            tool.write_text(f"#!/bin/sh\ncat <<'END'\n{output}END\nexit {code}\n")
            tool.chmod(0o755)
            environment = dict(os.environ, PATH=f"{folder}:{os.environ['PATH']}")
            path, os.environ["PATH"] = os.environ["PATH"], environment["PATH"]
            try:
                return sanitizers.sanitize_one("memcheck", pathlib.Path("rows_cuda_test"), environment, time.monotonic() + 60, 60)
            finally:
                os.environ["PATH"] = path

    def test_program_whose_tests_pass_is_good(self):
        row = self.row_of(GOOD, 0)
        self.assertTrue(sanitizers.good(row), row)
        self.assertEqual(row["passed"], 2)
        self.assertEqual(row["last_words"], [])

    def test_test_that_fails_is_named(self):
        output = GOOD.replace("[       OK ] Rows.One/b (12", '[  FAILED  ] Rows.One/b, where GetParam() = "b" (12')
        row = self.row_of(output, 1)
        self.assertFalse(sanitizers.good(row))
        self.assertEqual((row["passed"], row["failed"], row["not_begun"]), (1, ["Rows.One/b"], 0))

    def test_program_that_ends_in_a_test_says_where_and_its_last_words(self):
        output = GOOD.split("[       OK ] Rows.One/b")[0] + "the device is gone\n"
        row = self.row_of(output, 3)
        self.assertFalse(sanitizers.good(row))
        self.assertEqual(row["not_begun"], 1)
        self.assertEqual((row["last_words"][0], row["last_words"][-1]), ("ended in Rows.One/b", "the device is gone"))

    def test_complaint_of_a_tool_makes_a_passing_program_bad(self):
        row = self.row_of(GOOD.replace("0 errors", "1 error"), 0)
        self.assertFalse(sanitizers.good(row))
        self.assertEqual(row["complaints"], ["========= ERROR SUMMARY: 1 error"])


if __name__ == "__main__":
    unittest.main()
