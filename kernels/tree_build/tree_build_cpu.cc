#include <algorithm>
#include <array>
#include <limits>

#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "kernels/tree_build/stream_candidates.h"
#include "kernels/tree_build/tree_build.h"

namespace arborist::kernels::cpu {
namespace {

// A prefix that may become a node: rank `rank` under node `parent`.
struct Entry {
  double score = 0;
  int32_t parent = 0;
  int32_t rank = 0;
};

class Builder {
 public:
  explicit Builder(const StreamCandidates& args) : args_(args) {}

  void Build() {
    args_.out_token[0] = args_.root;
    args_.out_parent[0] = -1;
    args_.out_score[0] = 0;
    if (args_.depths > 0 && args_.budget > 0) {
      Push({static_cast<double>(args_.log_prob.row(0)[0]), 0, 0});
    }
    while (nodes_ <= args_.budget && heap_size_ > 0) {
      Append(Pop());
    }
    *args_.out_nodes = nodes_;
  }

 private:
  void Append(const Entry& entry) {
    const int node = nodes_++;
    const int depth = depth_[entry.parent];  // of the parent: the row of the candidate lists
    depth_[node] = depth + 1;
    rank_[node] = entry.rank;
    args_.out_token[node] = args_.token.row(depth)[entry.rank];
    args_.out_parent[node] = entry.parent;
    const double lowest = std::numeric_limits<float>::lowest();
    args_.out_score[node] =
        std::min(static_cast<float>(std::max(entry.score, lowest)), args_.out_score[node - 1]) + 0.0f;
    if (entry.rank + 1 < args_.k) {
      const float* log_prob = args_.log_prob.row(depth);
      const double own = log_prob[entry.rank];
      const double next = log_prob[entry.rank + 1];
      Push({(entry.score - own) + next, entry.parent, entry.rank + 1});
    }
    if (depth + 1 < args_.depths) {
      Push({entry.score + static_cast<double>(args_.log_prob.row(depth + 1)[0]), node, 0});
    }
  }

  // Ranks from the root; returns their count.
  int Path(const Entry& entry, std::array<int32_t, kTreeBuildMaxDepth>& path) const {
    const int count = depth_[entry.parent] + 1;
    path[count - 1] = entry.rank;
    for (int node = entry.parent; node != 0; node = args_.out_parent[node]) {
      path[depth_[node] - 1] = rank_[node];
    }
    return count;
  }

  // std heaps keep the largest on top, so: a < b when b is popped first.
  bool PoppedLater(const Entry& a, const Entry& b) const {
    if (a.score != b.score) {
      return a.score < b.score;
    }
    std::array<int32_t, kTreeBuildMaxDepth> path_a;
    std::array<int32_t, kTreeBuildMaxDepth> path_b;
    const int count_a = Path(a, path_a);
    const int count_b = Path(b, path_b);
    return std::lexicographical_compare(path_b.begin(), path_b.begin() + count_b, path_a.begin(),
                                        path_a.begin() + count_a);
  }

  void Push(const Entry& entry) {
    Check(heap_size_ < static_cast<int>(heap_.size()), "a node pushes at most two entries");
    heap_[heap_size_++] = entry;
    std::push_heap(heap_.begin(), heap_.begin() + heap_size_,
                   [this](const Entry& a, const Entry& b) { return PoppedLater(a, b); });
  }

  Entry Pop() {
    std::pop_heap(heap_.begin(), heap_.begin() + heap_size_,
                  [this](const Entry& a, const Entry& b) { return PoppedLater(a, b); });
    return heap_[--heap_size_];
  }

  const StreamCandidates args_;
  int nodes_ = 1;
  int heap_size_ = 0;
  std::array<int32_t, kTreeBuildMaxBudget + 1> depth_{};  // of each node
  std::array<int32_t, kTreeBuildMaxBudget + 1> rank_{};
  std::array<Entry, 2 * kTreeBuildMaxBudget + 2> heap_;
};

}  // namespace

absl::Status TreeBuild(const TreeBuildArgs& args, StreamView /*stream*/) {
  RETURN_IF_ERROR(ValidateTreeBuild(args));
  for (int64_t stream = 0; stream < args.params.size; ++stream) {
    Builder(CandidatesOf(args, stream)).Build();
    if (args.error.size > 0) {
      args.error[stream] = 0;
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels::cpu
