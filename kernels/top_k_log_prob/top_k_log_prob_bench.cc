#include <benchmark/benchmark.h>

#include <random>
#include <vector>

#include "kernels/top_k_log_prob/top_k_log_prob.h"

namespace arborist::kernels {
namespace {

// Seven drafted depths over 4096 ids, two threads. Floor: the logits are read once.
void TopKLogProb(benchmark::State& state) {
  constexpr int64_t kDepths = 7;
  constexpr int64_t kVocabulary = 4096;
  const int64_t k = state.range(0);
  std::mt19937 random(1);
  std::normal_distribution<float> normal(0, 3);
  std::vector<float> logits(kDepths * kVocabulary);
  for (float& value : logits) {
    value = normal(random);
  }
  std::vector<TokenId> token(kDepths * k);
  std::vector<float> log_prob(kDepths * k);
  std::vector<float> scratch(kDepths * kVocabulary);
  ThreadPool pool(2);
  TopKParams params = {
      .temperature = static_cast<float>(state.range(1)), .depths = kDepths, .k = static_cast<int32_t>(k)};
  const TopKLogProbArgs args = {
      .logits = View2<const float>{logits.data(), kDepths, kVocabulary, kVocabulary},
      .params = {&params, 1},
      .token = {token.data(), kDepths, k, k},
      .log_prob = {log_prob.data(), kDepths, k, k},
      .scratch = {reinterpret_cast<std::byte*>(scratch.data()), kDepths * kVocabulary * 4}};
  for (auto _ : state) {
    ++params.first_position;
    benchmark::DoNotOptimize(cpu::TopKLogProb(args, {.threads = &pool}).ok());
  }
  state.SetBytesProcessed(state.iterations() * kDepths * kVocabulary * 4);
}
BENCHMARK(TopKLogProb)->ArgsProduct({{1, 16, 64}, {0, 1}})->UseRealTime();

}  // namespace
}  // namespace arborist::kernels

BENCHMARK_MAIN();
