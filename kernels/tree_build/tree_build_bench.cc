#include <benchmark/benchmark.h>

#include <vector>

#include "kernels/tree_build/tree_build.h"

namespace arborist::kernels {
namespace {

// Candidates of a drafter of middling confidence. Floor: none worth naming; the heap's comparisons bound it.
void TreeBuild(benchmark::State& state) {
  const auto budget = static_cast<int>(state.range(0));
  const int64_t depths = state.range(1);
  const int64_t k = budget < 64 ? budget : 64;
  std::vector<TokenId> token(depths * k);
  std::vector<float> log_prob(depths * k);
  for (int64_t i = 0; i < depths * k; ++i) {
    token[i] = TokenId{static_cast<int32_t>(i)};
    log_prob[i] = -0.3f - 0.7f * static_cast<float>(i % k) - 0.01f * static_cast<float>(i % 7 + 7 * (i % k));
  }
  std::vector<TokenId> out_token(budget + 1);
  std::vector<int32_t> out_parent(budget + 1);
  std::vector<float> out_score(budget + 1);
  int32_t nodes = 0;
  const TreeBuildParams params = {.root = TokenId{0},
                                  .depths = static_cast<int32_t>(depths),
                                  .k = static_cast<int32_t>(k),
                                  .budget = budget};

  for (auto _ : state) {
    const absl::Status status = cpu::TreeBuild({.params = {&params, 1},
                                                .token = {token.data(), depths, k, k},
                                                .log_prob = {log_prob.data(), depths, k, k},
                                                .out_token = {out_token.data(), 1, budget + 1, budget + 1},
                                                .out_parent = {out_parent.data(), 1, budget + 1, budget + 1},
                                                .out_score = {out_score.data(), 1, budget + 1, budget + 1},
                                                .out_nodes = {&nodes, 1}},
                                               {});
    if (!status.ok()) {
      state.SkipWithError(std::string(status.message()).c_str());
    }
  }
}
BENCHMARK(TreeBuild)->Args({16, 7})->Args({64, 7})->Args({64, 15})->Args({255, 15});

}  // namespace
}  // namespace arborist::kernels

BENCHMARK_MAIN();
