#pragma once

#include <array>
#include <cstdint>
#include <functional>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/tensor/dtype.h"

namespace arborist::verifier {

// Shadow verification: in some of the steps the oracles of chosen kernels run beside the live ones, on copies
// in host memory, and what differs is told. No output byte changes, and a step that is not chosen pays
// nothing.
enum class ShadowKernel {
  kTreeAttentionMla,  // against softmax in double over the keys that the sequence's own facts name
  kMoeRoute,          // experts and weights, from the same router logits
  kSampleTarget,      // token and log-probability, from the same logits
  kTreeAccept,        // path and bonus token, from the same choices
  kKvCompact,         // accepted_moves and kv_compact: K/V rows of the path, byte for byte
  kRecordedStep,      // on a GPU: logits of the recorded step against those of one not recorded, bit for bit
};
inline constexpr std::array kShadowKernels = {ShadowKernel::kTreeAttentionMla, ShadowKernel::kMoeRoute,
                                              ShadowKernel::kSampleTarget,     ShadowKernel::kTreeAccept,
                                              ShadowKernel::kKvCompact,        ShadowKernel::kRecordedStep};

constexpr absl::string_view Name(ShadowKernel kernel) {
  switch (kernel) {
    case ShadowKernel::kTreeAttentionMla:
      return "tree_attention_mla";
    case ShadowKernel::kMoeRoute:
      return "moe_route";
    case ShadowKernel::kSampleTarget:
      return "sample_target";
    case ShadowKernel::kTreeAccept:
      return "tree_accept";
    case ShadowKernel::kKvCompact:
      return "kv_compact";
    case ShadowKernel::kRecordedStep:
      return "recorded_step";
  }
  return "";
}

// Live against oracle, over all that was compared of one kernel in one step.
struct ShadowDifference {
  int64_t values = 0;      // numbers compared
  int64_t mismatches = 0;  // of what must be equal: ids, experts, nodes, bytes of a row, bits of a logit
  int64_t non_finite = 0;  // NaN or infinity among the numbers, in either
  double max_abs = 0;
  double mean_abs = 0;
  // The largest, over the rows compared, of a row's largest difference divided by its largest magnitude in
  // the oracle (of log-probabilities: by at least 1).
  double relative = 0;
};

struct ShadowReport {
  ShadowKernel kernel{};
  int64_t step = 0;  // counted among the chosen ones, from 1
  int layer = -1;    // -1: of no layer
  int64_t rows = 0;
  ShadowDifference difference;
  double limit = 0;
  bool fault = false;  // something non-finite or mismatched, or the relative difference above the limit
};

// For live kernels that compute in fp32, or round query, keys and probabilities to bf16 (2^-9 each).
constexpr double DefaultShadowLimit(DType kv_type) { return kv_type == DType::kBF16 ? 0.03 : 0.001; }

struct ShadowOptions {
  double fraction = 0;                // of steps, [0, 1]; 0: none, and nothing else matters
  std::vector<ShadowKernel> kernels;  // empty: all that the device has
  double relative_limit = 0;          // > 0
  int rows = 4;                       // most rows compared a step, >= 1
  // Whether a row has the same bits each time it is computed. If not, K/V bytes and recorded steps are not
  // compared.
  bool exact = true;
  uint64_t seed = 1;  // draws steps, rows, heads and layers
  // A comparison runs on a thread of its own, one at a time; a step chosen meanwhile is passed over. True:
  // the step waits instead (tests).
  bool wait = false;
  // Both are called from either thread, and may be null.
  std::function<void(const ShadowReport&)> on_report = nullptr;
  std::function<void()> on_passed_over = nullptr;
};

}  // namespace arborist::verifier
