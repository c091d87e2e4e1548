#include <algorithm>
#include <limits>

#include "common/base/status_macros.h"
#include "kernels/exact_math/exact_math.h"
#include "kernels/moe_route/moe_route.h"

namespace arborist::kernels::cpu {
namespace {

constexpr float kMinusInfinity = -std::numeric_limits<float>::infinity();

// fp32 in ascending expert id, so the bits are the row's own.
void Scores(const MoeRouteArgs& args, const float* logits, float* scores) {
  const int64_t experts = args.logits.columns;
  if (args.scoring == RouteScoring::kSigmoid) {
    for (int64_t e = 0; e < experts; ++e) {
      scores[e] = -logits[e];
    }
    ExpRow(scores, 0.0f, experts, scores);
    for (int64_t e = 0; e < experts; ++e) {
      scores[e] = 1.0f / (1.0f + scores[e]);
    }
    return;
  }
  ExpRow(logits, *std::max_element(logits, logits + experts), experts, scores);
  float sum = 0;
  for (int64_t e = 0; e < experts; ++e) {
    sum += scores[e];
  }
  for (int64_t e = 0; e < experts; ++e) {
    scores[e] = scores[e] / sum;
  }
}

// Takes the largest remaining value out, the lowest index among equals. -inf counts as taken.
int64_t TakeLargest(float* values, int64_t count) {
  int64_t best = -1;
  for (int64_t i = 0; i < count; ++i) {
    if (values[i] > kMinusInfinity && (best < 0 || values[i] > values[best])) {
      best = i;
    }
  }
  return best;
}

void MaskGroups(const MoeRouteArgs& args, float* choice) {
  const int64_t size = args.logits.columns / args.groups;
  float group[kMaxRoutedExperts];
  bool kept[kMaxRoutedExperts] = {};
  for (int g = 0; g < args.groups; ++g) {
    float first = kMinusInfinity;
    float second = kMinusInfinity;
    for (int64_t i = g * size; i < (g + 1) * size; ++i) {
      if (choice[i] > first) {
        second = first;
        first = choice[i];
      } else if (choice[i] > second) {
        second = choice[i];
      }
    }
    group[g] = args.group_score == RouteGroupScore::kTopTwoSum && size > 1 ? first + second : first;
  }
  for (int i = 0; i < args.kept_groups; ++i) {
    const int64_t best = TakeLargest(group, args.groups);
    if (best < 0) {
      break;
    }
    kept[best] = true;
    group[best] = kMinusInfinity;
  }
  for (int g = 0; g < args.groups; ++g) {
    if (!kept[g]) {
      std::fill_n(choice + g * size, size, kMinusInfinity);
    }
  }
}

void RouteRow(const MoeRouteArgs& args, int64_t row) {
  const int64_t experts = args.logits.columns;
  float scores[kMaxRoutedExperts] = {};
  float choice[kMaxRoutedExperts];
  Scores(args, args.logits.row(row), scores);
  std::copy_n(scores, experts, choice);
  for (int64_t e = 0; e < args.bias.size; ++e) {
    choice[e] += args.bias[e];
  }
  if (args.kept_groups < args.groups) {
    MaskGroups(args, choice);
  }
  int32_t* expert = args.expert.row(row);
  for (int i = 0; i < args.top_k; ++i) {
    // Non-finite logits leave nothing to choose; the sampler reports them, here any expert does.
    const int64_t best = std::max<int64_t>(0, TakeLargest(choice, experts));
    expert[i] = static_cast<int32_t>(best);
    choice[best] = kMinusInfinity;
  }
  std::sort(expert, expert + args.top_k);
  float sum = 1e-20f;
  for (int i = 0; i < args.top_k; ++i) {
    sum += scores[expert[i]];
  }
  for (int i = 0; i < args.top_k; ++i) {
    const float score = scores[expert[i]];
    args.weight.row(row)[i] = (args.normalize ? score / sum : score) * args.scaling;
  }
}

}  // namespace

absl::Status MoeRoute(const MoeRouteArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateMoeRoute(args));
  const int64_t grain = std::max<int64_t>(1, 2048 / args.logits.columns);
  stream.threads->ParallelFor(args.logits.rows, grain, [&](int64_t begin, int64_t end, int) {
    for (int64_t t = begin; t < end; ++t) {
      RouteRow(args, t);
    }
  });
  return absl::OkStatus();
}

}  // namespace arborist::kernels::cpu
