#include <cuda_runtime.h>

#include <climits>

#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/tree_accept/tree_accept.h"

namespace arborist::kernels::cuda {
namespace {

constexpr int kThreads = 128;

// One block a tree. Each node looks up what was chosen at its parent, so that the walk only follows indices
// that rise: it ends whatever the pointers say.
__global__ void __launch_bounds__(kThreads) TreeAcceptKernel(TreeAcceptArgs args) {
  __shared__ TokenId chosen[kTreeAcceptMaxNodes];
  __shared__ int32_t next[kTreeAcceptMaxNodes];  // the accepted child, INT_MAX without one
  const int64_t tree = blockIdx.x;
  const int64_t begin = args.tree_begin[tree];
  const int64_t end = TreeAcceptEnd(args, tree);
  const bool bounded =
      begin >= 0 && begin < end && end <= args.token.size && end - begin <= kTreeAcceptMaxNodes;
  const int nodes = bounded ? static_cast<int>(end - begin) : 0;
  constexpr int kNodesAThread = kTreeAcceptMaxNodes / kThreads;
  TokenId token[kNodesAThread];
  int32_t parent[kNodesAThread];
  for (int i = 0; i < kNodesAThread; ++i) {
    const int node = static_cast<int>(threadIdx.x) + i * kThreads;
    if (node < nodes) {
      token[i] = args.token[begin + node];
      parent[i] = args.parent[begin + node];
      chosen[node] = args.chosen[begin + node];
      next[node] = INT_MAX;
    }
  }
  __syncthreads();
  bool bad = !bounded;
  for (int i = 0; i < kNodesAThread; ++i) {
    const int node = static_cast<int>(threadIdx.x) + i * kThreads;
    if (node >= nodes) {
      continue;
    }
    const bool in_range = node == 0 ? parent[i] == -1 : parent[i] >= 0 && parent[i] < node;
    bad |= !in_range;
    if (in_range && node > 0 && token[i] == chosen[parent[i]]) {
      atomicMin(&next[parent[i]], node);
    }
  }
  bad = __syncthreads_or(bad) != 0;
  if (threadIdx.x != 0) {
    return;
  }
  args.error[tree] = bad ? 1 : 0;
  int32_t length = 0;
  int32_t last = 0;
  if (!bad) {
    for (int32_t node = 0; node != INT_MAX; node = next[node]) {
      args.path[begin + length++] = node;
      last = node;
    }
  }
  args.path_length[tree] = length;
  args.bonus[tree] = bad ? TokenId{-1} : chosen[last];
}

}  // namespace

absl::Status TreeAccept(const TreeAcceptArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateTreeAccept(args));
  const int64_t trees = args.tree_begin.size - 1;
  if (trees == 0) {
    return absl::OkStatus();
  }
  TreeAcceptKernel<<<static_cast<unsigned>(trees), kThreads, 0,
                     static_cast<cudaStream_t>(stream.cuda_stream)>>>(args);
  return LaunchStatus("tree_accept");
}

}  // namespace arborist::kernels::cuda
