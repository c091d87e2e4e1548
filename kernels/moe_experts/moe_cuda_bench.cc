// The router and the experts on the GPU: a TP8 slice of Kimi K2 (384 experts of 7168 x 256, top 8) and the
// shipped pair's. The floor is one read of the distinct experts that the rows touch.
//   moe_cuda_bench [--json=FILE] [--filter=TEXT]
#include <algorithm>
#include <numeric>
#include <random>
#include <set>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "kernels/bench/cuda_bench.h"
#include "kernels/bench/output_check.h"
#include "kernels/moe_experts/moe_experts.h"
#include "kernels/moe_route/moe_route.h"

namespace arborist::kernels::bench {
namespace {

struct ExpertsShape {
  const char* name;
  int64_t hidden, width, shared_width;
  int experts, top_k;
};

class MoeBench {
 public:
  explicit MoeBench(CudaBench& bench) : bench_(bench) {}

  void Route(int experts, int top_k, int groups, int kept, RouteScoring scoring, int64_t rows) {
    const auto* logits = static_cast<const float*>(bench_.Memory(static_cast<size_t>(rows * experts * 4), 0));
    std::vector<float> values(static_cast<size_t>(rows * experts));
    std::generate(values.begin(), values.end(), [&] { return normal_(engine_); });
    logits = bench_.Upload(values);
    auto* expert = static_cast<int32_t*>(bench_.Memory(static_cast<size_t>(rows * top_k * 4), 0));
    auto* weight = static_cast<float*>(bench_.Memory(static_cast<size_t>(rows * top_k * 4), 0));
    MoeRouteArgs args{.logits = {logits, rows, experts, experts},
                      .bias = {logits, scoring == RouteScoring::kSigmoid ? experts : 0},
                      .scoring = scoring,
                      .group_score = RouteGroupScore::kTopTwoSum,
                      .groups = groups,
                      .kept_groups = kept,
                      .top_k = top_k,
                      .normalize = true,
                      .scaling = 2.5f,
                      .expert = {expert, rows, top_k, top_k},
                      .weight = {weight, rows, top_k, top_k}};
    const double microseconds =
        bench_.MedianMicroseconds(64, [&](int) { return cuda::MoeRoute(args, bench_.stream()); });
    bench_.Report({.kernel = "moe_route",
                   .shape = absl::StrCat(scoring == RouteScoring::kSigmoid ? "sigmoid " : "softmax ", experts,
                                         " top ", top_k, ", groups ", kept, "/", groups, ", rows ", rows),
                   .microseconds = microseconds});
    std::vector<int32_t> ids(static_cast<size_t>(rows * top_k));
    std::vector<float> weights(ids.size());
    args.logits.data = args.bias.data = values.data();
    args.expert.data = ids.data();
    args.weight.data = weights.data();
    Check(reference::MoeRoute(args, {}).ok(), "the oracle runs");
    ExpectEqual("moe_route", Download(expert, rows * top_k), ids);
    ExpectNear("moe_route", Download(weight, rows * top_k), weights, 2e-6f);
  }

