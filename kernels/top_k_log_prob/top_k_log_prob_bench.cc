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
  TopKLogProbArgs args = {.logits = {logits.data(), kDepths, kVocabulary, kVocabulary},
                          .temperature = static_cast<float>(state.range(1)),
                          .k = static_cast<int>(k),
                          .token = {token.data(), kDepths, k, k},
                          .log_prob = {log_prob.data(), kDepths, k, k},
                          .scratch = {scratch.data(), kDepths, kVocabulary, kVocabulary}};
  for (auto _ : state) {
    ++args.first_position;
    benchmark::DoNotOptimize(cpu::TopKLogProb(args, {.threads = &pool}).ok());
  }
  state.SetBytesProcessed(state.iterations() * kDepths * kVocabulary * 4);
}
BENCHMARK(TopKLogProb)->ArgsProduct({{1, 16, 64}, {0, 1}})->UseRealTime();

}  // namespace
}  // namespace arborist::kernels

BENCHMARK_MAIN();
