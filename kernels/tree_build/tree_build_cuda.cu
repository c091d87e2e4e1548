#include <cuda_runtime.h>

#include <cfloat>
#include <cstdint>

#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/tree_build/tree_build.h"

namespace arborist::kernels::cuda {
namespace {

constexpr int kThreads = 256;
static_assert(kThreads > kTreeBuildMaxBudget);  // one a node at the end
constexpr unsigned kAllLanes = 0xffffffffu;

// What is known of a stream's nodes, in shared memory. Every node has at most one child that waits to be
// popped, so the frontier is an array by parent: slot p holds the next child of node p.
struct Nodes {
  int32_t
      waiting[kTreeBuildMaxBudget + 1];  // the waiting child's rank, and its row of the candidates above that
  int32_t parent[kTreeBuildMaxBudget + 1];  // of each node
  int32_t own[kTreeBuildMaxBudget + 1];     // rank and row of each node
  uint64_t score[kTreeBuildMaxBudget + 1];  // key of each node's score
  float least[kThreads / 32];
};

__device__ int32_t Pack(int32_t rank, int32_t row) { return row << 8 | rank; }
__device__ int32_t RankOf(int32_t packed) { return packed & 0xff; }
__device__ int32_t RowOf(int32_t packed) { return packed >> 8; }

// Larger for larger doubles, never 0. Zeros are +0 here, so equal scores have equal keys.
__device__ uint64_t KeyOf(double score) {
  const auto bits = static_cast<uint64_t>(__double_as_longlong(score));
  return bits ^ ((bits >> 63) != 0 ? ~uint64_t{0} : uint64_t{1} << 63);
}
__device__ double ScoreOf(uint64_t key) {
  return __longlong_as_double(
      static_cast<long long>(key ^ ((key >> 63) != 0 ? uint64_t{1} << 63 : ~uint64_t{0})));
}

// Whether the path of ranks of slot a's waiting child is lexicographically smaller than that of slot b's.
__device__ bool ComesFirst(const Nodes& nodes, int32_t a, int32_t b) {
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
  return RankOf(child_a) < RankOf(child_b);
}

// A child that begins to wait in a slot of this lane; slot -1: none.
struct Arrival {
  int32_t slot = -1;
  uint64_t key = 0;  // 0: there is no such child
  int32_t waiting = 0;
};

// One lane's share of the frontier: slots lane, lane + 32, ... Beside each waiting child stand the keys of
// the two that it makes room for, worked out while others are popped, so that a pop is one reduction and one
// exchange.
template <int kSlots>
class Share {
 public:
  __device__ Share(const TreeBuildParams& params, const double* log_prob)
      : params_(params), log_prob_(log_prob) {}

  // The upper half of the best key of all lanes, 0 when nobody waits.
  __device__ uint32_t BestHalf() const {
    uint32_t half = 0;
    for (int j = 0; j < kSlots; ++j) {
      half = max(half, static_cast<uint32_t>(key_[j] >> 32));
    }
    return __reduce_max_sync(kAllLanes, half);
  }

  // The slot to pop next, the same in all lanes.
  __device__ int32_t BestSlot(const Nodes& nodes, uint32_t half) const {
    unsigned seen = 0;
    bool several = false;
    int32_t slot = 0;
    for (int j = 0; j < kSlots; ++j) {
      const unsigned equal = __ballot_sync(kAllLanes, static_cast<uint32_t>(key_[j] >> 32) == half);
      several |= (equal & (equal - 1)) != 0 || (equal != 0 && seen != 0);
      slot = equal != 0 ? 32 * j + 31 - __clz(static_cast<int>(equal)) : slot;
      seen |= equal;
    }
    return several ? BestOfEqualHalves(nodes, half) : slot;
  }

  // What the owner of the slot knows, in all lanes.
  struct Popped {
    uint64_t key;
    uint64_t sibling;
    uint64_t child;
    int32_t waiting;
  };
  __device__ Popped Pop(int32_t slot) const {
    Popped own = {key_[0], sibling_[0], child_[0], waiting_[0]};
    for (int j = 1; j < kSlots; ++j) {
      if (slot / 32 == j) {
        own = {key_[j], sibling_[j], child_[j], waiting_[j]};
      }
    }
    return {own.key, own.sibling, __shfl_sync(kAllLanes, own.child, slot % 32),
            __shfl_sync(kAllLanes, own.waiting, slot % 32)};
  }

  // The key counts from now on.
  __device__ void Seat(const Arrival& arrival) {
    for (int j = 0; j < kSlots; ++j) {
      if (arrival.slot >= 0 && arrival.slot / 32 == j) {
        key_[j] = arrival.key;
        waiting_[j] = arrival.waiting;
      }
    }
  }

