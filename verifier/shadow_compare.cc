#include "verifier/shadow_compare.h"

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <span>

#include "common/base/check.h"
#include "common/threads/thread_pool.h"
#include "kernels/kernel_set.h"
#include "kernels/tree_accept/tree_accept.h"
#include "kernels/tree_attention_mla/tree_attention_mla.h"
#include "verifier/sample_scratch.h"

namespace arborist::verifier {
namespace {

// Adds up what one kernel's comparisons gave.
class Tally {
 public:
  // One row of numbers; `least_size` is the smallest magnitude that the relative difference is taken of.
  void AddRow(std::span<const float> live, std::span<const float> oracle, double least_size) {
    double largest_difference = 0, largest = least_size;
    for (size_t i = 0; i < live.size(); ++i) {
      ++difference_.values;
      if (!std::isfinite(live[i]) || !std::isfinite(oracle[i])) {
        ++difference_.non_finite;
        continue;
      }
      const double apart = std::abs(static_cast<double>(live[i]) - static_cast<double>(oracle[i]));
      sum_ += apart;
      largest_difference = std::max(largest_difference, apart);
      largest = std::max(largest, std::abs(static_cast<double>(oracle[i])));
    }
    difference_.max_abs = std::max(difference_.max_abs, largest_difference);
    if (largest_difference > 0) {
      difference_.relative =
          std::max(difference_.relative,
                   largest > 0 ? largest_difference / largest : std::numeric_limits<double>::infinity());
    }
  }
  void AddMismatches(int64_t count) { difference_.mismatches += count; }
  void AddNonFinite(int64_t count) { difference_.non_finite += count; }

  ShadowReport Report(const ShadowSample& sample, ShadowKernel kernel, int layer, int64_t rows) const {
    ShadowReport report{.kernel = kernel,
                        .step = sample.step,
                        .layer = layer,
                        .rows = rows,
                        .difference = difference_,
                        .limit = sample.limit};
    const int64_t numbers = difference_.values - difference_.non_finite;
    report.difference.mean_abs = numbers > 0 ? sum_ / static_cast<double>(numbers) : 0;
    report.fault =
        difference_.non_finite > 0 || difference_.mismatches > 0 || !(difference_.relative <= sample.limit);
    return report;
  }

