# Which tests each sanitizer build runs (test names are target names). Sourced by run.sh.
asan_ubsan_tests=()
tsan_tests=()
