// Log-sum-exp and the best candidates over bf16 logits: many rows, and the rows of one draft; without and
// with the coupled noise.

#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "kernels/bench/cuda_bench.h"
#include "kernels/bench/output_check.h"
#include "kernels/top_k_log_prob/top_k_log_prob.h"

namespace arborist::kernels {
namespace {

constexpr int64_t kVocabulary = 163840;

struct alignas(64) Line {
  std::byte bytes[64];
};

void CheckFirstRow(const TopKLogProbArgs& args, TopKParams params) {
  const auto logits = bench::Download(static_cast<const uint16_t*>(args.logits.data), kVocabulary);
  params.depths = 1;
  std::vector<TokenId> token(params.k);
  std::vector<float> log_prob(params.k);
  TopKLogProbArgs host = args;
  host.logits = {logits.data(), DType::kBF16, 1, kVocabulary, kVocabulary};
  host.params = {&params, 1};
  host.token = {token.data(), 1, params.k, params.k};
  host.log_prob = {log_prob.data(), 1, params.k, params.k};
  std::vector<Line> scratch(TopKLogProbScratchBytes(1, kVocabulary) / sizeof(Line) + 1);
  host.scratch = {scratch.front().bytes, static_cast<int64_t>(scratch.size() * sizeof(Line))};
  Check(reference::TopKLogProb(host, {}).ok(), "the oracle runs");
  bench::ExpectEqual("top_k_log_prob", bench::Download(args.token.data, params.k), token);
  bench::ExpectNear("top_k_log_prob", bench::Download(args.log_prob.data, params.k), log_prob, 2e-5f);
}

void Measure(bench::CudaBench& bench, int64_t streams, int64_t depths, int32_t k, float temperature,
             double goal) {
  const int64_t rows = streams * depths;
  const double bytes = static_cast<double>(rows * kVocabulary) * 2;
  const int sets = bench::CudaBench::SetsFor(bytes);
  const std::vector<TopKParams> params(
      streams, {.temperature = temperature, .seed = 7, .depths = static_cast<int32_t>(depths), .k = k});
  const size_t scratch = TopKLogProbCudaScratchBytes(rows, kVocabulary);
  std::vector<TopKLogProbArgs> args;
  for (int i = 0; i < sets; ++i) {
    args.push_back(
        {.logits = {bench.Memory(static_cast<size_t>(bytes)), DType::kBF16, rows, kVocabulary, kVocabulary},
         .params = {bench.Upload(params), streams},
         .token = {static_cast<TokenId*>(bench.Memory(rows * k * 4, 0)), rows, k, k},
         .log_prob = {static_cast<float*>(bench.Memory(rows * k * 4, 0)), rows, k, k},
         .scratch = {static_cast<std::byte*>(bench.Memory(scratch, 0)), static_cast<int64_t>(scratch)}});
  }
  const double microseconds =
      bench.MedianMicroseconds(sets, [&](int i) { return cuda::TopKLogProb(args[i], bench.stream()); });
  bench.Report({.kernel = "top_k_log_prob",
                .shape = absl::StrCat("bf16 [", rows, ", ", kVocabulary, "], top-", k,
                                      temperature > 0 ? ", coupled noise" : ""),
                .microseconds = microseconds,
                .floor_microseconds = bytes / bench::kFloorBandwidth * 1e6,
                .goal_microseconds = goal});
  CheckFirstRow(args.front(), params.front());
}

}  // namespace
}  // namespace arborist::kernels

int main(int argc, char** argv) {
  arborist::kernels::bench::CudaBench bench(argc, argv);
  if (!bench.has_device() || !bench.Wanted("top_k_log_prob")) {
    return 0;
  }
  arborist::kernels::Measure(bench, 1, 7, 8, 0, 12);
  arborist::kernels::Measure(bench, 1, 7, 64, 0, 12);
  arborist::kernels::Measure(bench, 1, 7, 64, 1, 0);
  arborist::kernels::Measure(bench, 8, 7, 64, 0, 0);
  arborist::kernels::Measure(bench, 1, 1024, 32, 0, 110);
  arborist::kernels::Measure(bench, 1, 1024, 64, 0, 110);
  arborist::kernels::Measure(bench, 1, 1024, 64, 1, 0);
  return 0;
}
