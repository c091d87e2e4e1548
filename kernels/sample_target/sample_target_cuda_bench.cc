// Sampling the rows of a verify step over a large vocabulary. Floor: the logits are read once. The first row
// of a call is compared with the oracle's.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "kernels/bench/cuda_bench.h"
#include "kernels/bench/output_check.h"
#include "kernels/sample_target/sample_target.h"

namespace arborist::kernels {
namespace {

constexpr int64_t kVocabulary = 163840;

struct Kind {
  const char* name;
  SamplingParams params;
};

// About normal with a standard deviation of 3, repeatable.
std::vector<float> Logits(int64_t rows) {
  std::vector<float> logits(rows * kVocabulary);
  uint32_t state = 1;
  for (float& value : logits) {
    float sum = 0;
    for (int i = 0; i < 4; ++i) {
      state = (state ^ (state >> 16)) * 0x45d9f3bu + 0x9e3779b9u;
      sum += static_cast<float>(state >> 8) * 0x1p-24f;
    }
    value = (sum - 2.0f) * 5.2f;
  }
  return logits;
}

struct alignas(64) Line {
  std::byte bytes[64];
};

void CheckFirstRow(const SampleTargetArgs& args, const Kind& kind) {
  const std::vector<float> logits = bench::Download(args.logits.data, kVocabulary);
  const int32_t position = 5, index = 0;
  TokenId chosen;
  float log_prob;
  SampleTargetArgs host = args;
  host.logits = {logits.data(), 1, kVocabulary, kVocabulary};
  host.position = {&position, 1};
  host.params_index = {&index, 1};
  host.params = {&kind.params, 1};
  host.chosen = {&chosen, 1};
  host.log_prob = {&log_prob, 1};
  host.error = {};
  std::vector<Line> scratch(SampleTargetScratchBytes(kVocabulary, 1) / sizeof(Line) + 1);
  host.scratch = {scratch.front().bytes, static_cast<int64_t>(scratch.size() * sizeof(Line))};
  Check(reference::SampleTarget(host, {}).ok(), "the oracle runs");
  bench::ExpectEqual("sample_target", bench::Download(args.chosen.data, 1), {chosen});
  bench::ExpectNear("sample_target", bench::Download(args.log_prob.data, 1), std::vector<float>{log_prob},
                    2e-5f);
}

void Measure(bench::CudaBench& bench, int64_t rows, const float* logits, const Kind& kind) {
  const double bytes = static_cast<double>(rows * kVocabulary) * 4;
  const int sets = std::max(1, std::min(bench::CudaBench::SetsFor(bytes), 256 / static_cast<int>(rows)));
  const size_t scratch = SampleTargetCudaScratchBytes(rows, kVocabulary);
  std::vector<SampleTargetArgs> args;
  for (int i = 0; i < sets; ++i) {
    args.push_back(
        {.logits = {logits + i * rows * kVocabulary, rows, kVocabulary, kVocabulary},
         .position = {bench.Upload(std::vector<int32_t>(rows, 5)), rows},
         .params_index = {bench.Upload(std::vector<int32_t>(rows, 0)), rows},
         .params = {bench.Upload(std::vector<SamplingParams>{kind.params}), 1},
         .chosen = {static_cast<TokenId*>(bench.Memory(rows * 4, 0)), rows},
         .log_prob = {static_cast<float*>(bench.Memory(rows * 4, 0)), rows},
         .scratch = {static_cast<std::byte*>(bench.Memory(scratch, 0)), static_cast<int64_t>(scratch)},
         .error = {static_cast<int32_t*>(bench.Memory(rows * 4, 0)), rows}});
  }
  const double microseconds =
      bench.MedianMicroseconds(sets, [&](int i) { return cuda::SampleTarget(args[i], bench.stream()); });
  bench.Report({.kernel = "sample_target",
                .shape = absl::StrCat("[", rows, ", ", kVocabulary, "] ", kind.name),
                .microseconds = microseconds,
                .floor_microseconds = bytes / bench::kFloorBandwidth * 1e6});
  CheckFirstRow(args.front(), kind);
}

}  // namespace
}  // namespace arborist::kernels

int main(int argc, char** argv) {
  using arborist::kernels::Kind;
  arborist::kernels::bench::CudaBench bench(argc, argv);
  if (!bench.has_device() || !bench.Wanted("sample_target")) {
    return 0;
  }
  const Kind kinds[] = {{"greedy", {}},
                        {"T=1", {.temperature = 1}},
                        {"T=0.7 top-p 0.9", {.temperature = 0.7f, .top_p = 0.9f}},
                        {"T=1 top-k 50 top-p 0.95", {.temperature = 1, .top_k = 50, .top_p = 0.95f}},
                        {"T=1 min-p 0.05", {.temperature = 1, .min_p = 0.05f}},
                        {"T=0.7 top-k 200 top-p 0.9 min-p 0.01",
                         {.temperature = 0.7f, .top_k = 200, .top_p = 0.9f, .min_p = 0.01f}}};
  const float* logits = bench.Upload(arborist::kernels::Logits(256));
  for (const int64_t rows : {1, 17, 65, 256}) {
    for (const Kind& kind : kinds) {
      arborist::kernels::Measure(bench, rows, logits, kind);
    }
  }
  return 0;
}
