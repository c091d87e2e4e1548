#include <benchmark/benchmark.h>

#include <cstddef>
#include <numeric>
#include <vector>

#include "kernels/kv_append/kv_append.h"

namespace arborist::kernels {
namespace {

// Floor: every byte is read once and written once.
void KvAppend(benchmark::State& state) {
  const int64_t tokens = state.range(0);
  const int64_t row_bytes = 640;
  ThreadPool pool(2);
  std::vector<std::byte> rows(tokens * row_bytes);
  std::vector<std::byte> plane(4096 * row_bytes);
  std::vector<int32_t> slot(tokens);
  std::iota(slot.begin(), slot.end(), 100);
  const KvAppendArgs args = {.rows = rows.data(),
                             .source_stride_bytes = row_bytes,
                             .slot = {slot.data(), tokens},
                             .plane = plane.data(),
                             .slots = 4096,
                             .row_bytes = row_bytes};
  for (auto _ : state) {
    benchmark::DoNotOptimize(cpu::KvAppend(args, {.threads = &pool}).ok());
  }
  state.SetBytesProcessed(state.iterations() * tokens * row_bytes * 2);
}
BENCHMARK(KvAppend)->Arg(1)->Arg(65)->Arg(512)->UseRealTime();

}  // namespace
}  // namespace arborist::kernels

BENCHMARK_MAIN();
