// The gate on the shipped pair: a seed-rotating sample of the product, or all of it.
//   pair_gate [--exhaustive] [--runs N] [--seed S] [--target DIR] [--drafter DIR]
#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "tests/exactness/gate.h"

namespace arborist::tests {
namespace {

// The adversary's four kinds stand in the product; the replay drafter belongs to the random model.
constexpr GateDrafter kDrafters[] = {GateDrafter::kDFlash, GateDrafter::kNgram,   GateDrafter::kRandom,
                                     GateDrafter::kStale,  GateDrafter::kMaximal, GateDrafter::kMalformed};

struct Arguments {
  bool exhaustive = false;
  int runs = 200;
  uint64_t seed = static_cast<uint64_t>(std::time(nullptr) / 86400);
  std::string target;
  std::string drafter;
  std::string prompts;
};

Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  const char* source = std::getenv("ARBORIST_SOURCE_DIR");
  const std::string root = source != nullptr ? source : ".";
  const std::string pair = root + "/deploy/models/arborist-tiny";
  arguments.prompts = root + "/tests/golden/pair/golden.safetensors";
  arguments.target = pair + "/target";
  arguments.drafter = pair + "/drafter";
  for (int i = 1; i < argc; ++i) {
    const bool more = i + 1 < argc;
    if (std::strcmp(argv[i], "--exhaustive") == 0) {
      arguments.exhaustive = true;
    } else if (std::strcmp(argv[i], "--runs") == 0 && more) {
      arguments.runs = std::atoi(argv[++i]);
    } else if (std::strcmp(argv[i], "--seed") == 0 && more) {
      arguments.seed = std::strtoull(argv[++i], nullptr, 10);
    } else if (std::strcmp(argv[i], "--target") == 0 && more) {
      arguments.target = argv[++i];
    } else if (std::strcmp(argv[i], "--drafter") == 0 && more) {
      arguments.drafter = argv[++i];
    } else {
      std::fprintf(stderr,
                   "usage: pair_gate [--exhaustive] [--runs N] [--seed S] [--target DIR] [--drafter DIR]\n");
      std::exit(2);
    }
  }
  return arguments;
}

std::vector<GateCell> Product() {
  std::vector<GateCell> cells;
  for (const Situation situation : kSituations) {
    for (const GateDrafter drafter : kDrafters) {
      for (const GateSampling sampling : kSamplings) {
        for (const int budget : kBudgets) {
          cells.push_back({sampling, budget, drafter, situation});
        }
      }
    }
  }
  return cells;
}

// Whether a cell of the pair must accept more than plain decoding would: the drafter is trained and sees
// whole trees.
std::string CheckAcceptance(const GateCell& cell, const GateResult& sum) {
  const bool whole = cell.situation != Situation::kCut && std::abs(cell.budget) >= 3;
  if (cell.drafter == GateDrafter::kDFlash && whole && !(sum.mean_accepted() > 1.3)) {
    return Name(cell) + ": mean accepted length " + std::to_string(sum.mean_accepted()) +
           ", expected above 1.3";
  }
  return "";
}

int Main(int argc, char** argv) {
  const Arguments arguments = Parse(argc, argv);
  const auto world = GateWorld::Create({.target = arguments.target,
                                        .drafter = arguments.drafter,
                                        .cut_seed = arguments.seed,
                                        .prompts = arguments.prompts});
  if (!world.ok()) {
    std::fprintf(stderr, "%s\n", world.status().ToString().c_str());
    return 1;
  }
  std::vector<GateCell> cells = Product();
  if (!arguments.exhaustive) {
    std::mt19937_64 random(arguments.seed);
    std::shuffle(cells.begin(), cells.end(), random);
    cells.resize(std::min<size_t>(cells.size(), static_cast<size_t>(arguments.runs)));
  }
  Gate gate(**world, arguments.seed);
  int failures = 0;
  int sequences = 0;
  GateResult ngram_greedy_wide;
  std::map<GateDrafter, GateResult> by_drafter;
  for (const GateCell& cell : cells) {
    const CellReport report = gate.Run(cell);
    std::string failure = report.failure.empty() ? CheckAcceptance(cell, report.sum) : report.failure;
    if (!failure.empty()) {
      ++failures;
      std::printf("FAILED %s\n", failure.c_str());
    }
    sequences += report.sequences;
    GateResult& sum = by_drafter[cell.drafter];
    sum.rounds += report.sum.rounds;
    sum.committed_by_trees += report.sum.committed_by_trees;
    sum.refused_trees += report.sum.refused_trees;
    if (cell.drafter == GateDrafter::kNgram && cell.sampling == GateSampling::kGreedy && cell.budget >= 16) {
      ngram_greedy_wide.rounds += report.sum.rounds;
      ngram_greedy_wide.off_spine_rounds += report.sum.off_spine_rounds;
      ngram_greedy_wide.compacted_rounds += report.sum.compacted_rounds;
    }
  }
  // Branching and compaction must have been exercised by a real drafter too.
  if (ngram_greedy_wide.off_spine_rounds * 10 < ngram_greedy_wide.rounds ||
      ngram_greedy_wide.compacted_rounds * 10 < ngram_greedy_wide.rounds) {
    ++failures;
    std::printf(
        "FAILED n-gram, T=0, 16 nodes and more: %d of %d rounds off the spine, %d compacted, expected 10 "
        "%%\n",
        ngram_greedy_wide.off_spine_rounds, ngram_greedy_wide.rounds, ngram_greedy_wide.compacted_rounds);
  }
  const int distinct = gate.DistinctTexts(GateSampling::kTopP, 8);
  if (distinct != 8) {
    ++failures;
    std::printf("FAILED T=1: %d distinct texts from 8 seeds\n", distinct);
  }
  static constexpr const char* kNames[] = {"DFlash",  "n-gram",    "random", "stale",
                                           "maximal", "malformed", "replay"};
  for (const auto& [drafter, sum] : by_drafter) {
    std::printf("%-10s %6d rounds, mean accepted length %.2f, %d trees refused\n",
                kNames[static_cast<int>(drafter)], sum.rounds, sum.mean_accepted(), sum.refused_trees);
  }
  std::printf("n-gram, T=0, 16 nodes and more: %d rounds, %d off the spine, %d compacted\n",
              ngram_greedy_wide.rounds, ngram_greedy_wide.off_spine_rounds,
              ngram_greedy_wide.compacted_rounds);
  std::printf("pair gate: %zu cells, %d sequences, %d failures, seed %llu\n", cells.size(), sequences,
              failures, static_cast<unsigned long long>(arguments.seed));
  return failures == 0 ? 0 : 1;
}

}  // namespace
}  // namespace arborist::tests

int main(int argc, char** argv) { return arborist::tests::Main(argc, argv); }