  void Experts(const ExpertsShape& shape, const std::vector<int64_t>& row_counts) {
    const size_t matrix = static_cast<size_t>(shape.hidden * shape.width) * 2;
    const size_t shared_matrix = static_cast<size_t>(shape.hidden * shape.shared_width) * 2;
    // Enough layers that their weights do not stay in the second cache.
    const int layers = CudaBench::SetsFor(static_cast<double>(3 * matrix) * shape.top_k);
    const int held = std::min(layers, std::max(1, static_cast<int>(60e9 / (3.0 * matrix * shape.experts))));
    std::vector<const ExpertWeights*> tables;
    std::vector<ExpertWeights> shared;
    const auto view = [](char* data, int64_t rows, int64_t columns) {
      return WeightView{data, DType::kBF16, rows, columns};
    };
    const auto weights = [&](char* data, size_t bytes, int64_t width) {
      return ExpertWeights{view(data, width, shape.hidden), view(data + bytes, width, shape.hidden),
                           view(data + 2 * bytes, shape.hidden, width)};
    };
    for (int layer = 0; layer < held; ++layer) {
      auto* data = static_cast<char*>(
          bench_.Memory(3 * matrix * static_cast<size_t>(shape.experts) + 3 * shared_matrix));
      std::vector<ExpertWeights> table;
      for (int e = 0; e < shape.experts; ++e) {
        table.push_back(weights(data + 3 * matrix * static_cast<size_t>(e), matrix, shape.width));
      }
      shared.push_back(
          weights(data + 3 * matrix * static_cast<size_t>(shape.experts), shared_matrix, shape.shared_width));
      tables.push_back(bench_.Upload(table));
    }
    for (const int64_t rows : row_counts) {
      // The same layers come back with other experts chosen.
      const int sets = std::max(layers, rows <= 65 ? 12 : 4);
      std::vector<const int32_t*> expert;
      double distinct = 0;
      for (int i = 0; i < sets; ++i) {
        const std::vector<int32_t> ids = RandomRoutes(shape, rows);
        distinct += static_cast<double>(std::set<int32_t>(ids.begin(), ids.end()).size()) / sets;
        expert.push_back(bench_.Upload(ids));
      }
      const std::vector<float> ones(static_cast<size_t>(rows * shape.top_k), 0.125f);
      const float* weight = bench_.Upload(ones);
      std::vector<float> values(static_cast<size_t>(rows * shape.hidden));
      std::generate(values.begin(), values.end(), [&] { return normal_(engine_); });
      const float* x = bench_.Upload(values);
      auto* out = static_cast<float*>(bench_.Memory(static_cast<size_t>(rows * shape.hidden * 4), 0));
      const size_t scratch_bytes =
          MoeExpertsCudaScratchBytes(rows, shape.top_k, shape.width, shape.shared_width);
      auto* scratch = static_cast<std::byte*>(bench_.Memory(scratch_bytes, 0));
      const auto args = [&](int i) {
        return MoeExpertsArgs{.x = {x, rows, shape.hidden, shape.hidden},
                              .expert = {expert[i], rows, shape.top_k, shape.top_k},
                              .weight = {weight, rows, shape.top_k, shape.top_k},
                              .experts = {tables[i % held], shape.experts},
                              .weight_dtype = DType::kBF16,
                              .width = shape.width,
                              .shared = shape.shared_width > 0 ? &shared[i % held] : nullptr,
                              .full_width = shape.width,
                              .full_shared_width = shape.shared_width,
                              .out = {out, rows, shape.hidden, shape.hidden},
                              .scratch = {scratch, static_cast<int64_t>(scratch_bytes)}};
      };
      const double microseconds =
          bench_.MedianMicroseconds(sets, [&](int i) { return cuda::MoeExperts(args(i), bench_.stream()); });
      const double floor =
          (distinct * 3.0 * static_cast<double>(matrix) + 3.0 * static_cast<double>(shared_matrix)) /
          kFloorBandwidth * 1e6;
      bench_.Report({.kernel = "moe_experts",
                     .shape = absl::StrCat(shape.name, ", rows ", rows, ", distinct ",
                                           static_cast<int>(distinct + 0.5)),
                     .microseconds = microseconds,
                     .floor_microseconds = floor,
                     .goal_microseconds = shape.hidden > 1024 ? 1.4 * floor : 0});
      CheckFirstRow(args(sets - 1));
    }
  }

