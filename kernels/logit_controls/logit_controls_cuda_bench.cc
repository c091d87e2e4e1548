// The controlled rows of a step over a large vocabulary. Floor: the logits are read and written once. The
// first row of a call is compared with the oracle's.

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "kernels/bench/cuda_bench.h"
#include "kernels/bench/output_check.h"
#include "kernels/logit_controls/logit_controls.h"

namespace arborist::kernels {
namespace {

constexpr int64_t kVocabulary = 163840;
constexpr int64_t kWords = kVocabulary / 32;
constexpr int32_t kRowEntries = 40;  // ancestors, stop ids

std::vector<LogitEntry> Entries(int32_t history) {
  std::vector<LogitEntry> entries;
  const auto add = [&](int32_t count) {
    for (int32_t i = 0; i < count; ++i) {
      entries.push_back({.token = TokenId{i * static_cast<int32_t>(kVocabulary / std::max(count, 1))},
                         .bias = 0.5f,
                         .output_count = i % 3,
                         .occurred = 1});
    }
  };
  add(history);
  add(kRowEntries);
  return entries;
}

void CheckFirstRow(const LogitControlsArgs& args, const RowControls& row, const SequenceControls& sequence,
                   const std::vector<LogitEntry>& entries, const std::vector<uint32_t>& mask) {
  const std::vector<float> raw = bench::Download(args.raw.data, kVocabulary);
  std::vector<float> want(kVocabulary);
  Check(reference::LogitControls({.raw = {raw.data(), 1, kVocabulary, kVocabulary},
                                  .row = {&row, 1},
                                  .sequence = {&sequence, 1},
                                  .entry = {entries.data(), static_cast<int64_t>(entries.size())},
                                  .mask = {mask.data(), 1, kWords, kWords},
                                  .choice = {want.data(), 1, kVocabulary, kVocabulary}},
                                 {})
            .ok(),
        "the oracle runs");
  bench::ExpectEqual("logit_controls", bench::Download(args.choice.data, kVocabulary), want);
}

void Measure(bench::CudaBench& bench, int64_t rows, const float* raw, float* choice, int32_t history,
             bool masked) {
  const std::vector<LogitEntry> entries = Entries(history);
  const SequenceControls sequence = {
      .repetition = 1.1f, .presence = 0.2f, .frequency = 0.1f, .entries = {0, history}};
  const RowControls row = {.sequence = 0, .mask = masked ? 0 : -1, .entries = {history, kRowEntries}};
  const std::vector<uint32_t> mask(kWords, 0xfff0fff1u);
  const double bytes = static_cast<double>(rows * kVocabulary) * 8;
  const int sets = std::max(1, std::min(bench::CudaBench::SetsFor(bytes), 544 / static_cast<int>(rows)));
  std::vector<LogitControlsArgs> args;
  for (int i = 0; i < sets; ++i) {
    const int64_t at = i * rows * kVocabulary;
    args.push_back({.raw = {raw + at, rows, kVocabulary, kVocabulary},
                    .row = {bench.Upload(std::vector<RowControls>(rows, row)), rows},
                    .sequence = {bench.Upload(std::vector<SequenceControls>{sequence}), 1},
                    .entry = {bench.Upload(entries), static_cast<int64_t>(entries.size())},
                    .mask = {bench.Upload(mask), 1, kWords, kWords},
                    .choice = {choice + at, rows, kVocabulary, kVocabulary}});
  }
  const double microseconds =
      bench.MedianMicroseconds(sets, [&](int i) { return cuda::LogitControls(args[i], bench.stream()); });
  bench.Report(
      {.kernel = "logit_controls",
       .shape = absl::StrCat("[", rows, ", ", kVocabulary, "] history ", history, masked ? " masked" : ""),
       .microseconds = microseconds,
       .floor_microseconds = bytes / bench::kFloorBandwidth * 1e6});
  CheckFirstRow(args.front(), row, sequence, entries, mask);
}

}  // namespace
}  // namespace arborist::kernels

int main(int argc, char** argv) {
  using arborist::kernels::kVocabulary;
  arborist::kernels::bench::CudaBench bench(argc, argv);
  if (!bench.has_device() || !bench.Wanted("logit_controls")) {
    return 0;
  }
  const size_t bytes = size_t{544} * kVocabulary * sizeof(float);
  // bf16 values in pairs are finite floats too.
  const auto* raw = static_cast<const float*>(bench.Memory(bytes));
  auto* choice = static_cast<float*>(bench.Memory(bytes, 0));
  for (const int64_t rows : {1, 33, 544}) {
    for (const int32_t history : {0, 2000}) {
      for (const bool masked : {false, true}) {
        arborist::kernels::Measure(bench, rows, raw, choice, history, masked);
      }
    }
  }
  return 0;
}
