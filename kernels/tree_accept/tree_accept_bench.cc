#include <benchmark/benchmark.h>

#include <vector>

#include "kernels/tree_accept/tree_accept.h"

namespace arborist::kernels {
namespace {

// A chain accepted whole: the longest walk there is. Floor: one pass over 12 bytes a node.
void TreeAccept(benchmark::State& state) {
  const int64_t nodes = state.range(0);
  std::vector<int32_t> begin = {0, static_cast<int32_t>(nodes)};
  std::vector<TokenId> token(nodes, TokenId{1});
  std::vector<int32_t> parent(nodes);
  for (int64_t i = 0; i < nodes; ++i) {
    parent[i] = static_cast<int32_t>(i) - 1;
  }
  std::vector<int32_t> path(nodes);
  int32_t length = 0;
  int32_t error = 0;
  TokenId bonus{};
  for (auto _ : state) {
    benchmark::DoNotOptimize(cpu::TreeAccept({.tree_begin = {begin.data(), 2},
                                              .token = {token.data(), nodes},
                                              .parent = {parent.data(), nodes},
                                              .chosen = {token.data(), nodes},
                                              .path = {path.data(), nodes},
                                              .path_length = {&length, 1},
                                              .bonus = {&bonus, 1},
                                              .error = {&error, 1}},
                                             {})
                                 .ok());
  }
}
BENCHMARK(TreeAccept)->Arg(17)->Arg(65)->Arg(256);

}  // namespace
}  // namespace arborist::kernels

BENCHMARK_MAIN();
