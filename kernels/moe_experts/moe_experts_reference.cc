#include <cmath>
#include <vector>

#include "common/base/status_macros.h"
#include "common/tensor/weight_element.h"
#include "kernels/moe_experts/moe_experts.h"

namespace arborist::kernels::reference {
namespace {

double Dot(const float* x, const WeightView& weight, int64_t row) {
  double sum = 0;
  for (int64_t k = 0; k < weight.columns; ++k) {
    sum += static_cast<double>(x[k]) * WeightElement(weight, row, k);
  }
  return sum;
}

// sum[n] += scale * expert(x)[n], all in double.
void AddExpert(const float* x, const ExpertWeights& weights, double scale, std::vector<double>& sum) {
  std::vector<double> inner(weights.gate.rows);
  for (int64_t i = 0; i < weights.gate.rows; ++i) {
    const double gate = Dot(x, weights.gate, i);
    inner[i] = gate / (1 + std::exp(-gate)) * Dot(x, weights.up, i);
  }
  for (size_t n = 0; n < sum.size(); ++n) {
    for (int64_t i = 0; i < weights.gate.rows; ++i) {
      sum[n] += scale * inner[i] * WeightElement(weights.down, static_cast<int64_t>(n), i);
    }
  }
}

}  // namespace

absl::Status MoeExperts(const MoeExpertsArgs& args, StreamView) {
  RETURN_IF_ERROR(ValidateMoeExperts(args));
  for (int64_t t = 0; t < args.x.rows; ++t) {
    std::vector<double> sum(args.x.columns, 0.0);
    const bool live = t < LiveRows(args);
    for (int64_t i = 0; live && i < args.expert.columns; ++i) {
      AddExpert(args.x.row(t), args.experts[args.expert.row(t)[i]], args.weight.row(t)[i], sum);
    }
    if (live && args.shared != nullptr) {
      AddExpert(args.x.row(t), *args.shared, 1.0, sum);
    }
    for (size_t n = 0; n < sum.size(); ++n) {
      args.out.row(t)[n] = static_cast<float>(sum[n]);
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels::reference
