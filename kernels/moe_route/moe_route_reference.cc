#include <algorithm>
#include <cmath>
#include <limits>
#include <numeric>
#include <vector>

#include "common/base/status_macros.h"
#include "kernels/moe_route/moe_route.h"

namespace arborist::kernels::reference {
namespace {

constexpr double kMinusInfinity = -std::numeric_limits<double>::infinity();

std::vector<double> Scores(const MoeRouteArgs& args, int64_t row) {
  const int64_t experts = args.logits.columns;
  const float* logits = args.logits.row(row);
  std::vector<double> scores(experts);
  double sum = 0;
  const double largest = *std::max_element(logits, logits + experts);
  for (int64_t e = 0; e < experts; ++e) {
    if (args.scoring == RouteScoring::kSigmoid) {
      scores[e] = 1 / (1 + std::exp(-static_cast<double>(logits[e])));
    } else {
      scores[e] = std::exp(logits[e] - largest);
      sum += scores[e];
    }
  }
  if (args.scoring == RouteScoring::kSoftmax) {
    for (double& score : scores) {
      score /= sum;
    }
  }
  return scores;
}

void MaskGroups(const MoeRouteArgs& args, std::vector<double>& choice) {
  const int64_t size = args.logits.columns / args.groups;
  std::vector<double> group(args.groups);
  for (int g = 0; g < args.groups; ++g) {
    std::vector<double> members(choice.begin() + g * size, choice.begin() + (g + 1) * size);
    std::sort(members.rbegin(), members.rend());
    group[g] =
        args.group_score == RouteGroupScore::kTopTwoSum && size > 1 ? members[0] + members[1] : members[0];
  }
  std::vector<int> order(args.groups);
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int a, int b) { return group[a] > group[b]; });
  for (int place = args.kept_groups; place < args.groups; ++place) {
    std::fill_n(choice.begin() + order[place] * size, size, kMinusInfinity);
  }
}

}  // namespace

absl::Status MoeRoute(const MoeRouteArgs& args, StreamView) {
  RETURN_IF_ERROR(ValidateMoeRoute(args));
  const int64_t experts = args.logits.columns;
  for (int64_t t = 0; t < args.logits.rows; ++t) {
    const std::vector<double> scores = Scores(args, t);
    std::vector<double> choice = scores;
    for (int64_t e = 0; e < args.bias.size; ++e) {
      choice[e] += args.bias[e];
    }
    MaskGroups(args, choice);
    std::vector<int32_t> order(experts);
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) { return choice[a] > choice[b]; });
    order.resize(args.top_k);
    std::sort(order.begin(), order.end());
    double sum = 1e-20;
    for (const int32_t e : order) {
      sum += scores[e];
    }
    for (int i = 0; i < args.top_k; ++i) {
      args.expert.row(t)[i] = order[i];
      args.weight.row(t)[i] =
          static_cast<float>(scores[order[i]] / (args.normalize ? sum : 1) * args.scaling);
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels::reference
