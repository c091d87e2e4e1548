#include "verifier/cost_measurement.h"

#include <algorithm>
#include <array>
#include <chrono>
#include <vector>

#include "common/base/status_macros.h"
#include "common/tree/token_tree.h"

namespace arborist::verifier {
namespace {

using Clock = std::chrono::steady_clock;

constexpr int kPrefix = 192;
constexpr int kRepeats = 5;

double SecondsSince(Clock::time_point begin) {
  return std::chrono::duration<double>(Clock::now() - begin).count();
}

// A root with children only: every node a row, none of them deep.
StepTree Bush(std::span<const int32_t> table, int prefix, int nodes, const std::vector<TokenId>& tokens,
              const std::vector<int32_t>& parents) {
  return {.page_table = table,
          .root_position = prefix,
          .token = std::span(tokens).first(nodes),
          .parent = std::span(parents).first(nodes),
          .sampling = {}};
}

}  // namespace

absl::Status MeasureStepCosts(const StepCapacity& capacity, int max_context, double most_seconds,
                              StepRunner& runner, KvCache& cache, CostCurve& curve) {
  constexpr int kMostNodes = kMaxTreeBudget + 1;
  const int prefix = std::min({kPrefix, max_context / 2, capacity.max_rows});
  const auto pages_each = KvCache::PagesFor(prefix + kMostNodes);
  if (pages_each > capacity.max_pages_per_sequence) {
    return absl::OkStatus();
  }
  const int64_t trees_most =
      std::min<int64_t>(capacity.max_sequences, cache.pool().free_pages() / pages_each);
  std::vector<SequencePages> pages;
  std::vector<StepTree> trees;
  const std::vector<TokenId> tokens(static_cast<size_t>(std::max(kMostNodes, prefix)), TokenId{1});
  std::vector<int32_t> parents(static_cast<size_t>(kMostNodes), 0);
  parents[0] = -1;
  const auto begin = Clock::now();
  for (const int bound : curve.bounds()) {
    const int64_t trees_now = (bound + kMostNodes - 1) / kMostNodes;
    // Prefixes are computed when a size first needs them: they take their time, too.
    while (std::ssize(pages) < std::min(trees_now, trees_most) && SecondsSince(begin) < most_seconds) {
      pages.push_back(cache.pool().NewSequence());
      if (!pages.back().Resize(pages_each)) {
        return absl::InternalError("cost measurement: pages were counted");
      }
      const StepChunk chunk{
          .page_table = pages.back().table(), .first_position = 0, .tokens = std::span(tokens).first(prefix)};
      RETURN_IF_ERROR(runner.Run({}, {&chunk, 1}));
    }
    if (std::ssize(pages) < trees_now) {
      break;
    }
    trees.clear();
    for (int rows = bound; rows > 0; rows -= kMostNodes) {
      trees.push_back(Bush(pages[trees.size()].table(), prefix, std::min(rows, kMostNodes), tokens, parents));
    }
    std::array<double, kRepeats> seconds;
    int runs = 0;
    while (runs < kRepeats && SecondsSince(begin) < most_seconds) {
      const auto step = Clock::now();
      RETURN_IF_ERROR(runner.Run(trees, {}));
      seconds[runs++] = SecondsSince(step);
    }
    if (runs == 0) {
      break;
    }
    std::nth_element(seconds.begin(), seconds.begin() + runs / 2, seconds.begin() + runs);
    curve.SetAtStart(bound, seconds[runs / 2]);
  }
  return absl::OkStatus();
}

}  // namespace arborist::verifier
