// The gate on the shipped pair: a seed-rotating sample of the product, and a fourth as many cells under a
// control; or all of both.
//   pair_gate [--exhaustive] [--runs N] [--seed S] [--target DIR] [--drafter DIR]
//             [--device cpu|cuda] [--jobs N] [--seconds S] [--report=FILE]
// Jobs are worlds of their own that share the cells. After S seconds no further cell begins; what was left
// out is told. The report is JSON: {"passed": cells, "failed": [sentences], "skipped": cells}.
#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <fstream>
#include <map>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "tests/exactness/gate.h"

namespace arborist::tests {
namespace {

// The adversary's four kinds stand in the product; the replay drafter belongs to the random model.
constexpr GateDrafter kDrafters[] = {GateDrafter::kDFlash, GateDrafter::kNgram,   GateDrafter::kRandom,
                                     GateDrafter::kStale,  GateDrafter::kMaximal, GateDrafter::kMalformed};

using Clock = std::chrono::steady_clock;

struct Arguments {
  bool exhaustive = false;
  int runs = 200;
  uint64_t seed = static_cast<uint64_t>(std::time(nullptr) / 86400);
  DeviceKind device = DeviceKind::kCpu;
  int jobs = 1;
  int seconds = 0;  // 0: no limit
  std::string target;
  std::string drafter;
  std::string prompts;
  std::string report;
};

[[noreturn]] void EndWithUsage() {
  std::fprintf(stderr,
               "usage: pair_gate [--exhaustive] [--runs N] [--seed S] [--target DIR] [--drafter DIR] "
               "[--device cpu|cuda] [--jobs N] [--seconds S] [--report=FILE]\n");
  std::exit(2);
}

Arguments Parse(int argc, char** argv) {
  Arguments arguments;
  const char* source = std::getenv("ARBORIST_SOURCE_DIR");
  const std::string root = source != nullptr ? source : ".";
  const std::string pair = root + "/deploy/models/arborist-tiny";
  arguments.prompts = root + "/tests/golden/pair/golden.safetensors";
  arguments.target = pair + "/target";
  arguments.drafter = pair + "/drafter";
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--exhaustive") {
      arguments.exhaustive = true;
      continue;
    }
    if (name.rfind("--report=", 0) == 0) {
      arguments.report = name.substr(std::strlen("--report="));
      continue;
    }
    if (i + 1 == argc) {
      EndWithUsage();
    }
    const std::string value = argv[++i];
    if (name == "--runs") {
      arguments.runs = std::atoi(value.c_str());
    } else if (name == "--seed") {
      arguments.seed = std::strtoull(value.c_str(), nullptr, 10);
    } else if (name == "--target") {
      arguments.target = value;
    } else if (name == "--drafter") {
      arguments.drafter = value;
    } else if (name == "--jobs") {
      arguments.jobs = std::max(1, std::atoi(value.c_str()));
    } else if (name == "--seconds") {
      arguments.seconds = std::atoi(value.c_str());
    } else if (name == "--device" && (value == "cpu" || value == "cuda")) {
      arguments.device = value == "cuda" ? DeviceKind::kCuda : DeviceKind::kCpu;
    } else {
      EndWithUsage();
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

// Every cell under a control, each in turn: their number shares no factor with those of budgets and
// samplings.
std::vector<GateCell> Controlled(std::vector<GateCell> cells, int controls) {
  int control = 0;
  for (GateCell& cell : cells) {
    cell.control = control++ % controls;
  }
  return cells;
}

void KeepAFew(std::vector<GateCell>& cells, int count, std::mt19937_64& random) {
  std::shuffle(cells.begin(), cells.end(), random);
  cells.resize(std::min<size_t>(cells.size(), static_cast<size_t>(count)));
}

// Whether a cell of the pair must accept more than plain decoding would: the drafter is trained and sees
// whole trees, but knows of no control.
std::string CheckAcceptance(const GateCell& cell, const GateResult& sum) {
  const bool whole = cell.situation != Situation::kCut && std::abs(cell.budget) >= 3;
  if (cell.drafter == GateDrafter::kDFlash && cell.control < 0 && whole && !(sum.mean_accepted() > 1.3)) {
    return Name(cell) + ": mean accepted length " + std::to_string(sum.mean_accepted()) +
           ", expected above 1.3";
  }
  return "";
}

// What all jobs did together.
class Totals {
 public:
  void Count(const GateCell& cell, const CellReport& report) {
    const std::lock_guard lock(mutex_);
    ++cells_;
    Judge(report.failure.empty() ? CheckAcceptance(cell, report.sum) : report.failure);
    sequences_ += report.sequences;
    AddCounts(report.sum, by_drafter_[cell.drafter]);
    if (cell.drafter == GateDrafter::kNgram && cell.control < 0 && cell.sampling == GateSampling::kGreedy &&
        cell.budget >= 16) {
      AddCounts(report.sum, ngram_greedy_wide_);
    }
  }

  // An empty sentence is no failure.
  void Fail(const std::string& sentence) {
    const std::lock_guard lock(mutex_);
    Judge(sentence);
  }

  // Branching and compaction must have been exercised by a real drafter too.
  void CheckNgram() {
    const GateResult& ngram = ngram_greedy_wide_;
    if (ngram.off_spine_rounds * 10 < ngram.rounds || ngram.compacted_rounds * 10 < ngram.rounds) {
      Fail(absl::StrCat("n-gram, T=0, 16 nodes and more: ", ngram.off_spine_rounds, " of ", ngram.rounds,
                        " rounds off the spine, ", ngram.compacted_rounds, " compacted, expected 10 %"));
    }
  }

  void Print(size_t wanted, uint64_t seed, double seconds) const {
    static constexpr const char* kNames[] = {"DFlash",  "n-gram",    "random", "stale",
                                             "maximal", "malformed", "replay"};
    for (const auto& [drafter, sum] : by_drafter_) {
      std::printf("%-10s %6d rounds, mean accepted length %.2f, %d trees refused\n",
                  kNames[static_cast<int>(drafter)], sum.rounds, sum.mean_accepted(), sum.refused_trees);
    }
    std::printf("n-gram, T=0, 16 nodes and more: %d rounds, %d off the spine, %d compacted\n",
                ngram_greedy_wide_.rounds, ngram_greedy_wide_.off_spine_rounds,
                ngram_greedy_wide_.compacted_rounds);
    std::printf("pair gate: %zu of %zu cells, %d sequences, %zu failures, %.0f s, seed %llu\n", cells_,
                wanted, sequences_, failures_.size(), seconds, static_cast<unsigned long long>(seed));
  }

  void Write(const std::string& path, size_t wanted) const {
    std::ofstream(path) << absl::StrCat("{\"passed\": ", cells_ - std::min(cells_, failures_.size()),
                                        ", \"failed\": [", absl::StrJoin(failures_, ", ", Quoted),
                                        "], \"skipped\": ", wanted - cells_, "}\n");
  }

  bool good() const { return failures_.empty() && cells_ > 0; }

 private:
  static void Quoted(std::string* out, const std::string& text) {
    absl::StrAppend(out, "\"");
    for (const char c : text) {
      out->push_back(c == '"' || c == '\\' || static_cast<unsigned char>(c) < ' ' ? ' ' : c);
    }
    absl::StrAppend(out, "\"");
  }

  void Judge(const std::string& failure) {
    if (!failure.empty()) {
      std::printf("FAILED %s\n", failure.c_str());
      failures_.push_back(failure);
    }
  }

  std::mutex mutex_;
  size_t cells_ = 0;
  int sequences_ = 0;
  std::vector<std::string> failures_;
  GateResult ngram_greedy_wide_;
  std::map<GateDrafter, GateResult> by_drafter_;
};

int Main(int argc, char** argv) {
  const Arguments arguments = Parse(argc, argv);
  const Clock::time_point begin = Clock::now();
  std::vector<std::unique_ptr<GateWorld>> worlds;
  for (int job = 0; job < arguments.jobs; ++job) {
    auto world = GateWorld::Create({.target = arguments.target,
                                    .drafter = arguments.drafter,
                                    .device = arguments.device,
                                    .cut_seed = arguments.seed,
                                    .prompts = arguments.prompts});
    if (!world.ok()) {
      std::fprintf(stderr, "%s\n", world.status().ToString().c_str());
      return 1;
    }
    worlds.push_back(*std::move(world));
  }
  std::vector<GateCell> cells = Product();
  std::vector<GateCell> controlled =
      Controlled(cells, static_cast<int>(Gate(*worlds.front(), arguments.seed).controls().size()));
  std::mt19937_64 random(arguments.seed);
  if (!arguments.exhaustive) {
    KeepAFew(cells, arguments.runs, random);
    KeepAFew(controlled, arguments.runs / 4, random);
  }
  cells.insert(cells.end(), controlled.begin(), controlled.end());
  if (arguments.seconds > 0) {  // what a time limit leaves out is any cell
    std::shuffle(cells.begin(), cells.end(), random);
  }
  Totals totals;
  std::atomic<size_t> next = 0;
  const auto work = [&](GateWorld& world) {
    Gate gate(world, arguments.seed);
    if (&world == worlds.front().get() && gate.DistinctTexts(GateSampling::kTopP, 8) != 8) {
      totals.Fail("T=1: fewer than 8 distinct texts from 8 seeds");
    }
    for (size_t i = next++; i < cells.size(); i = next++) {
      if (arguments.seconds > 0 && Clock::now() - begin > std::chrono::seconds(arguments.seconds)) {
        break;
      }
      totals.Count(cells[i], gate.Run(cells[i]));
    }
  };
  std::vector<std::thread> threads;
  for (const std::unique_ptr<GateWorld>& world : worlds) {
    threads.emplace_back([&] { work(*world); });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }
  totals.CheckNgram();
  totals.Print(cells.size(), arguments.seed, std::chrono::duration<double>(Clock::now() - begin).count());
  if (!arguments.report.empty()) {
    totals.Write(arguments.report, cells.size());
  }
  return totals.good() ? 0 : 1;
}

}  // namespace
}  // namespace arborist::tests

int main(int argc, char** argv) { return arborist::tests::Main(argc, argv); }
