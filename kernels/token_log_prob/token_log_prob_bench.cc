#include <benchmark/benchmark.h>

#include <random>
#include <string>
#include <vector>

#include "kernels/token_log_prob/token_log_prob.h"

namespace arborist::kernels {
namespace {

// The chosen token and a list of 20 a row, on two threads. Floor: the logits are read once.
void TokenLogProb(benchmark::State& state) {
  const int64_t rows = state.range(0), vocabulary = state.range(1), most = 20;
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(rows * vocabulary);
  for (float& value : logits) {
    value = normal(random);
  }
  const std::vector<TokenId> chosen(rows, TokenId{7}), top(rows * most, TokenId{9});
  const std::vector<int32_t> top_count(rows, most);
  std::vector<float> log_prob(rows * (1 + most));
  ThreadPool pool(2);
  for (auto _ : state) {
    const absl::Status status = cpu::TokenLogProb({.logits = {logits.data(), rows, vocabulary, vocabulary},
                                                   .chosen = {chosen.data(), rows},
                                                   .forced = {},
                                                   .top = {top.data(), rows, most, most},
                                                   .top_count = {top_count.data(), rows},
                                                   .log_prob = {log_prob.data(), rows, 1 + most, 1 + most},
                                                   .scratch = {}},
                                                  {.threads = &pool});
    if (!status.ok()) {
      state.SkipWithError(std::string(status.message()).c_str());
    }
  }
  state.SetBytesProcessed(state.iterations() * rows * vocabulary * 4);
}
BENCHMARK(TokenLogProb)->ArgsProduct({{1, 33}, {4096, 163840}})->UseRealTime();

}  // namespace
}  // namespace arborist::kernels

BENCHMARK_MAIN();
