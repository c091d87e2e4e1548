// Accepting 64 trees of 64 nodes: trees in which a walk of ordinary length is accepted, and chains accepted
// whole, the longest walk there is.

#include <vector>

#include "kernels/bench/cuda_bench.h"
#include "kernels/bench/output_check.h"
#include "kernels/tree_accept/tree_accept.h"

namespace arborist::kernels {
namespace {

constexpr int64_t kTrees = 64;
constexpr int32_t kNodes = 64;

// A path of `accepted` nodes whose tokens are chosen; the other nodes are their siblings.
void Measure(bench::CudaBench& bench, int32_t accepted, const char* shape, double goal) {
  std::vector<int32_t> begin = {0};
  std::vector<TokenId> token;
  std::vector<int32_t> parent;
  std::vector<TokenId> chosen;
  for (int64_t tree = 0; tree < kTrees; ++tree) {
    for (int32_t node = 0; node < kNodes; ++node) {
      parent.push_back(node < accepted ? node - 1 : node % accepted);
      token.push_back(TokenId{node < accepted ? 1 : node});
      chosen.push_back(TokenId{1});
    }
    begin.push_back(static_cast<int32_t>(token.size()));
  }
  constexpr int64_t kRows = kTrees * kNodes;
  const auto ints = [&](int64_t count) { return static_cast<int32_t*>(bench.Memory(count * 4, 0)); };
  const TreeAcceptArgs args = {.tree_begin = {bench.Upload(begin), kTrees + 1},
                               .token = {bench.Upload(token), kRows},
                               .parent = {bench.Upload(parent), kRows},
                               .chosen = {bench.Upload(chosen), kRows},
                               .path = {ints(kRows), kRows},
                               .path_length = {ints(kTrees), kTrees},
                               .bonus = {reinterpret_cast<TokenId*>(ints(kTrees)), kTrees},
                               .error = {ints(kTrees), kTrees}};
  const double microseconds =
      bench.MedianMicroseconds(64, [&](int) { return cuda::TreeAccept(args, bench.stream()); });
  bench.Report({.kernel = "tree_accept",
                .shape = shape,
                .microseconds = microseconds,
                .floor_microseconds = bench.empty_launch_microseconds(),
                .goal_microseconds = goal});
  std::vector<int32_t> path;
  for (int32_t node = 0; node < accepted; ++node) {
    path.push_back(node);
  }
  bench::ExpectEqual("tree_accept", bench::Download(args.path_length.data, kTrees),
                     std::vector<int32_t>(kTrees, accepted));
  for (int64_t tree = 0; tree < kTrees; ++tree) {
    bench::ExpectEqual("tree_accept", bench::Download(args.path.data + begin[tree], accepted), path);
  }
  bench::ExpectEqual("tree_accept", bench::Download(args.bonus.data, kTrees),
                     std::vector<TokenId>(kTrees, TokenId{1}));
}

}  // namespace
}  // namespace arborist::kernels

int main(int argc, char** argv) {
  arborist::kernels::bench::CudaBench bench(argc, argv);
  if (!bench.has_device() || !bench.Wanted("tree_accept")) {
    return 0;
  }
  arborist::kernels::Measure(bench, 8, "64 trees of 64 nodes, 8 accepted", 2.5);
  arborist::kernels::Measure(bench, 64, "64 trees of 64 nodes, all accepted", 2.5);
  return 0;
}
