#include <benchmark/benchmark.h>

#include <string>
#include <vector>

#include "kernels/logit_controls/logit_controls.h"

namespace arborist::kernels {
namespace {

// Rows of a verify step on two threads: a history of 500 tokens, 40 entries of a row, half of the rows
// masked. Floor: the logits are read and written once.
void LogitControls(benchmark::State& state) {
  const int64_t rows = state.range(0), vocabulary = state.range(1), words = (vocabulary + 31) / 32;
  std::vector<LogitEntry> entry;
  for (int32_t i = 0; i < 540; ++i) {
    const int32_t token = i < 500 ? i * 8 : (i - 500) * 100;
    entry.push_back({.token = TokenId{token}, .output_count = 1, .occurred = 1});
  }
  const SequenceControls sequence = {.repetition = 1.1f, .entries = {0, 500}};
  const std::vector<uint32_t> mask(words, 0xf0f0f0f0u);
  std::vector<RowControls> row(rows);
  for (int64_t r = 0; r < rows; ++r) {
    row[r] = {.sequence = 0, .mask = r % 2 == 0 ? -1 : 0, .entries = {500, 40}};
  }
  const std::vector<float> raw(rows * vocabulary, 1.5f);
  std::vector<float> choice(rows * vocabulary);
  ThreadPool pool(2);
  for (auto _ : state) {
    const absl::Status status =
        cpu::LogitControls({.raw = {raw.data(), rows, vocabulary, vocabulary},
                            .row = {row.data(), rows},
                            .sequence = {&sequence, 1},
                            .entry = {entry.data(), static_cast<int64_t>(entry.size())},
                            .mask = {mask.data(), 1, words, words},
                            .choice = {choice.data(), rows, vocabulary, vocabulary}},
                           {.threads = &pool});
    if (!status.ok()) {
      state.SkipWithError(std::string(status.message()).c_str());
    }
  }
  state.SetBytesProcessed(state.iterations() * rows * vocabulary * 8);
}
BENCHMARK(LogitControls)->ArgsProduct({{1, 33}, {4096, 163840}})->UseRealTime();

}  // namespace
}  // namespace arborist::kernels

BENCHMARK_MAIN();
