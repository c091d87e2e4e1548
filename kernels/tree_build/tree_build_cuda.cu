#include <cuda_runtime.h>

#include <cfloat>
#include <cstdint>

#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/tree_build/tree_build.h"

namespace arborist::kernels::cuda {
namespace {

constexpr int kThreads = 256;
constexpr unsigned kAllLanes = 0xffffffffu;

// What the builder knows of a stream, in shared memory. Every node has at most one child that waits to be
// popped, so the frontier is an array by parent: slot p holds the next child of node p.
struct Frontier {
  double score[kTreeBuildMaxBudget + 1];     // of the waiting child
  int32_t waiting[kTreeBuildMaxBudget + 1];  // its rank, and its row of the candidates above that
  int32_t parent[kTreeBuildMaxBudget + 1];   // of each node
  int32_t own[kTreeBuildMaxBudget + 1];      // rank and row of each node
  float out_score[kTreeBuildMaxBudget + 1];
};

__device__ int32_t Pack(int32_t rank, int32_t row) { return row << 8 | rank; }
__device__ int32_t RankOf(int32_t packed) { return packed & 0xff; }
__device__ int32_t RowOf(int32_t packed) { return packed >> 8; }

// Larger for larger doubles, the zeros equal, never 0.
__device__ uint64_t OrderKey(double value) {
  const auto bits = static_cast<uint64_t>(__double_as_longlong(value + 0.0));
  return (bits >> 63) != 0 ? ~bits : bits | (uint64_t{1} << 63);
}

// Whether the path of ranks of slot a's waiting child is lexicographically smaller than that of slot b's.
__device__ bool ComesFirst(const Frontier& tree, int32_t a, int32_t b) {
  int32_t child_a = tree.waiting[a];
  int32_t child_b = tree.waiting[b];
  const bool shallower = RowOf(child_a) < RowOf(child_b);
  while (RowOf(child_a) > RowOf(child_b)) {
    child_a = tree.own[a];
    a = tree.parent[a];
  }
  while (RowOf(child_b) > RowOf(child_a)) {
    child_b = tree.own[b];
    b = tree.parent[b];
  }
  if (a == b && child_a == child_b) {
    return shallower;  // a prefix comes first
  }
  while (a != b) {
    child_a = tree.own[a];
    a = tree.parent[a];
    child_b = tree.own[b];
    b = tree.parent[b];
  }
  return RankOf(child_a) < RankOf(child_b);
}

// One lane's share of the frontier: slots lane, lane + 32, ... as keys; 0 where nobody waits.
template <int kSlots>
class Keys {
 public:
  // The slot to pop next, the same in all lanes; -1 when nobody waits.
  __device__ int32_t Best(const Frontier& tree) const {
    uint32_t high = 0;
    for (int j = 0; j < kSlots; ++j) {
      high = max(high, high_[j]);
    }
    high = __reduce_max_sync(kAllLanes, high);
    if (high == 0) {
      return -1;
    }
    unsigned equal[kSlots];
    int count = 0;
    int32_t slot = 0;
    for (int j = kSlots - 1; j >= 0; --j) {
      equal[j] = __ballot_sync(kAllLanes, high_[j] == high);
      count += __popc(equal[j]);
      slot = equal[j] != 0 ? 32 * j + __ffs(static_cast<int>(equal[j])) - 1 : slot;
    }
    return count == 1 ? slot : BestOfEqualHalves(tree, high);
  }

  __device__ void Set(int32_t slot, uint64_t key, int32_t lane) {
    for (int j = 0; j < kSlots; ++j) {
      if (slot == lane + 32 * j) {
        high_[j] = static_cast<uint32_t>(key >> 32);
        low_[j] = static_cast<uint32_t>(key);
      }
    }
  }

 private:
  __device__ int32_t BestOfEqualHalves(const Frontier& tree, uint32_t high) const {
    uint32_t low = 0;
    for (int j = 0; j < kSlots; ++j) {
      low = high_[j] == high ? max(low, low_[j]) : low;
    }
    low = __reduce_max_sync(kAllLanes, low);
    int32_t best = -1;
    for (int j = 0; j < kSlots; ++j) {
      unsigned equal = __ballot_sync(kAllLanes, high_[j] == high && low_[j] == low);
      for (; equal != 0; equal &= equal - 1) {
        const int32_t slot = 32 * j + __ffs(static_cast<int>(equal)) - 1;
        best = best < 0 || ComesFirst(tree, slot, best) ? slot : best;
      }
    }
    return best;
  }

