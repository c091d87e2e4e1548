#include <cuda_runtime.h>

#include <cfloat>
#include <cmath>
#include <cstdint>

#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/tree_build/tree_build.h"

namespace arborist::kernels::cuda {
namespace {

constexpr int kThreads = 256;
static_assert(kThreads > kTreeBuildMaxBudget);  // one a node at the end
constexpr unsigned kAllLanes = 0xffffffffu;

// A candidate is named by where its log-probability stands in shared memory, rows of k + 1 (the last one
// -infinity, so that a row ends by itself), and its row above that.
constexpr int32_t kRowShift = 16;
__device__ int32_t PlaceOf(int32_t candidate) { return candidate & 0xffff; }
__device__ int32_t RowOf(int32_t candidate) { return candidate >> kRowShift; }

// The two that a popped entry makes room for: -infinity where there is none.
struct Successors {
  double sibling;
  double child;
};

// What is known of a stream's nodes, in shared memory. Every node has at most one child that waits to be
// popped, so the frontier is an array by parent: slot p holds the next child of node p. Its successors are
// worked out when it begins to wait, so that a pop is one reduction and one look-up.
struct Nodes {
  Successors successors[kTreeBuildMaxBudget + 1];  // of the waiting child
  double waiting_score[kTreeBuildMaxBudget + 1];
  int32_t waiting[kTreeBuildMaxBudget + 1];  // the waiting child
  int32_t parent[kTreeBuildMaxBudget + 1];   // of each node
  int32_t own[kTreeBuildMaxBudget + 1];      // each node's candidate
  double score[kTreeBuildMaxBudget + 1];     // each node's
  float least[kThreads / 32];
};

// Whether slot a's waiting child is popped before slot b's: the larger score, then the lexicographically
// smaller path of ranks.
__device__ bool ComesFirst(const Nodes& nodes, int32_t a, int32_t b) {
  if (nodes.waiting_score[a] != nodes.waiting_score[b]) {
    return nodes.waiting_score[a] > nodes.waiting_score[b];
  }
  int32_t child_a = nodes.waiting[a];
  int32_t child_b = nodes.waiting[b];
  const bool shallower = RowOf(child_a) < RowOf(child_b);
  while (RowOf(child_a) > RowOf(child_b)) {
    child_a = nodes.own[a];
    a = nodes.parent[a];
  }
  while (RowOf(child_b) > RowOf(child_a)) {
    child_b = nodes.own[b];
    b = nodes.parent[b];
  }
  if (a == b && child_a == child_b) {
    return shallower;  // a prefix comes first
  }
  while (a != b) {
    child_a = nodes.own[a];
    a = nodes.parent[a];
    child_b = nodes.own[b];
    b = nodes.parent[b];
  }
  return PlaceOf(child_a) < PlaceOf(child_b);  // of one row
}

// Scores are <= 0, so the upper half of the bits without the sign falls as the score rises; infinity is last.
constexpr uint32_t kNobody = 0x7ff00000u;
__device__ uint32_t Depth(double score) { return static_cast<uint32_t>(__double2hiint(score)) & 0x7fffffffu; }

// Writes what the slot's new waiting child is and makes room for.
__device__ void Wait(Nodes& nodes, const double* log_prob, int32_t row_step, int32_t slot, int32_t candidate,
                     double score) {
  const double* own = log_prob + PlaceOf(candidate);
  const double child = log_prob[PlaceOf((RowOf(candidate) + 1) * row_step)];
  nodes.waiting[slot] = candidate;
  nodes.waiting_score[slot] = score;
  nodes.successors[slot] = {(score - own[0]) + own[1], score + child};
}

// One warp. Returns the nodes, root included. Lane l keeps how deep the scores of slots l, l + 32, ... are.
template <int kSlots>
__device__ int32_t Build(const TreeBuildParams& params, const double* log_prob, Nodes& nodes) {
  const auto lane = static_cast<int32_t>(threadIdx.x);
  const int32_t row_step = (1 << kRowShift) + params.k + 1;
  uint32_t depth[kSlots];
  for (int j = 0; j < kSlots; ++j) {
    depth[j] = lane == 0 && j == 0 ? Depth(log_prob[0]) : kNobody;
  }
  if (lane == 0) {
    Wait(nodes, log_prob, row_step, 0, 0, log_prob[0]);
  }
  int32_t count = 1;
  while (count <= params.budget) {
    uint32_t least = depth[0];
    for (int j = 1; j < kSlots; ++j) {
      least = min(least, depth[j]);
    }
    least = __reduce_min_sync(kAllLanes, least);
    if (least >= kNobody) {
      break;
    }
    unsigned equal[kSlots];
    unsigned seen = 0;
    unsigned twice = 0;
    int32_t slot = 0;
    for (int j = 0; j < kSlots; ++j) {
      equal[j] = __ballot_sync(kAllLanes, depth[j] == least);
      twice |= (seen != 0 ? equal[j] : 0) | (equal[j] & (equal[j] - 1));
      seen |= equal[j];
      slot = equal[j] != 0 ? 32 * j + 31 - __clz(static_cast<int>(equal[j])) : slot;
    }
    __syncwarp();  // what lanes 0 and 1 wrote is there
    if (twice != 0) {
      slot = -1;
      for (int j = 0; j < kSlots; ++j) {
        for (unsigned left = equal[j]; left != 0; left &= left - 1) {
          const int32_t other = 32 * j + __ffs(static_cast<int>(left)) - 1;
          slot = slot < 0 || ComesFirst(nodes, other, slot) ? other : slot;
        }
      }
    }
    const Successors next = nodes.successors[slot];
    const int32_t popped = nodes.waiting[slot];
    const double score = nodes.waiting_score[slot];
    const int32_t node = count++;
    for (int j = 0; j < kSlots; ++j) {
      depth[j] = slot == lane + 32 * j   ? Depth(next.sibling)
                 : node == lane + 32 * j ? Depth(next.child)
                                         : depth[j];
    }
    __syncwarp();  // all lanes have read the slot
    if (lane == 0) {
      nodes.parent[node] = slot;
      nodes.own[node] = popped;
      nodes.score[node] = score;
    }
    if (lane < 2) {
      const bool child = lane == 1;
      Wait(nodes, log_prob, row_step, child ? node : slot,
           child ? (RowOf(popped) + 1) * row_step : popped + 1, child ? next.child : next.sibling);
    }
  }
  __syncwarp();
  return count;
}

// The score of the thread's node as a float, not above any node before; all threads call it, one a node.
__device__ float CappedScore(Nodes& nodes, int32_t count) {
  const auto node = static_cast<int32_t>(threadIdx.x);
  float least = 0;
  if (node > 0 && node < count) {
    const double score = nodes.score[node];
    least = static_cast<float>(score < -double{FLT_MAX} ? -double{FLT_MAX} : score);
  }
  for (unsigned offset = 1; offset < 32; offset *= 2) {
    const float before = __shfl_up_sync(kAllLanes, least, offset);
    least = threadIdx.x % 32 >= offset ? fminf(least, before) : least;
  }
  if (threadIdx.x % 32 == 31) {
    nodes.least[threadIdx.x / 32] = least;
  }
  __syncthreads();
  for (unsigned warp = 0; warp < threadIdx.x / 32; ++warp) {
    least = fminf(least, nodes.least[warp]);
  }
  return least;
}

// Lays the stream's log-probabilities out as doubles; whether all are finite, <= 0 and not increasing.
__device__ bool Load(const TreeBuildArgs& args, const TreeBuildParams& params, int64_t first_row,
                     double* log_prob) {
  bool good = true;
  const auto warp = static_cast<int32_t>(threadIdx.x / 32);
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  const double none = -static_cast<double>(INFINITY);
  // One row more, so that the last one has no children.
  for (int32_t depth = warp; depth <= params.depths; depth += kThreads / 32) {
    const float* row = args.log_prob.row(first_row + depth);
    double* to = log_prob + depth * (params.k + 1);
    for (int32_t rank = lane; rank <= params.k; rank += 32) {
      if (depth == params.depths || rank == params.k) {
        to[rank] = none;
        continue;
      }
      const float value = row[rank];
      const float elder = rank > 0 ? row[rank - 1] : 0.0f;
      good &= value <= elder && value >= -FLT_MAX;   // false for a NaN
      to[rank] = static_cast<double>(value + 0.0f);  // -0 becomes +0
    }
  }
  return good;
}

// One block a stream: all warps load, the first one builds, all write.
template <int kSlots>
__global__ void __launch_bounds__(kThreads) TreeBuildKernel(TreeBuildArgs args, int32_t max_depths) {
  extern __shared__ double
      log_prob[];  // [depths + 2, k + 1]: the last row is read, but what it says never counts
  __shared__ Nodes nodes;
  __shared__ int32_t built;
  const int64_t stream = blockIdx.x;
  const int64_t first_row = stream * max_depths;
  const TreeBuildParams params = args.params[stream];
  const bool in_range = params.budget >= 0 && params.budget <= kTreeBuildMaxBudget &&
                        params.budget < args.out_token.columns && params.depths >= 0 &&
                        params.depths <= max_depths && params.k >= (params.depths > 0 ? 1 : 0) &&
                        params.k <= args.token.columns;
  const bool good = __syncthreads_and(in_range && Load(args, params, first_row, log_prob)) != 0;
  int32_t count = 1;
  if (good && params.budget > 0) {
    if (threadIdx.x < 32) {
      count = Build<kSlots>(params, log_prob, nodes);
      if (threadIdx.x == 0) {
        built = count;
      }
    }
    __syncthreads();
    count = built;
  }
  const float score = CappedScore(nodes, count);
  const auto node = static_cast<int32_t>(threadIdx.x);
  if (node == 0) {
    args.out_token.row(stream)[0] = params.root;
    args.out_parent.row(stream)[0] = -1;
    args.out_score.row(stream)[0] = 0;
    args.out_nodes[stream] = count;
    args.error[stream] = good ? 0 : 1;
  } else if (node < count) {
    const int32_t own = nodes.own[node];
    args.out_token.row(stream)[node] =
        args.token.row(first_row + RowOf(own))[PlaceOf(own) - RowOf(own) * (params.k + 1)];
    args.out_parent.row(stream)[node] = nodes.parent[node];
    args.out_score.row(stream)[node] = score;
  }
}

template <int kSlots>
absl::Status Launch(const TreeBuildArgs& args, StreamView stream) {
  const int64_t depths = args.token.rows / args.params.size;
  const size_t shared = static_cast<size_t>((depths + 2) * (args.token.columns + 1)) * sizeof(double);
  TreeBuildKernel<kSlots>
      <<<static_cast<unsigned>(args.params.size), kThreads, shared,
         static_cast<cudaStream_t>(stream.cuda_stream)>>>(args, static_cast<int32_t>(depths));
  return LaunchStatus("tree_build");
}

}  // namespace

absl::Status TreeBuild(const TreeBuildArgs& args, StreamView stream) {
  RETURN_IF_ERROR(ValidateTreeBuildShapes(args));
  if (args.params.size == 0) {
    return absl::OkStatus();
  }
  if (args.error.size == 0 || args.token.rows / args.params.size > kTreeBuildMaxDepth) {
    return absl::InvalidArgumentError("tree_build: expected error flags and at most 63 rows a stream");
  }
  // The last node's children never pop, so nodes 0 .. budget - 1 need slots.
  const int64_t budget = args.out_token.columns - 1;
  return budget <= 32    ? Launch<1>(args, stream)
         : budget <= 64  ? Launch<2>(args, stream)
         : budget <= 128 ? Launch<4>(args, stream)
                         : Launch<8>(args, stream);
}

}  // namespace arborist::kernels::cuda
