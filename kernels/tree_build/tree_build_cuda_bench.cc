// Building the trees of many streams in one launch. Floor: a launch that does nothing. The line of our CPU
// version beside each is for one stream after another on one thread.

#include <algorithm>
#include <chrono>
#include <random>
#include <vector>

#include "absl/strings/str_cat.h"
#include "kernels/bench/cuda_bench.h"
#include "kernels/bench/output_check.h"
#include "kernels/tree_build/tree_build.h"

namespace arborist::kernels {
namespace {

struct Shape {
  int64_t streams;
  int32_t budget;
  int64_t depths;
  double goal;
};

double MedianCpuMicroseconds(const TreeBuildArgs& args) {
  std::vector<double> times;
  for (int i = 0; i < 50; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    cpu::TreeBuild(args, {}).IgnoreError();
    times.push_back(
        std::chrono::duration<double, std::micro>(std::chrono::steady_clock::now() - begin).count());
  }
  std::nth_element(times.begin(), times.begin() + 25, times.end());
  return times[25];
}

void Measure(bench::CudaBench& bench, const Shape& shape) {
  const int32_t k = std::min(shape.budget, 64);
  const int64_t rows = shape.streams * shape.depths, width = shape.budget + 1;
  std::mt19937 random(1);
  std::exponential_distribution<float> gap(1.0f);
  std::vector<TokenId> token;
  std::vector<float> log_prob;
  for (int64_t row = 0; row < rows; ++row) {
    float value = -0.3f * gap(random);
    for (int32_t rank = 0; rank < k; ++rank) {
      token.push_back(TokenId{rank * 7 + static_cast<int32_t>(row)});
      log_prob.push_back(value);
      value -= gap(random) / static_cast<float>(1 + rank);
    }
  }
  const std::vector<TreeBuildParams> params(
      shape.streams,
      {.root = TokenId{1}, .depths = static_cast<int32_t>(shape.depths), .k = k, .budget = shape.budget});
  const int64_t outputs = shape.streams * width;
  const auto ints = [&](int64_t count) { return static_cast<int32_t*>(bench.Memory(count * 4, 0)); };
  const TreeBuildArgs args = {
      .params = {bench.Upload(params), shape.streams},
      .token = {bench.Upload(token), rows, k, k},
      .log_prob = {bench.Upload(log_prob), rows, k, k},
      .out_token = {reinterpret_cast<TokenId*>(ints(outputs)), shape.streams, width, width},
      .out_parent = {ints(outputs), shape.streams, width, width},
      .out_score = {reinterpret_cast<float*>(ints(outputs)), shape.streams, width, width},
      .out_nodes = {ints(shape.streams), shape.streams},
      .error = {ints(shape.streams), shape.streams}};
  const double microseconds =
      bench.MedianMicroseconds(64, [&](int) { return cuda::TreeBuild(args, bench.stream()); });
  const std::string name =
      absl::StrCat(shape.streams, " streams, budget ", shape.budget, ", depth ", shape.depths, ", K ", k);
  bench.Report({.kernel = "tree_build",
                .shape = name,
                .microseconds = microseconds,
                .floor_microseconds = bench.empty_launch_microseconds(),
                .goal_microseconds = shape.goal});

  std::vector<TokenId> out_token(outputs);
  std::vector<int32_t> out_parent(outputs), nodes(shape.streams);
  std::vector<float> out_score(outputs);
  TreeBuildArgs host = args;
  host.params.data = params.data();
  host.token.data = token.data();
  host.log_prob.data = log_prob.data();
  host.out_token.data = out_token.data();
  host.out_parent.data = out_parent.data();
  host.out_score.data = out_score.data();
  host.out_nodes.data = nodes.data();
  host.error = {};
  bench.Report(
      {.kernel = "tree_build_on_the_cpu", .shape = name, .microseconds = MedianCpuMicroseconds(host)});
  bench::ExpectEqual("tree_build", bench::Download(args.out_nodes.data, shape.streams), nodes);
  for (int64_t stream = 0; stream < shape.streams;
       ++stream) {  // nothing is said of what lies behind the nodes
    const auto same = [&](auto device, auto host) {
      using T = std::remove_const_t<std::remove_reference_t<decltype(*host)>>;
      bench::ExpectEqual("tree_build", bench::Download(device + stream * width, nodes[stream]),
                         std::vector<T>(host + stream * width, host + stream * width + nodes[stream]));
    };
    same(args.out_token.data, host.out_token.data);
    same(args.out_parent.data, host.out_parent.data);
    same(args.out_score.data, host.out_score.data);
  }
}

}  // namespace
}  // namespace arborist::kernels

int main(int argc, char** argv) {
  arborist::kernels::bench::CudaBench bench(argc, argv);
  if (!bench.has_device() || !bench.Wanted("tree_build")) {
    return 0;
  }
  for (const arborist::kernels::Shape& shape : {arborist::kernels::Shape{1, 8, 7, 4},
                                                {1, 16, 7, 0},
                                                {1, 64, 15, 0},
                                                {1, 255, 15, 0},
                                                {64, 8, 7, 0},
                                                {64, 64, 7, 15},
                                                {64, 64, 15, 15},
                                                {64, 255, 15, 0}}) {
    arborist::kernels::Measure(bench, shape);
  }
  return 0;
}
