#include <cuda_runtime.h>

#include <climits>

#include "common/base/status_macros.h"
#include "kernels/kernel_overlap/kernel_overlap.cuh"
#include "kernels/tree_accept/tree_accept.h"

namespace arborist::kernels::cuda {
namespace {

constexpr int kThreads = 128;

constexpr int kNodesAThread = kTreeAcceptMaxNodes / kThreads;

// Where a node stands: an ancestor, and how many steps above it is. 0: the root, so the node is accepted.
struct Climb {
  int16_t ancestor;  // -1: an edge on the way was not chosen
  int16_t steps;
};

// One block a tree. Each node looks up what was chosen at its parent; then all climb at once, twice as far
// each round. Indices only fall, so it ends whatever the pointers say.
__global__ void __launch_bounds__(kThreads) TreeAcceptKernel(TreeAcceptArgs args) {
  LetNextKernelStart();
  WaitForKernelBefore();
  __shared__ TokenId chosen[kTreeAcceptMaxNodes];
  __shared__ int32_t next[kTreeAcceptMaxNodes];  // the child that was chosen, INT_MAX without one
  __shared__ Climb climb[2][kTreeAcceptMaxNodes];
  const int64_t tree = blockIdx.x;
  const int64_t begin = args.tree_begin[tree];
  const int64_t end = TreeAcceptEnd(args, tree);
  const bool bounded =
      begin >= 0 && begin < end && end <= args.token.size && end - begin <= kTreeAcceptMaxNodes;
  const int nodes = bounded ? static_cast<int>(end - begin) : 0;
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
  if (threadIdx.x == 0) {
    args.error[tree] = bad ? 1 : 0;
    if (bad) {
      args.path_length[tree] = 0;
      args.bonus[tree] = TokenId{-1};
    }
  }
  if (bad) {
    return;
  }
  Climb own[kNodesAThread];
  for (int i = 0; i < kNodesAThread; ++i) {
    const int node = static_cast<int>(threadIdx.x) + i * kThreads;
    own[i] = {-1, 1};
    if (node == 0) {
      own[i] = {0, 0};
    } else if (node < nodes && next[parent[i]] == node) {
      own[i] = {static_cast<int16_t>(parent[i]), 1};
    }
    climb[0][node] = own[i];
  }
  for (int reach = 1, round = 0; reach < nodes; reach *= 2, ++round) {
    __syncthreads();
    for (int i = 0; i < kNodesAThread; ++i) {
      if (own[i].ancestor > 0) {
        const Climb above = climb[round % 2][own[i].ancestor];
        own[i] = {above.ancestor, static_cast<int16_t>(own[i].steps + above.steps)};
      }
      climb[(round + 1) % 2][threadIdx.x + i * kThreads] = own[i];
    }
  }
  for (int i = 0; i < kNodesAThread; ++i) {
    const int node = static_cast<int>(threadIdx.x) + i * kThreads;
    if (node < nodes && own[i].ancestor == 0) {
      args.path[begin + own[i].steps] = node;
      if (next[node] == INT_MAX) {
        args.path_length[tree] = own[i].steps + 1;
        args.bonus[tree] = chosen[node];
      }
    }
  }
}

}  // namespace

absl::Status TreeAccept(const TreeAcceptArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateTreeAccept(args));
  const int64_t trees = args.tree_begin.size - 1;
  if (trees == 0) {
    return absl::OkStatus();
  }
  return LaunchOverlapped("tree_accept", TreeAcceptKernel,
                          {.grid = static_cast<unsigned>(trees), .block = kThreads}, stream.cuda_stream,
                          args);
}

}  // namespace arborist::kernels::cuda
