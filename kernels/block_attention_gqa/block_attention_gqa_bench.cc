#include <benchmark/benchmark.h>

#include <vector>

#include "kernels/block_attention_gqa/block_attention_gqa.h"

namespace arborist::kernels {
namespace {

// One full layer of a small drafter: a block of 8, 8 heads over 2 key heads of 32, two threads. The floor is
// the fused multiply-adds; the rate printed is of those.
void BlockAttentionGqa(benchmark::State& state) {
  constexpr int64_t kBlock = 8;
  constexpr int64_t kHeads = 8;
  constexpr int64_t kKvHeads = 2;
  constexpr int64_t kHeadDim = 32;
  const int64_t context = state.range(0);
  std::vector<float> query(kBlock * kHeads * kHeadDim, 0.1f);
  std::vector<float> context_row(context * kKvHeads * kHeadDim, 0.2f);
  std::vector<float> block_row(kBlock * kKvHeads * kHeadDim, 0.3f);
  std::vector<float> out(query.size());
  const std::vector<int32_t> zero(kBlock, 0);
  const std::vector<int32_t> all(kBlock, kBlock);
  const int32_t first = 0, rows = static_cast<int32_t>(context);
  ThreadPool pool(2);
  const BlockAttentionGqaArgs args = {.query = {query.data(), kBlock, kHeads, kHeadDim},
                                      .block = kBlock,
                                      .context_key = context_row.data(),
                                      .context_value = context_row.data(),
                                      .plane_rows = context,
                                      .context_first = {&first, 1},
                                      .context_rows = {&rows, 1},
                                      .max_context = context,
                                      .context_begin = {zero.data(), kBlock},
                                      .block_begin = {zero.data(), kBlock},
                                      .block_end = {all.data(), kBlock},
                                      .block_key = {block_row.data(), kBlock, kKvHeads, kHeadDim},
                                      .block_value = {block_row.data(), kBlock, kKvHeads, kHeadDim},
                                      .scale = 0.2f,
                                      .out = {out.data(), kBlock, kHeads, kHeadDim}};
  for (auto _ : state) {
    benchmark::DoNotOptimize(cpu::BlockAttentionGqa(args, {.threads = &pool}).ok());
  }
  state.counters["fma/s"] =
      benchmark::Counter(static_cast<double>(kBlock * kHeads * (context + kBlock) * 2 * kHeadDim),
                         benchmark::Counter::kIsIterationInvariantRate, benchmark::Counter::kIs1000);
}
BENCHMARK(BlockAttentionGqa)->Arg(64)->Arg(512)->Arg(2048)->UseRealTime();

}  // namespace
}  // namespace arborist::kernels

BENCHMARK_MAIN();
