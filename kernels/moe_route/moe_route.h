#pragma once

#include <cstdint>

#include "absl/status/status.h"
#include "common/tensor/view.h"
#include "common/threads/thread_pool.h"

namespace arborist::kernels {

enum class RouteScoring { kSigmoid, kSoftmax };
// How groups are ranked: by the sum of their two largest choice values (noaux_tc) or by their largest (V2).
enum class RouteGroupScore { kTopTwoSum, kMax };

// More than any model of the family has (Kimi K2: 384); bounds the kernel's stack.
inline constexpr int kMaxRoutedExperts = 1024;

// Chooses experts (k2_facts section 4). choice = score + bias; groups not among the best `kept_groups` are
// masked with -inf; the top_k largest choices win, ties to the lower id. Weights come from the scores without
// the bias, are divided by (sum + 1e-20) if `normalize`, then multiplied by `scaling`. Output is in ascending
// expert id. exp is exact_math's.
struct MoeRouteArgs {
  View2<const float> logits;     // [tokens, experts]
  View1<const float> bias = {};  // [experts], or empty: no bias
  RouteScoring scoring = RouteScoring::kSigmoid;
  RouteGroupScore group_score = RouteGroupScore::kTopTwoSum;
  int groups = 1;       // divides experts
  int kept_groups = 1;  // 1..groups
  int top_k = 1;        // 1..experts of the kept groups
  bool normalize = false;
  float scaling = 1;
  View2<int32_t> expert;  // [tokens, top_k] ascending
  View2<float> weight;    // [tokens, top_k]
};

absl::Status ValidateMoeRoute(const MoeRouteArgs& args);

namespace reference {
absl::Status MoeRoute(const MoeRouteArgs& args, StreamView stream);
}
namespace cpu {
absl::Status MoeRoute(const MoeRouteArgs& args, StreamView stream);
}
namespace cuda {
absl::Status MoeRoute(const MoeRouteArgs& args, StreamView stream);
}

}  // namespace arborist::kernels