  uint32_t high_[kSlots] = {};
  uint32_t low_[kSlots] = {};
};

// One warp. Returns the nodes, root included.
template <int kSlots>
__device__ int32_t Build(const TreeBuildParams& params, const double* log_prob, Frontier& tree) {
  const auto lane = static_cast<int32_t>(threadIdx.x);
  Keys<kSlots> keys;
  float before = 0;
  int32_t nodes = 1;
  if (params.depths > 0) {
    keys.Set(0, OrderKey(log_prob[0]), lane);
    if (lane == 0) {
      tree.score[0] = log_prob[0];
      tree.waiting[0] = Pack(0, 0);
    }
  }
  __syncwarp();
  while (nodes <= params.budget) {
    const int32_t slot = keys.Best(tree);
    if (slot < 0) {
      break;
    }
    const int32_t node = nodes++;
    const double score = tree.score[slot];
    const int32_t waiting = tree.waiting[slot];
    const int32_t rank = RankOf(waiting);
    const int32_t row = RowOf(waiting);
    const double* own = log_prob + row * params.k + rank;
    const bool sibling = rank + 1 < params.k;
    const bool child = row + 1 < params.depths;
    const double sibling_score = sibling ? (score - own[0]) + own[1] : 0;
    const double child_score = child ? score + log_prob[(row + 1) * params.k] : 0;
    const auto rounded = static_cast<float>(score < -double{FLT_MAX} ? -double{FLT_MAX} : score);
    before = before < rounded ? before : rounded;
    keys.Set(slot, sibling ? OrderKey(sibling_score) : 0, lane);
    keys.Set(node, child ? OrderKey(child_score) : 0, lane);
    __syncwarp();  // every lane has read the slot
    if (lane == 0) {
      tree.score[slot] = sibling_score;
      tree.waiting[slot] = Pack(rank + 1, row);
      tree.score[node] = child_score;
      tree.waiting[node] = Pack(0, row + 1);
      tree.parent[node] = slot;
      tree.own[node] = waiting;
      tree.out_score[node] = before;
    }
    __syncwarp();
  }
  return nodes;
}

// Copies the stream's log-probabilities as doubles; whether all are finite, <= 0 and not increasing.
__device__ bool Load(const TreeBuildArgs& args, const TreeBuildParams& params, int64_t first_row,
                     double* log_prob) {
  bool good = true;
  const auto warp = static_cast<int32_t>(threadIdx.x / 32);
  const auto lane = static_cast<int32_t>(threadIdx.x % 32);
  for (int32_t depth = warp; depth < params.depths; depth += kThreads / 32) {
    const float* row = args.log_prob.row(first_row + depth);
    for (int32_t rank = lane; rank < params.k; rank += 32) {
      const float value = row[rank];
      const float elder = rank > 0 ? row[rank - 1] : 0.0f;
      good &= value <= elder && value >= -FLT_MAX;  // false for a NaN
      log_prob[depth * params.k + rank] = static_cast<double>(value);
    }
  }
  return good;
}

// One block a stream: all warps load, the first one builds, all write.
template <int kSlots>
__global__ void __launch_bounds__(kThreads) TreeBuildKernel(TreeBuildArgs args, int32_t max_depths) {
  extern __shared__ double log_prob[];  // [depths, k]
  __shared__ Frontier tree;
  __shared__ int32_t built;
  const int64_t stream = blockIdx.x;
  const int64_t first_row = stream * max_depths;
  const TreeBuildParams params = args.params[stream];
  const bool in_range = params.budget >= 0 && params.budget <= kTreeBuildMaxBudget &&
                        params.budget < args.out_token.columns && params.depths >= 0 &&
                        params.depths <= max_depths && params.k >= (params.depths > 0 ? 1 : 0) &&
                        params.k <= args.token.columns;
  const bool good = __syncthreads_and(in_range && Load(args, params, first_row, log_prob)) != 0;
  int32_t nodes = 1;
  if (good && params.budget > 0) {
    if (threadIdx.x < 32) {
      nodes = Build<kSlots>(params, log_prob, tree);
      if (threadIdx.x == 0) {
        built = nodes;
      }
    }
    __syncthreads();
    nodes = built;
  }
  TokenId* out_token = args.out_token.row(stream);
  int32_t* out_parent = args.out_parent.row(stream);
  float* out_score = args.out_score.row(stream);
  for (auto node = static_cast<int32_t>(threadIdx.x); node < nodes; node += kThreads) {
    if (node == 0) {
      out_token[0] = params.root;
      out_parent[0] = -1;
      out_score[0] = 0;
      args.out_nodes[stream] = nodes;
      args.error[stream] = good ? 0 : 1;
    } else {
      const int32_t own = tree.own[node];
      out_token[node] = args.token.row(first_row + RowOf(own))[RankOf(own)];
      out_parent[node] = tree.parent[node];
      out_score[node] = tree.out_score[node];
    }
  }
}

template <int kSlots>
absl::Status Launch(const TreeBuildArgs& args, StreamView stream) {
  const int64_t depths = args.token.rows / args.params.size;
  const size_t shared = static_cast<size_t>(depths * args.token.columns) * sizeof(double);
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
