#include "kernels/bench/machine.h"

#include <algorithm>
#include <chrono>
#include <cstring>
#include <vector>

#include "kernels/bench/machine_lanes.h"
#include "kernels/simd/isa.h"

namespace arborist::kernels::bench {
namespace {

double Now() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

double ReadBytesPerSecond(ThreadPool& pool) {
  constexpr int64_t kChunk = 8192;  // the target of the copies stays in the nearest cache
  const std::vector<char> ring(kRingBytes, 1);
  std::vector<char> near(static_cast<size_t>(kChunk * pool.threads()));
  const double seconds = MedianSeconds([&](int64_t) {
    pool.ParallelFor(kRingBytes / kChunk, 1, [&](int64_t begin, int64_t end, int worker) {
      for (int64_t i = begin; i < end; ++i) {
        std::memcpy(near.data() + worker * kChunk, ring.data() + i * kChunk, kChunk);
      }
    });
  });
  return static_cast<double>(kRingBytes) / seconds;
}

double FusedAddsPerSecond(ThreadPool& pool) {
  constexpr int64_t kRounds = 20000;
  const auto run =
      ForActiveIsa(portable::FusedMultiplyAdds, avx2::FusedMultiplyAdds, avx512::FusedMultiplyAdds);
  std::vector<float> sums(static_cast<size_t>(pool.threads()));
  const double seconds = MedianSeconds([&](int64_t) {
    pool.ParallelFor(pool.threads(), 1, [&](int64_t, int64_t, int worker) {
      sums[static_cast<size_t>(worker)] += run(kRounds);
    });
  });
  return static_cast<double>(kRounds * kFusedMultiplyAddsPerRound * pool.threads()) / seconds;
}

}  // namespace

double Machine::FloorSeconds(double bytes, double fused_adds) const {
  return std::max(bytes / read_bytes_per_second, fused_adds / fused_adds_per_second);
}

Machine Measure(ThreadPool& pool) {
  return {.read_bytes_per_second = ReadBytesPerSecond(pool),
          .fused_adds_per_second = FusedAddsPerSecond(pool)};
}

double MedianSeconds(const std::function<void(int64_t)>& body) {
  constexpr size_t kSamples = 15;
  constexpr double kSeconds = 0.03;
  int64_t call = 0;
  body(call++);
  std::vector<double> samples;
  for (double spent = 0; samples.size() < kSamples || spent < kSeconds;) {
    const double begin = Now();
    body(call++);
    samples.push_back(Now() - begin);
    spent += samples.back();
  }
  std::nth_element(samples.begin(), samples.begin() + static_cast<int64_t>(samples.size() / 2),
                   samples.end());
  return samples[samples.size() / 2];
}

}  // namespace arborist::kernels::bench
