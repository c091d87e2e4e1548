#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "kernels/sample_target/sample_target.h"

namespace arborist::kernels {
namespace {

// Rows of a verify step over 4096 ids on two threads. Floor: the logits are read once (16 KB a row).
void SampleTarget(benchmark::State& state) {
  const int64_t rows = state.range(0);
  const int64_t vocabulary = 4096;
  const SamplingParams kinds[] = {{},
                                  {.temperature = 1},
                                  {.temperature = 0.7f, .top_p = 0.9f},
                                  {.temperature = 1, .top_k = 50, .top_p = 0.95f}};
  const SamplingParams params = kinds[state.range(1)];
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(rows * vocabulary);
  for (float& value : logits) {
    value = normal(random);
  }
  for (int64_t row = 0; row < rows; ++row) {
    logits[row * vocabulary + row] = 12;
  }
  ThreadPool pool(2);
  std::vector<int32_t> position(rows);
  std::vector<int32_t> index(rows);
  std::vector<TokenId> chosen(rows);
  std::vector<float> log_prob(rows);
  const size_t bytes = SampleTargetScratchBytes(vocabulary, 2);
  std::vector<std::byte> memory(bytes + 64);
  auto* aligned = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64) % 64;
  for (auto _ : state) {
    for (int64_t row = 0; row < rows; ++row) {
      position[row] += 1;
    }
    const absl::Status status = cpu::SampleTarget({.logits = {logits.data(), rows, vocabulary, vocabulary},
                                                   .position = {position.data(), rows},
                                                   .params_index = {index.data(), rows},
                                                   .params = {&params, 1},
                                                   .chosen = {chosen.data(), rows},
                                                   .log_prob = {log_prob.data(), rows},
                                                   .scratch = {aligned, static_cast<int64_t>(bytes)}},
                                                  {.threads = &pool});
    if (!status.ok()) {
      state.SkipWithError(std::string(status.message()).c_str());
    }
  }
  const char* names[] = {"greedy", "T=1", "T=0.7 top-p 0.9", "T=1 top-k 50 top-p 0.95"};
  state.SetLabel(names[state.range(1)]);
  state.SetBytesProcessed(state.iterations() * rows * vocabulary * 4);
}
BENCHMARK(SampleTarget)->ArgsProduct({{1, 65}, {0, 1, 2, 3}})->UseRealTime();

}  // namespace
}  // namespace arborist::kernels

BENCHMARK_MAIN();
