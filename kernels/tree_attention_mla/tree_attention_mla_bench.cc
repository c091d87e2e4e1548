#include <benchmark/benchmark.h>

#include "kernels/tree_attention_mla/attention_case.h"

namespace arborist::kernels {
namespace {

// Rows of one tree (a star: every row at position prefix + 1) with the shipped target's shape, two threads.
// The floor is the fused multiply-adds: rows * heads * keys * (width + latent); the rate printed is of those.
void TreeAttentionMla(benchmark::State& state) {
  const int64_t rows = state.range(0);
  const int64_t prefix = state.range(1);
  const testing::AttentionShape shape{.heads = 8, .latent = 128, .rope = 32};
  testing::Random random;
  testing::AttentionCase c(shape, (prefix + rows) / kPageRows + 2);
  const int32_t sequence = c.AddSequence(prefix + rows);
  std::vector<int32_t> keys;
  for (int64_t p = 0; p < prefix; ++p) {
    keys.push_back(c.Slot(sequence, p));
    c.Write(keys.back(), random.Normal(shape.width(), 1));
  }
  keys.push_back(0);
  for (int64_t row = 0; row < rows; ++row) {
    keys.back() = c.Slot(sequence, prefix + row);
    c.Write(keys.back(), random.Normal(shape.width(), 1));
    c.AddRow(sequence, random.Normal(shape.heads * shape.width(), 1), keys);
  }
  ThreadPool pool(2);
  std::vector<float> out;
  std::vector<std::byte> scratch;
  const TreeAttentionMlaArgs args = c.Args(out, scratch, 2);
  for (auto _ : state) {
    benchmark::DoNotOptimize(cpu::TreeAttentionMla(args, {.threads = &pool}).ok());
  }
  const auto fmas = static_cast<double>(rows * shape.heads * (prefix + 1) * (shape.width() + shape.latent));
  state.counters["fma/s"] =
      benchmark::Counter(fmas, benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}
BENCHMARK(TreeAttentionMla)->ArgsProduct({{1, 17, 65}, {64, 512, 2048}})->UseRealTime();

}  // namespace
}  // namespace arborist::kernels

BENCHMARK_MAIN();