  // Works out the successors of what was seated. Without branches, for all lanes at once.
  __device__ void Prepare(const Arrival& arrival) {
    const int32_t rank = RankOf(arrival.waiting);
    const int32_t row = RowOf(arrival.waiting);
    const double* own = log_prob_ + row * params_.k + rank;
    const double score = ScoreOf(arrival.key);
    const double sibling = (score - own[0]) + own[1];
    const double child = score + log_prob_[(row + 1) * params_.k];
    for (int j = 0; j < kSlots; ++j) {
      if (arrival.slot >= 0 && arrival.slot / 32 == j) {
        sibling_[j] = rank + 1 < params_.k ? KeyOf(sibling) : 0;
        child_[j] = row + 1 < params_.depths ? KeyOf(child) : 0;
      }
    }
  }

 private:
  __device__ int32_t BestOfEqualHalves(const Nodes& nodes, uint32_t half) const {
    uint32_t low = 0;
    for (int j = 0; j < kSlots; ++j) {
      low = static_cast<uint32_t>(key_[j] >> 32) == half ? max(low, static_cast<uint32_t>(key_[j])) : low;
    }
    const uint64_t best_key = uint64_t{half} << 32 | __reduce_max_sync(kAllLanes, low);
    __syncwarp();  // what other lanes wrote of the nodes is there
    int32_t best = -1;
    for (int j = 0; j < kSlots; ++j) {
      unsigned equal = __ballot_sync(kAllLanes, key_[j] == best_key);
      for (; equal != 0; equal &= equal - 1) {
        const int32_t slot = 32 * j + __ffs(static_cast<int>(equal)) - 1;
        best = best < 0 || ComesFirst(nodes, slot, best) ? slot : best;
      }
    }
    return best;
  }

  const TreeBuildParams& params_;
  const double* log_prob_;
  uint64_t key_[kSlots] = {};
  uint64_t sibling_[kSlots] = {};
  uint64_t child_[kSlots] = {};
  int32_t waiting_[kSlots] = {};
};

// One warp. Returns the nodes, root included.
template <int kSlots>
__device__ int32_t Build(const TreeBuildParams& params, const double* log_prob, Nodes& nodes) {
  const auto lane = static_cast<int32_t>(threadIdx.x);
  Share<kSlots> share(params, log_prob);
  Arrival arrival;
  if (lane == 0 && params.depths > 0) {
    arrival = {0, KeyOf(log_prob[0]), Pack(0, 0)};
    nodes.waiting[0] = arrival.waiting;
  }
  share.Seat(arrival);
  int32_t count = 1;
  while (count <= params.budget) {
    const uint32_t half = share.BestHalf();
    share.Prepare(arrival);  // while the reduction runs
    if (half == 0) {
      break;
    }
    const int32_t slot = share.BestSlot(nodes, half);
    const auto popped = share.Pop(slot);
    const int32_t node = count++;
    const int32_t next_sibling = Pack(RankOf(popped.waiting) + 1, RowOf(popped.waiting));
    arrival = {};
    if (lane == slot % 32) {
      nodes.parent[node] = slot;
      nodes.own[node] = popped.waiting;
      nodes.score[node] = popped.key;
      nodes.waiting[slot] = next_sibling;
      arrival = {slot, popped.sibling, next_sibling};
    }
    share.Seat(arrival);
    if (slot % 32 == node % 32) {
      share.Prepare(arrival);  // this lane gets a second one
    }
    if (lane == node % 32) {
      arrival = {node, popped.child, Pack(0, RowOf(popped.waiting) + 1)};
      nodes.waiting[node] = arrival.waiting;
    }
    share.Seat(arrival);
  }
  __syncwarp();
  return count;
}

// The score of the thread's node as a float, not above any node before; all threads call it, one a node.
__device__ float CappedScore(Nodes& nodes, int32_t count) {
  const auto node = static_cast<int32_t>(threadIdx.x);
  float least = 0;
  if (node > 0 && node < count) {
    const double score = ScoreOf(nodes.score[node]);
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
      good &= value <= elder && value >= -FLT_MAX;                            // false for a NaN
      log_prob[depth * params.k + rank] = static_cast<double>(value + 0.0f);  // -0 becomes +0
    }
  }
  return good;
}

// One block a stream: all warps load, the first one builds, all write.
template <int kSlots>
__global__ void __launch_bounds__(kThreads) TreeBuildKernel(TreeBuildArgs args, int32_t max_depths) {
  extern __shared__ double log_prob[];  // [depths, k], and two that are read but not used
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
    args.out_token.row(stream)[node] = args.token.row(first_row + RowOf(own))[RankOf(own)];
    args.out_parent.row(stream)[node] = nodes.parent[node];
    args.out_score.row(stream)[node] = score;
  }
}

template <int kSlots>
absl::Status Launch(const TreeBuildArgs& args, StreamView stream) {
  const int64_t depths = args.token.rows / args.params.size;
  const size_t shared = static_cast<size_t>(depths * args.token.columns + 2) * sizeof(double);
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
