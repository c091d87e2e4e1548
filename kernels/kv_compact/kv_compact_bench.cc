#include <benchmark/benchmark.h>

#include <cstddef>
#include <vector>

#include "kernels/kv_compact/kv_compact.h"

namespace arborist::kernels {
namespace {

// One accepted path of `moves` rows through the shipped target's planes: 12 latent, 1 feature. Floor: four
// copies of every byte (read, buffer, buffer, write).
void KvCompact(benchmark::State& state) {
  const int64_t moves = state.range(0);
  ThreadPool pool(2);
  std::vector<int64_t> row_bytes(12, 640);
  row_bytes.push_back(1024);
  std::vector<std::vector<std::byte>> bytes;
  std::vector<void*> plane;
  for (int64_t width : row_bytes) {
    plane.push_back(bytes.emplace_back(1024 * width).data());
  }
  std::vector<int32_t> from(moves);
  std::vector<int32_t> to(moves);
  for (int64_t i = 0; i < moves; ++i) {
    from[i] = static_cast<int32_t>(501 + 2 * i);
    to[i] = static_cast<int32_t>(501 + i);
  }
  std::vector<std::byte> scratch(KvCompactScratchBytes(moves, 1024, 2));
  const KvCompactArgs args = {.plane = {plane.data(), static_cast<int64_t>(plane.size())},
                              .row_bytes = {row_bytes.data(), static_cast<int64_t>(row_bytes.size())},
                              .max_row_bytes = 1024,
                              .slots = 1024,
                              .from = {from.data(), moves},
                              .to = {to.data(), moves},
                              .scratch = {scratch.data(), static_cast<int64_t>(scratch.size())}};
  for (auto _ : state) {
    benchmark::DoNotOptimize(cpu::KvCompact(args, {.threads = &pool}).ok());
  }
  state.SetBytesProcessed(state.iterations() * moves * (12 * 640 + 1024) * 4);
}
BENCHMARK(KvCompact)->Arg(2)->Arg(8)->Arg(15)->UseRealTime();

}  // namespace
}  // namespace arborist::kernels

BENCHMARK_MAIN();
