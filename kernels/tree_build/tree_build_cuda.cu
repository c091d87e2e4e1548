#include <cuda_runtime.h>

#include <cfloat>
#include <cmath>
#include <cstddef>
#include <cstdint>

#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "kernels/kernel_overlap/kernel_overlap.cuh"
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

// What a lane keeps of a waiting child: how deep its score is, as far as there is room beside its slot, and
// the slot. Scores are <= 0, so the bits without the sign fall as the score rises. The least is popped next;
// where the next ones look as deep, they are compared in full.
constexpr uint32_t kNobody = 0xffffffffu;
template <int kSlots>
__device__ uint32_t KeyOf(double score, int32_t slot) {
  constexpr uint32_t kSlotMask = 32 * kSlots - 1;
  const uint32_t deep = static_cast<uint32_t>(__double2hiint(score)) << 1;  // without the sign
  return deep >= 0xffe00000u ? kNobody : (deep & ~kSlotMask) | static_cast<uint32_t>(slot);
}

// Shared memory by its address, kept in a register: the compiler works the address out anew for each access
// of a reference, which is most of what a pop takes.
class SharedMemory {
 public:
  explicit __device__ SharedMemory(const void* memory)
      : base_(static_cast<uint32_t>(__cvta_generic_to_shared(memory))) {
    asm volatile("mov.u32 %0, %0;" : "+r"(base_));  // not worked out again
  }
  __device__ int32_t LoadInt(int32_t offset) const {
    int32_t value;
    asm volatile("ld.shared.s32 %0, [%1];" : "=r"(value) : "r"(base_ + offset) : "memory");
    return value;
  }
  __device__ double LoadDouble(int32_t offset) const {
    double value;
    asm volatile("ld.shared.f64 %0, [%1];" : "=d"(value) : "r"(base_ + offset) : "memory");
    return value;
  }
  __device__ Successors LoadPair(int32_t offset) const {
    Successors pair;
    asm volatile("ld.shared.v2.f64 {%0, %1}, [%2];"
                 : "=d"(pair.sibling), "=d"(pair.child)
                 : "r"(base_ + offset)
                 : "memory");
    return pair;
  }
  // Stores that only some lanes make, without a branch.
  __device__ void StoreInt(int32_t offset, int32_t value, bool write) const {
    asm volatile("{.reg .pred p; setp.ne.s32 p, %2, 0; @p st.shared.s32 [%0], %1;}" ::"r"(base_ + offset),
                 "r"(value), "r"(static_cast<int32_t>(write))
                 : "memory");
  }
  __device__ void StoreDouble(int32_t offset, double value, bool write) const {
    asm volatile("{.reg .pred p; setp.ne.s32 p, %2, 0; @p st.shared.f64 [%0], %1;}" ::"r"(base_ + offset),
                 "d"(value), "r"(static_cast<int32_t>(write))
                 : "memory");
  }
  __device__ void StorePair(int32_t offset, Successors pair, bool write) const {
    asm volatile(
        "{.reg .pred p; setp.ne.s32 p, %3, 0; @p st.shared.v2.f64 [%0], {%1, %2};}" ::"r"(base_ + offset),
        "d"(pair.sibling), "d"(pair.child), "r"(static_cast<int32_t>(write))
        : "memory");
  }

 private:
  uint32_t base_;
};

// One warp builds. Lane l keeps the keys of slots l, l + 32, ...; all lanes know what was popped last, whose
// two successors are worked out while the next pop's reduction runs: the sibling in even lanes, the child in
// odd ones, of which the first two write.
template <int kSlots>
class Builder {
 public:
  __device__ Builder(const TreeBuildParams& params, const double* log_prob, Nodes& nodes)
      : nodes_(nodes),
        at_nodes_(&nodes),
        at_log_prob_(log_prob),
        row_step_((1 << kRowShift) + params.k + 1),
        lane_(static_cast<int32_t>(threadIdx.x)) {
    for (int j = 0; j < kSlots; ++j) {
      key_[j] = kNobody;
    }
    if (lane_ == 0) {
      key_[0] = KeyOf<kSlots>(log_prob[0], 0);
    }
    Wait(0, 0, log_prob[0], lane_ == 0);
  }

