#include <algorithm>
#include <limits>
#include <vector>

#include "common/base/status_macros.h"
#include "kernels/tree_build/stream_candidates.h"
#include "kernels/tree_build/tree_build.h"

namespace arborist::kernels::reference {
namespace {

struct Prefix {
  std::vector<int> ranks;
  double score = 0;
};

// The same order of operations as the definition: ranks before the last one were reached as first child, then
// sibling by sibling.
double Score(const StreamCandidates& args, const std::vector<int>& ranks) {
  double score = 0;
  for (size_t depth = 0; depth < ranks.size(); ++depth) {
    const float* log_prob = args.log_prob.row(static_cast<int64_t>(depth));
    score += static_cast<double>(log_prob[0]);
    for (int rank = 0; rank < ranks[depth]; ++rank) {
      score = (score - static_cast<double>(log_prob[rank])) + static_cast<double>(log_prob[rank + 1]);
    }
  }
  return score;
}

void Enumerate(const StreamCandidates& args, std::vector<int>& ranks, std::vector<Prefix>& all) {
  if (static_cast<int64_t>(ranks.size()) == args.depths) {
    return;
  }
  for (int rank = 0; rank < args.k; ++rank) {
    ranks.push_back(rank);
    all.push_back({ranks, Score(args, ranks)});
    Enumerate(args, ranks, all);
    ranks.pop_back();
  }
}

int32_t NodeOf(const std::vector<Prefix>& kept, const std::vector<int>& ranks) {
  if (ranks.empty()) {
    return 0;
  }
  for (size_t i = 0; i < kept.size(); ++i) {
    if (kept[i].ranks == ranks) {
      return static_cast<int32_t>(i) + 1;
    }
  }
  return -1;
}

void BuildOne(const StreamCandidates& args) {
  std::vector<int> ranks;
  std::vector<Prefix> all;
  Enumerate(args, ranks, all);
  std::sort(all.begin(), all.end(), [](const Prefix& a, const Prefix& b) {
    return a.score != b.score ? a.score > b.score : a.ranks < b.ranks;
  });
  all.resize(std::min<size_t>(all.size(), static_cast<size_t>(args.budget)));
  args.out_token[0] = args.root;
  args.out_parent[0] = -1;
  args.out_score[0] = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    std::vector<int> parent = all[i].ranks;
    const int rank = parent.back();
    parent.pop_back();
    args.out_token[i + 1] = args.token.row(static_cast<int64_t>(parent.size()))[rank];
    args.out_parent[i + 1] = NodeOf(all, parent);
    const double lowest = std::numeric_limits<float>::lowest();
    args.out_score[i + 1] =
        std::min(static_cast<float>(std::max(all[i].score, lowest)), args.out_score[i]) + 0.0f;
  }
  *args.out_nodes = static_cast<int32_t>(all.size()) + 1;
}

}  // namespace

absl::Status TreeBuild(const TreeBuildArgs& args, StreamView /*stream*/) {
  RETURN_IF_ERROR(ValidateTreeBuild(args));
  for (int64_t stream = 0; stream < args.params.size; ++stream) {
    BuildOne(CandidatesOf(args, stream));
    if (args.error.size > 0) {
      args.error[stream] = 0;
    }
  }
  return absl::OkStatus();
}

}  // namespace arborist::kernels::reference