 private:
  ShadowDifference difference_;
  double sum_ = 0;
};

// As the kernel that is compared sees it: on a bf16 cache a GPU rounds queries to bf16, and large scores
// would make much of that. What it does to the probabilities stays a difference.
std::vector<float> Queries(const ShadowSample::Attention& attention, size_t row) {
  const int64_t size = attention.heads * (attention.latent + attention.rope);
  const auto begin = attention.query.begin() + static_cast<int64_t>(row) * size;
  std::vector<float> query(begin, begin + size);
  if (attention.cache_dtype == DType::kBF16) {
    for (float& value : query) {
      value = ToFloat(ToBFloat16(value));
    }
  }
  return query;
}

// The oracle's answer for one row whose keys lie one after another: a table of slots (pages of one row), so
// that nothing of the cache's layout is used.
std::vector<float> AttendAgain(const ShadowSample& sample, size_t row) {
  const ShadowSample::Attention& attention = *sample.attention;
  const int64_t width = attention.latent + attention.rope, heads = attention.heads;
  const int32_t position = sample.rows[row].position;
  const int32_t prefix_blocks = kernels::PrefixBlocks(position);
  const int32_t prefix = prefix_blocks * kernels::kPageRows;
  std::vector<int32_t> key(static_cast<size_t>(position) + 1);
  std::iota(key.begin(), key.end(), 0);
  const int32_t sequence = 0, tail_count = position + 1 - prefix;
  const std::vector<float> query = Queries(attention, row);
  std::vector<float> out(static_cast<size_t>(heads * attention.latent));
  const absl::Status done =
      kernels::reference::TreeAttentionMla({.query = {query.data(), 1, heads, width},
                                            .cache = attention.cache[row].data(),
                                            .cache_dtype = attention.cache_dtype,
                                            .slots = position + 1,
                                            .latent = attention.latent,
                                            .rope = attention.rope,
                                            .scale = attention.scale,
                                            .sequence = {&sequence, 1},
                                            .page_table = {key.data(), 1, prefix, prefix},
                                            .page_rows = 1,
                                            .prefix_blocks = {&prefix_blocks, 1},
                                            .tail_slot = {key.data() + prefix, 1, tail_count, tail_count},
                                            .tail_count = {&tail_count, 1},
                                            .out = {out.data(), 1, heads, attention.latent},
                                            .scratch = {}},
                                           {});
  Check(done.ok(), done.ToString());
  return out;
}

ShadowReport CompareAttention(const ShadowSample& sample) {
  const ShadowSample::Attention& attention = *sample.attention;
  const auto latent = static_cast<size_t>(attention.latent), heads = static_cast<size_t>(attention.heads);
  Tally tally;
  for (size_t row = 0; row < sample.rows.size(); ++row) {
    const std::vector<float> again = AttendAgain(sample, row);
    for (size_t head = 0; head < heads; ++head) {
      tally.AddRow(std::span(attention.out).subspan((row * heads + head) * latent, latent),
                   std::span(again).subspan(head * latent, latent), 0);
    }
  }
  return tally.Report(sample, ShadowKernel::kTreeAttentionMla, attention.layer,
                      static_cast<int64_t>(sample.rows.size()));
}

struct Routed {
  std::vector<int32_t> expert;
  std::vector<float> weight;
};

// One row through one implementation of moe_route.
Routed RouteAgain(const ShadowSample::Route& route, size_t row,
                  kernels::KernelSet::Kernel<kernels::MoeRouteArgs> kernel, StreamView stream) {
  Routed out;
  const int64_t chosen = route.rule.top_k;
  out.expert.resize(static_cast<size_t>(chosen));
  out.weight.resize(static_cast<size_t>(chosen));
  kernels::MoeRouteArgs args = route.rule;
  args.logits = {route.logits.data() + static_cast<int64_t>(row) * route.experts, 1, route.experts,
                 route.experts};
  args.bias = {route.bias.data(), static_cast<int64_t>(route.bias.size())};
  args.expert = {out.expert.data(), 1, chosen, chosen};
  args.weight = {out.weight.data(), 1, chosen, chosen};
  const absl::Status done = kernel(args, stream);
  Check(done.ok(), done.ToString());
  return out;
}

bool AllFinite(std::span<const float> values) {
  return std::all_of(values.begin(), values.end(), [](float value) { return std::isfinite(value); });
}

// The oracle's scores are double, so that a near tie may go the other way in it; the backends' scores are
// equal bit for bit. An expert is wrong when both the oracle and the CPU's kernel choose another.
ShadowReport CompareRoute(const ShadowSample& sample) {
  const ShadowSample::Route& route = *sample.route;
  const auto experts = static_cast<size_t>(route.experts), chosen = static_cast<size_t>(route.rule.top_k);
  ThreadPool alone(1);
  Tally tally;
  for (size_t row = 0; row < sample.rows.size(); ++row) {
    if (!AllFinite(std::span(route.logits).subspan(row * experts, experts))) {
      tally.AddNonFinite(1);
      continue;
    }
    const auto expert = std::span(route.expert).subspan(row * chosen, chosen);
    Routed again = RouteAgain(route, row, kernels::reference::MoeRoute, {});
    if (!std::equal(expert.begin(), expert.end(), again.expert.begin())) {
      again = RouteAgain(route, row, kernels::cpu::MoeRoute, {.threads = &alone});
    }
    if (!std::equal(expert.begin(), expert.end(), again.expert.begin())) {
      tally.AddMismatches(1);
      continue;
    }
    tally.AddRow(std::span(route.weight).subspan(row * chosen, chosen), again.weight, 0);
  }
  return tally.Report(sample, ShadowKernel::kMoeRoute, route.layer, static_cast<int64_t>(sample.rows.size()));
}

ShadowReport CompareSampling(const ShadowSample& sample) {
  const ShadowSample::Sampling& sampling = *sample.sampling;
  const int64_t vocabulary = sampling.vocabulary;
  const int32_t first = 0;
  std::vector<std::byte> memory(kernels::SampleTargetScratchBytes(vocabulary, 1) + kScratchAlignment);
  Tally tally;
  for (size_t row = 0; row < sampling.chosen.size(); ++row) {
    TokenId chosen{};
    float log_prob = 0;
    const View2<const float> raw = {sampling.logits.data() + static_cast<int64_t>(row) * vocabulary, 1,
                                    vocabulary, vocabulary};
    View2<const float> choices = raw;
    if (!sampling.choices.empty()) {
      choices.data = sampling.choices.data() + static_cast<int64_t>(row) * vocabulary;
    }
    absl::Status done = kernels::reference::SampleTarget({.logits = choices,
                                                          .position = {&sampling.position[row], 1},
                                                          .params_index = {&first, 1},
                                                          .params = {&sampling.params[row], 1},
                                                          .chosen = {&chosen, 1},
                                                          .log_prob = {},
                                                          .scratch = Aligned(memory)},
                                                         {});
    done.Update(kernels::reference::TokenLogProb({.logits = raw,
                                                  .chosen = {&sampling.chosen[row], 1},
                                                  .forced = {},
                                                  .top = {},
                                                  .top_count = {},
                                                  .log_prob = {&log_prob, 1, 1, 1},
                                                  .scratch = {}},
                                                 {}));
    if (!done.ok()) {  // a logit is not finite
      tally.AddNonFinite(1);
      continue;
    }
    tally.AddMismatches(chosen == sampling.chosen[row] ? 0 : 1);
    tally.AddRow({&sampling.log_prob[row], 1}, {&log_prob, 1}, 1);
  }
  return tally.Report(sample, ShadowKernel::kSampleTarget, -1, static_cast<int64_t>(sampling.chosen.size()));
}

ShadowReport CompareRecorded(const ShadowSample& sample) {
  const ShadowSample::Sampling& sampling = *sample.sampling;
  const auto vocabulary = static_cast<size_t>(sampling.vocabulary);
  Tally tally;
  for (size_t row = 0; row < sampling.chosen.size(); ++row) {
    const auto live = std::span(sampling.logits).subspan(row * vocabulary, vocabulary);
    const auto eager = std::span(sampling.eager).subspan(row * vocabulary, vocabulary);
    tally.AddRow(live, eager, 0);
    for (size_t i = 0; i < vocabulary; ++i) {
      tally.AddMismatches(std::bit_cast<uint32_t>(live[i]) == std::bit_cast<uint32_t>(eager[i]) ? 0 : 1);
    }
  }
  return tally.Report(sample, ShadowKernel::kRecordedStep, -1, static_cast<int64_t>(sampling.chosen.size()));
}

ShadowReport CompareAccept(const ShadowSample& sample) {
  const ShadowSample::Tree& tree = *sample.tree;
  const auto nodes = static_cast<int64_t>(tree.token.size());
  const int32_t begin[] = {0, static_cast<int32_t>(nodes)};
  std::vector<int32_t> path(tree.token.size());
  int32_t length = 0, error = 0;
  TokenId bonus{};
  const absl::Status done = kernels::reference::TreeAccept({.tree_begin = {begin, 2},
                                                            .token = {tree.token.data(), nodes},
                                                            .parent = {tree.parent.data(), nodes},
                                                            .chosen = {tree.chosen.data(), nodes},
                                                            .path = {path.data(), nodes},
                                                            .path_length = {&length, 1},
                                                            .bonus = {&bonus, 1},
                                                            .error = {&error, 1}},
                                                           {});
  Check(done.ok(), done.ToString());
  path.resize(static_cast<size_t>(length));
  Tally tally;
  tally.AddMismatches((path == tree.path ? 0 : 1) + (bonus == tree.bonus ? 0 : 1) + error);
  return tally.Report(sample, ShadowKernel::kTreeAccept, -1, nodes);
}

ShadowReport CompareMoves(const ShadowSample& sample) {
  const ShadowSample::Moves& moves = *sample.moves;
  const std::vector<int32_t>& path = sample.tree->path;
  Tally tally;
  for (size_t i = 0; i < path.size(); ++i) {
    tally.AddMismatches(std::memcmp(moves.after.data() + static_cast<int64_t>(i) * moves.row_bytes,
                                    moves.before.data() + path[i] * moves.row_bytes,
                                    static_cast<size_t>(moves.row_bytes)) == 0
                            ? 0
                            : 1);
  }
  return tally.Report(sample, ShadowKernel::kKvCompact, moves.layer, static_cast<int64_t>(path.size()));
}

bool Has(const ShadowSample& sample, ShadowKernel kernel) {
  switch (kernel) {
    case ShadowKernel::kTreeAttentionMla:
      return sample.attention.has_value();
    case ShadowKernel::kMoeRoute:
      return sample.route.has_value();
    case ShadowKernel::kSampleTarget:
      return sample.sampling.has_value();
    case ShadowKernel::kRecordedStep:
      return sample.sampling.has_value() && !sample.sampling->eager.empty();
    case ShadowKernel::kTreeAccept:
      return sample.tree.has_value();
    case ShadowKernel::kKvCompact:
      return sample.tree.has_value() && sample.moves.has_value();
  }
  return false;
}

ShadowReport Compare(const ShadowSample& sample, ShadowKernel kernel) {
  switch (kernel) {
    case ShadowKernel::kTreeAttentionMla:
      return CompareAttention(sample);
    case ShadowKernel::kMoeRoute:
      return CompareRoute(sample);
    case ShadowKernel::kSampleTarget:
      return CompareSampling(sample);
    case ShadowKernel::kRecordedStep:
      return CompareRecorded(sample);
    case ShadowKernel::kTreeAccept:
      return CompareAccept(sample);
    case ShadowKernel::kKvCompact:
      return CompareMoves(sample);
  }
  return {};
}

}  // namespace

std::vector<ShadowReport> CompareSample(const ShadowSample& sample, const std::vector<ShadowKernel>& wanted) {
  std::vector<ShadowReport> reports;
  for (const ShadowKernel kernel : wanted) {
    if (Has(sample, kernel)) {
      reports.push_back(Compare(sample, kernel));
    }
  }
  return reports;
}

}  // namespace arborist::verifier