  // Returns the nodes, root included.
  __device__ int32_t Build(int32_t budget) {
    const bool child = lane_ % 2 != 0;
    const bool write = lane_ < 2;
    // Before anything is popped: the one that waits, once more.
    int32_t slot = 0;
    int32_t candidate = 0;
    double score = at_log_prob_.LoadDouble(0);
    int32_t count = 1;
    while (count <= budget) {
      const uint32_t least = Least();
      Wait(slot, candidate, score, write);
      __syncwarp();
      if (least == kNobody) {
        break;
      }
      int32_t best = static_cast<int32_t>(least & kSlotMask);
      if (Several(least)) {
        best = BestOfSeveral(least);
      }
      const Successors next = at_nodes_.LoadPair(kSuccessors + 16 * best);
      const int32_t popped = at_nodes_.LoadInt(kWaiting + 4 * best);
      const double popped_score = at_nodes_.LoadDouble(kWaitingScore + 8 * best);
      uint32_t sibling_key = KeyOf<kSlots>(next.sibling, best);
      uint32_t child_key = KeyOf<kSlots>(next.child, count);
      asm volatile("" : "+r"(sibling_key), "+r"(child_key));  // selected, not branched to
      for (int j = 0; j < kSlots; ++j) {
        key_[j] = best == lane_ + 32 * j ? sibling_key : key_[j];
        key_[j] = count == lane_ + 32 * j ? child_key : key_[j];
      }
      __syncwarp();  // all lanes have read the slot
      at_nodes_.StoreInt(kParent + 4 * count, best, lane_ == 0);
      at_nodes_.StoreInt(kOwn + 4 * count, popped, lane_ == 0);
      at_nodes_.StoreDouble(kScore + 8 * count, popped_score, lane_ == 0);
      slot = child ? count : best;
      candidate = child ? (RowOf(popped) + 1) * row_step_ : popped + 1;
      score = child ? next.child : next.sibling;
      ++count;
    }
    __syncwarp();
    return count;
  }

 private:
  static constexpr uint32_t kSlotMask = 32 * kSlots - 1;
  static constexpr int32_t kSuccessors = offsetof(Nodes, successors);
  static constexpr int32_t kWaitingScore = offsetof(Nodes, waiting_score);
  static constexpr int32_t kWaiting = offsetof(Nodes, waiting);
  static constexpr int32_t kParent = offsetof(Nodes, parent);
  static constexpr int32_t kOwn = offsetof(Nodes, own);
  static constexpr int32_t kScore = offsetof(Nodes, score);

  __device__ uint32_t Least() const {
    uint32_t least = key_[0];
    for (int j = 1; j < kSlots; ++j) {
      least = min(least, key_[j]);
    }
    return __reduce_min_sync(kAllLanes, least);
  }

  // Writes what the slot's new waiting child is and makes room for.
  __device__ void Wait(int32_t slot, int32_t candidate, double score, bool write) const {
    const double own = at_log_prob_.LoadDouble(8 * PlaceOf(candidate));
    const double sibling = at_log_prob_.LoadDouble(8 * PlaceOf(candidate) + 8);
    const double child = at_log_prob_.LoadDouble(8 * PlaceOf((RowOf(candidate) + 1) * row_step_));
    at_nodes_.StoreInt(kWaiting + 4 * slot, candidate, write);
    at_nodes_.StoreDouble(kWaitingScore + 8 * slot, score, write);
    at_nodes_.StorePair(kSuccessors + 16 * slot, {(score - own) + sibling, score + child}, write);
  }

  // Whether more than one key looks as deep as this one.
  __device__ bool Several(uint32_t least) const {
    int own = 0;
    for (int j = 0; j < kSlots; ++j) {
      own += (key_[j] ^ least) <= kSlotMask ? 1 : 0;
    }
    const unsigned lanes = __ballot_sync(kAllLanes, own > 0);
    const unsigned twice = __ballot_sync(kAllLanes, own > 1);
    return (lanes & (lanes - 1)) != 0 || twice != 0;
  }

  // Lanes whose key of each kind of slot looks as deep as the least.
  struct Alike {
    unsigned lanes[kSlots];
  };
  __device__ int32_t BestOfSeveral(uint32_t least) const {
    Alike alike;
    for (int j = 0; j < kSlots; ++j) {
      alike.lanes[j] = __ballot_sync(kAllLanes, (key_[j] ^ least) <= kSlotMask);
    }
    return BestOf(alike, nodes_);
  }
  static __device__ __noinline__ int32_t BestOf(Alike alike, const Nodes& nodes) {
    int32_t best = -1;
    for (int j = 0; j < kSlots; ++j) {
      for (unsigned left = alike.lanes[j]; left != 0; left &= left - 1) {
        const int32_t slot = 32 * j + __ffs(static_cast<int>(left)) - 1;
        best = best < 0 || ComesFirst(nodes, slot, best) ? slot : best;
      }
    }
    return best;
  }

  Nodes& nodes_;
  SharedMemory at_nodes_;
  SharedMemory at_log_prob_;
  int32_t row_step_;
  int32_t lane_;
  uint32_t key_[kSlots];
};

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
__global__ void __launch_bounds__(kThreads, 1) TreeBuildKernel(TreeBuildArgs args, int32_t max_depths) {
  extern __shared__ double
      log_prob[];  // [depths + 2, k + 1]: the last row is read, but what it says never counts
  __shared__ Nodes nodes;
  __shared__ int32_t built;
  WaitForKernelBefore();
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
      count = Builder<kSlots>(params, log_prob, nodes).Build(params.budget);
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
  return LaunchOverlapped("tree_build", TreeBuildKernel<kSlots>,
                          {.grid = dim3(static_cast<unsigned>(args.params.size)),
                           .block = dim3(kThreads),
                           .shared_bytes = shared},
                          stream.cuda_stream, args, static_cast<int32_t>(depths));
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