 private:
  // The first row of what the last launch left, against the oracle over that row's experts alone.
  void CheckFirstRow(const MoeExpertsArgs& args) {
    const int64_t hidden = args.x.columns, top_k = args.expert.columns;
    const std::vector<int32_t> chosen = Download(args.expert.data, top_k);
    const std::vector<float> weight = Download(args.weight.data, top_k), x = Download(args.x.data, hidden);
    std::vector<std::vector<uint16_t>> memory;
    const auto on_host = [&](WeightView view) {
      memory.push_back(Download(static_cast<const uint16_t*>(view.data), view.rows * view.columns));
      view.data = memory.back().data();
      return view;
    };
    const auto expert_on_host = [&](const ExpertWeights& expert) {
      return ExpertWeights{on_host(expert.gate), on_host(expert.up), on_host(expert.down)};
    };
    std::vector<ExpertWeights> experts;
    std::vector<int32_t> ids;
    for (const int32_t e : chosen) {
      ids.push_back(static_cast<int32_t>(experts.size()));
      experts.push_back(expert_on_host(Download(args.experts.data + e, 1).front()));
    }
    ExpertWeights shared;
    MoeExpertsArgs host = args;
    if (args.shared != nullptr) {
      shared = expert_on_host(*args.shared);
      host.shared = &shared;
    }
    std::vector<float> want(static_cast<size_t>(hidden));
    std::vector<std::byte> scratch(MoeExpertsScratchBytes(1, hidden, top_k, static_cast<int>(top_k),
                                                          args.width, args.full_shared_width));
    host.x = {x.data(), 1, hidden, hidden};
    host.expert = {ids.data(), 1, top_k, top_k};
    host.weight = {weight.data(), 1, top_k, top_k};
    host.experts = {experts.data(), top_k};
    host.out = {want.data(), 1, hidden, hidden};
    host.scratch = {scratch.data(), static_cast<int64_t>(scratch.size())};
    Check(reference::MoeExperts(host, {}).ok(), "the oracle runs");
    ExpectNear("moe_experts", Download(args.out.data, hidden), want, 5e-3f);
  }

  std::vector<int32_t> RandomRoutes(const ExpertsShape& shape, int64_t rows) {
    std::vector<int32_t> routes, ids(static_cast<size_t>(shape.experts));
    std::iota(ids.begin(), ids.end(), 0);
    for (int64_t t = 0; t < rows; ++t) {
      std::shuffle(ids.begin(), ids.end(), engine_);
      std::sort(ids.begin(), ids.begin() + shape.top_k);
      routes.insert(routes.end(), ids.begin(), ids.begin() + shape.top_k);
    }
    return routes;
  }

  CudaBench& bench_;
  std::mt19937_64 engine_{20261129};
  std::normal_distribution<float> normal_;
};

void Run(CudaBench& bench) {
  MoeBench moe(bench);
  if (bench.Wanted("moe_route")) {
    for (const int64_t rows : {1, 65, 256}) {
      moe.Route(384, 8, 1, 1, RouteScoring::kSigmoid, rows);
      moe.Route(256, 8, 8, 4, RouteScoring::kSigmoid, rows);
      moe.Route(64, 6, 1, 1, RouteScoring::kSoftmax, rows);
      moe.Route(16, 4, 1, 1, RouteScoring::kSigmoid, rows);
    }
  }
  const auto experts = [&](const ExpertsShape& shape, const std::vector<int64_t>& rows) {
    if (bench.Wanted(absl::StrCat("moe_experts ", shape.name))) {
      moe.Experts(shape, rows);
    }
  };
  experts({"K2 TP8 384 x 7168 x 256", 7168, 256, 0, 384, 8}, {1, 9, 17, 33, 65, 256});
  experts({"K2 TP8 and shared 256", 7168, 256, 256, 384, 8}, {1, 33, 256, 512});
  experts({"pair 16 x 256 x 96, shared 96", 256, 96, 96, 16, 4}, {1, 9, 33, 65, 256, 512});
}

}  // namespace
}  // namespace arborist::kernels::bench

int main(int argc, char** argv) {
  arborist::kernels::bench::CudaBench bench(argc, argv);
  if (bench.has_device()) {
    arborist::kernels::bench::Run(bench);
  }
  return 0;
}
