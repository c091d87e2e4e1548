// Log-probabilities of the chosen token and a list of 20 of each row of a step over a large vocabulary.
// Floor: the logits are read once. The first row of a call is compared with the oracle's.

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "kernels/bench/cuda_bench.h"
#include "kernels/bench/output_check.h"
#include "kernels/token_log_prob/token_log_prob.h"

namespace arborist::kernels {
namespace {

constexpr int64_t kVocabulary = 163840;
constexpr int64_t kMost = 20;
constexpr int64_t kColumns = 1 + kMost;

void CheckFirstRow(const TokenLogProbArgs& args, const std::vector<TokenId>& tokens) {
  const std::vector<float> logits = bench::Download(args.logits.data, kVocabulary);
  const int32_t count = kMost;
  std::vector<float> want(kColumns);
  Check(reference::TokenLogProb({.logits = {logits.data(), 1, kVocabulary, kVocabulary},
                                 .chosen = {tokens.data(), 1},
                                 .forced = {},
                                 .top = {tokens.data(), 1, kMost, kMost},
                                 .top_count = {&count, 1},
                                 .log_prob = {want.data(), 1, kColumns, kColumns},
                                 .scratch = {}},
                                {})
            .ok(),
        "the oracle runs");
  bench::ExpectNear("token_log_prob", bench::Download(args.log_prob.data, kColumns), want, 2e-5f);
}

void Measure(bench::CudaBench& bench, int64_t rows, const float* logits) {
  std::vector<TokenId> tokens;
  for (int64_t i = 0; i < rows * kMost; ++i) {
    tokens.push_back(TokenId{static_cast<int32_t>(i * 7919 % kVocabulary)});
  }
  const double bytes = static_cast<double>(rows * kVocabulary) * 4;
  const int sets = std::max(1, std::min(bench::CudaBench::SetsFor(bytes), 544 / static_cast<int>(rows)));
  const size_t scratch = TokenLogProbCudaScratchBytes(rows, kVocabulary);
  std::vector<TokenLogProbArgs> args;
  for (int i = 0; i < sets; ++i) {
    const TokenId* uploaded = bench.Upload(tokens);
    args.push_back(
        {.logits = {logits + i * rows * kVocabulary, rows, kVocabulary, kVocabulary},
         .chosen = {uploaded, rows},
         .forced = {},
         .top = {uploaded, rows, kMost, kMost},
         .top_count = {bench.Upload(std::vector<int32_t>(rows, kMost)), rows},
         .log_prob = {static_cast<float*>(bench.Memory(rows * kColumns * 4, 0)), rows, kColumns, kColumns},
         .scratch = {static_cast<std::byte*>(bench.Memory(scratch, 0)), static_cast<int64_t>(scratch)}});
  }
  const double microseconds =
      bench.MedianMicroseconds(sets, [&](int i) { return cuda::TokenLogProb(args[i], bench.stream()); });
  bench.Report({.kernel = "token_log_prob",
                .shape = absl::StrCat("[", rows, ", ", kVocabulary, "] 21 tokens"),
                .microseconds = microseconds,
                .floor_microseconds = bytes / bench::kFloorBandwidth * 1e6});
  CheckFirstRow(args.front(), tokens);
}

}  // namespace
}  // namespace arborist::kernels

int main(int argc, char** argv) {
  using arborist::kernels::kVocabulary;
  arborist::kernels::bench::CudaBench bench(argc, argv);
  if (!bench.has_device() || !bench.Wanted("token_log_prob")) {
    return 0;
  }
  // bf16 values in pairs are finite floats too.
  const auto* logits = static_cast<const float*>(bench.Memory(size_t{544} * kVocabulary * sizeof(float)));
  for (const int64_t rows : {1, 33, 544}) {
    arborist::kernels::Measure(bench, rows, logits);
  }
  return 0;
}
