#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <string_view>

namespace arborist::verifier {

// Sequences of one kind draft alike and follow one decision.
enum class SamplingKind { kGreedy, kCool, kHot };  // temperature 0, to 0.7, above
inline constexpr std::array kSamplingKinds = {SamplingKind::kGreedy, SamplingKind::kCool, SamplingKind::kHot};

constexpr std::string_view Name(SamplingKind kind) {
  constexpr std::string_view kNames[] = {"0", "to_0.7", "above_0.7"};
  return kNames[static_cast<int>(kind)];
}

// What AUTO does for one kind of sequence, and why.
struct BudgetReport {
  bool features = false;  // their drafter takes features
  SamplingKind sampling = SamplingKind::kGreedy;
  int sequences = 0;
  int nodes = 0;       // that they are told to draft; 0: plain decoding
  bool trial = false;  // to find out, not because it pays
  int64_t trials = 0;  // so far
  // Expected tokens a second of all sequences, those of other kinds included.
  double plain_rate = 0;
  double tree_rate = 0;  // of the best trees
};

using OnBudgetReport = std::function<void(const BudgetReport&)>;

}  // namespace arborist::verifier
