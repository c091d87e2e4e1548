#pragma once

#include <cstdint>
#include <map>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "absl/status/statusor.h"
#include "tests/exactness/gate_world.h"
#include "tests/exactness/round_driver.h"
#include "verifier/testing/control_cases.h"

namespace arborist::tests {

// The exactness gate: every cell of {sampling} x {budget or chain} x {drafter} x {situation} must write what
// plain decoding writes, and must really have speculated.

// T = 0; T = 0.7; T = 1 with top-p 0.9; T = 1 with top-k 4; T = 1 with min-p 0.1.
enum class GateSampling { kGreedy, kWarm, kTopP, kTopK, kMinP };
enum class GateDrafter { kDFlash, kNgram, kRandom, kStale, kMaximal, kMalformed, kReplay };
enum class Situation {
  kAlone,
  kThreeMixed,  // three sequences in a step, with prompt chunks
  kEightMixed,
  kCut,  // trees cut to random prefixes
  kKilledBeforeTree,
  kKilledAfterTree,
  kKilledBeforeForward,
  kResumed,  // on another verifier after half of the tokens
};

inline constexpr GateSampling kSamplings[] = {GateSampling::kGreedy, GateSampling::kWarm, GateSampling::kTopP,
                                              GateSampling::kTopK, GateSampling::kMinP};
inline constexpr int kChain = -7;  // a budget: a chain of 7
inline constexpr int kBudgets[] = {1, 3, 7, 8, 16, 31, 64, kChain};
inline constexpr Situation kSituations[] = {Situation::kAlone,
                                            Situation::kThreeMixed,
                                            Situation::kEightMixed,
                                            Situation::kCut,
                                            Situation::kKilledBeforeTree,
                                            Situation::kKilledAfterTree,
                                            Situation::kKilledBeforeForward,
                                            Situation::kResumed};

struct GateCell {
  GateSampling sampling;
  int budget;
  GateDrafter drafter;
  Situation situation;
  int control = -1;  // index of Gate::controls(), -1: none
};

std::string Name(const GateCell& cell);  // but for the control

// What a cell did, summed over its sequences; a failure is a sentence, empty if all is well.
struct CellReport {
  std::string failure;
  GateResult sum;
  int sequences = 0;
};

// Runs cells over one world. Plain answers are computed once a request and kept.
class Gate {
 public:
  static constexpr int kTokens = 64;

  // `seed` decides prompts, sampling seeds and every hostile choice; it is part of each failure's text.
  // Answers have `tokens` tokens.
  Gate(GateWorld& world, uint64_t seed, int tokens = kTokens);

  CellReport Run(const GateCell& cell);

  // Every control alone and all together, drawn from the seed.
  const std::vector<verifier::ControlCase>& controls() const { return controls_; }

  // Of `requests` requests, how many have other plain text without the control.
  int ControlledTexts(GateSampling sampling, int control, int requests);

  // Of `requests` requests, how many have other plain text without the sampling's top-k, top-p and min-p.
  int TruncatedTexts(GateSampling sampling, int requests);

  // Requests of a sampling whose text differs from request to request: at least `count` distinct texts must
  // exist.
  int DistinctTexts(GateSampling sampling, int seeds);

 private:
  GateRequest Request(GateSampling sampling, int control, int index) const;
  const GateResult& Plain(GateSampling sampling, int control, int index);
  std::unique_ptr<drafter::Proposer> OwnProposer(const GateCell& cell, int index);

  GateWorld& world_;
  uint64_t seed_;
  int tokens_;
  std::vector<verifier::ControlCase> controls_;
  std::map<std::tuple<int, int, int>, GateResult> plain_;
  int64_t requests_ = 0;
};

// How many of fifteen cells of the replay drafter, which accept long and branching paths, fail in this world;
// `few`: of two with shorter answers and smaller steps.
absl::StatusOr<int> RedCells(WorldOptions options, bool few = false);

}  // namespace arborist::tests
