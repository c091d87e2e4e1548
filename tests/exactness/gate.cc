#include "tests/exactness/gate.h"

#include <algorithm>
#include <cstdlib>
#include <random>
#include <set>
#include <thread>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "tests/exactness/hostile_proposers.h"
#include "verifier/testing/constraint_cases.h"

namespace arborist::tests {
namespace {

constexpr absl::string_view kSamplingNames[] = {"greedy", "T=0.7", "T=1 top-p 0.9", "T=1 top-k 4",
                                                "T=1 min-p 0.1"};
constexpr absl::string_view kDrafterNames[] = {"DFlash",  "n-gram",    "random", "stale",
                                               "maximal", "malformed", "replay"};
constexpr absl::string_view kSituationNames[] = {
    "alone",  "3 mixed", "8 mixed", "cut", "killed before tree", "killed after tree", "killed before forward",
    "resumed"};

kernels::SamplingParams ParamsOf(GateSampling sampling) {
  switch (sampling) {
    case GateSampling::kGreedy:
      return {.temperature = 0};
    case GateSampling::kWarm:
      return {.temperature = 0.7f};
    case GateSampling::kTopP:
      return {.temperature = 1, .top_p = 0.9f};
    case GateSampling::kTopK:
      return {.temperature = 1, .top_k = 4};
    case GateSampling::kMinP:
      return {.temperature = 1, .min_p = 0.1f};
  }
  return {};
}

int SequencesOf(Situation situation) {
  return situation == Situation::kThreeMixed ? 3 : situation == Situation::kEightMixed ? 8 : 1;
}

KillPoint KillPointOf(Situation situation) {
  switch (situation) {
    case Situation::kKilledBeforeTree:
      return KillPoint::kBeforeTree;
    case Situation::kKilledAfterTree:
      return KillPoint::kAfterTreeSent;
    case Situation::kKilledBeforeForward:
      return KillPoint::kBeforeTokensForwarded;
    default:
      return KillPoint::kNever;
  }
}

// Equal ids, and log-probabilities equal to the last bit: those of tokens, of top lists and, at every
// attachment, of the prompt.
std::string Compare(const GateResult& plain, const absl::StatusOr<GateResult>& result, int tokens) {
  if (!result.ok()) {
    return result.status().ToString();
  }
  const bool stopped = plain.finish_reason == verifier::FinishReason::kStopId ||
                       plain.finish_reason == verifier::FinishReason::kConstraint;
  const size_t expected = stopped ? plain.tokens.size() : static_cast<size_t>(tokens);
  if (plain.tokens.size() != expected || result->tokens.size() != expected) {
    return absl::StrCat(result->tokens.size(), " tokens came out, expected ", expected,
                        ", plain decoding has ", plain.tokens.size());
  }
  for (size_t i = 0; i < plain.tokens.size(); ++i) {
    if (result->tokens[i] != plain.tokens[i]) {
      return absl::StrCat("token ", i, " is ", Raw(result->tokens[i]), ", plain decoding writes ",
                          Raw(plain.tokens[i]));
    }
    if (!(result->log_probs[i] == plain.log_probs[i])) {
      return absl::StrCat("log-probability ", i, " is ", result->log_probs[i], ", plain decoding has ",
                          plain.log_probs[i]);
    }
  }
  if (result->top_log_probs != plain.top_log_probs) {
    return "top lists differ from plain decoding's";
  }
  const size_t prompt = plain.prompt_log_probs.size() / static_cast<size_t>(plain.attaches);
  for (size_t i = 0; i < result->prompt_log_probs.size(); ++i) {
    if (!(result->prompt_log_probs[i] == plain.prompt_log_probs[i % prompt])) {
      return absl::StrCat("log-probability ", i % prompt, " of the prompt is ", result->prompt_log_probs[i],
                          ", plain decoding has ", plain.prompt_log_probs[i % prompt]);
    }
  }
  return result->prompt_log_probs.size() == prompt * static_cast<size_t>(result->attaches)
             ? ""
             : "an attachment has other log-probabilities of the prompt";
}

// Did the sequence really speculate?
std::string CheckSpeculated(const GateCell& cell, const GateResult& result) {
  if (cell.drafter == GateDrafter::kMalformed) {
    return result.refused_trees > 0 ? "" : "no malformed tree was refused";
  }
  if (result.refused_trees > 0) {
    return absl::StrCat(result.refused_trees, " well-formed trees were refused");
  }
  if (result.rounds == 0) {
    return "no tree was verified";
  }
  // The n-gram drafter may have nothing to say, a random cut may leave the root alone.
  const bool may_be_empty = cell.drafter == GateDrafter::kNgram || cell.situation == Situation::kCut;
  const double share = static_cast<double>(result.verifying_rounds) / result.rounds;
  if (!may_be_empty && share < 0.95) {
    return absl::StrCat("only ", share, " of the rounds verified a drafted node");
  }
  if (result.verified_nodes == 0 && !may_be_empty) {
    return "no drafted node was verified";
  }
  const bool is_long = result.rounds >= 8;
  if (cell.situation == Situation::kCut && cell.budget > 1 && is_long && result.cut_nodes == 0) {
    return "no tree was cut";
  }
  return "";
}

}  // namespace

std::string Name(const GateCell& cell) {
  return absl::StrCat(kSamplingNames[static_cast<int>(cell.sampling)], " / ",
                      cell.budget == kChain ? "chain" : absl::StrCat("tree ", cell.budget), " / ",
                      kDrafterNames[static_cast<int>(cell.drafter)], " / ",
                      kSituationNames[static_cast<int>(cell.situation)]);
}

Gate::Gate(GateWorld& world, uint64_t seed, int tokens)
    : world_(world),
      seed_(seed),
      tokens_(tokens),
      controls_(verifier::ControlCases(world.vocabulary(), seed)) {
  for (const verifier::ConstraintCase& form : verifier::ConstraintCases()) {
    if (form.name == "WordsUntilAStop" || form.name == "LettersThatEndByThemselves" ||
        form.name == "BadWords") {
      controls_.push_back({.name = form.name,
                           .controls = form.controls,
                           .stop_ids = form.spec.stop_ids,
                           .constraint = verifier::CompileSmall(form.spec, world.vocabulary())});
    }
  }
}

GateRequest Gate::Request(GateSampling sampling, int control, int index) const {
  std::mt19937_64 random(seed_ * 977 + static_cast<uint64_t>(index));
  GateRequest request;
  // Lengths around the page and block boundaries; half of the prompt repeats a phrase, which n-grams can
  // find.
  static constexpr int kLengths[] = {1, 2, 40, 62, 63, 64, 65, 100, 126, 127, 128, 129, 150, 190};
  const int length = kLengths[random() % std::size(kLengths)];
  if (!world_.prompts().empty()) {
    // The beginning of real text: enough of it that the model knows what it reads.
    const std::vector<TokenId>& whole = world_.prompts()[random() % world_.prompts().size()];
    const size_t least = std::min<size_t>(24, whole.size());
    request.prompt.assign(whole.begin(), whole.begin() + least + random() % (whole.size() - least + 1));
  }
  std::vector<TokenId> phrase;
  for (int i = 0; i < 9; ++i) {
    phrase.push_back(TokenId{static_cast<int32_t>(random() % static_cast<uint64_t>(world_.vocabulary()))});
  }
  for (int i = 0; i < length && world_.prompts().empty(); ++i) {
    request.prompt.push_back(
        i % 18 < 9 ? phrase[i % 9]
                   : TokenId{static_cast<int32_t>(random() % static_cast<uint64_t>(world_.vocabulary()))});
  }
  request.sampling = ParamsOf(sampling);
  request.sampling.seed = random();
  request.sampling.sample_index = static_cast<uint32_t>(index % 3);
  request.max_tokens = tokens_;
  if (control >= 0) {
    request.controls = controls_[control].controls;
    request.controls.min_tokens = std::min(request.controls.min_tokens, tokens_);
    request.stop_ids = controls_[control].stop_ids;
    request.constraint = controls_[control].constraint;
  }
  return request;
}

const GateResult& Gate::Plain(GateSampling sampling, int control, int index) {
  const auto key = std::make_tuple(static_cast<int>(sampling), control, index);
  const auto found = plain_.find(key);
  if (found != plain_.end()) {
    return found->second;
  }
  GateRequest request = Request(sampling, control, index);
  request.id = absl::StrCat("plain-", ++requests_);
  absl::StatusOr<GateResult> plain = RunPlain(world_.verifier(), request);
  // An empty answer equals nothing, so a failure here fails every cell that needs it.
  return plain_[key] = plain.ok() ? *std::move(plain) : GateResult{};
}

int Gate::TruncatedTexts(GateSampling sampling, int requests) {
  int changed = 0;
  for (int i = 0; i < requests; ++i) {
    GateRequest request = Request(sampling, -1, i);
    const kernels::SamplingParams none;
    request.id = absl::StrCat("whole-", ++requests_);
    request.sampling.top_k = none.top_k;
    request.sampling.top_p = none.top_p;
    request.sampling.min_p = none.min_p;
    const absl::StatusOr<GateResult> whole = RunPlain(world_.verifier(), request);
    changed += whole.ok() && whole->tokens != Plain(sampling, -1, i).tokens ? 1 : 0;
  }
  return changed;
}

int Gate::ControlledTexts(GateSampling sampling, int control, int requests) {
  int changed = 0;
  for (int i = 0; i < requests; ++i) {
    changed += Plain(sampling, control, i).tokens != Plain(sampling, -1, i).tokens ? 1 : 0;
  }
  return changed;
}

int Gate::DistinctTexts(GateSampling sampling, int seeds) {
  std::set<std::vector<TokenId>> texts;
  GateRequest request = Request(sampling, -1, 0);
  for (int i = 0; i < seeds; ++i) {
    request.id = absl::StrCat("seed-", ++requests_);
    request.sampling.seed = seed_ + static_cast<uint64_t>(i);
    const absl::StatusOr<GateResult> plain = RunPlain(world_.verifier(), request);
    if (plain.ok()) {
      texts.insert(plain->tokens);
    }
  }
  return static_cast<int>(texts.size());
}

std::unique_ptr<drafter::Proposer> Gate::OwnProposer(const GateCell& cell, int index) {
  const uint64_t seed =
      seed_ * 31 + static_cast<uint64_t>(index) * 7 + static_cast<uint64_t>(cell.budget + 100);
  switch (cell.drafter) {
    case GateDrafter::kRandom:
      return NewHostileProposer(Hostility::kRandom, world_.vocabulary(), seed);
    case GateDrafter::kStale:
      return NewHostileProposer(Hostility::kStale, world_.vocabulary(), seed);
    case GateDrafter::kMaximal:
      return NewHostileProposer(Hostility::kMaximal, world_.vocabulary(), seed);
    case GateDrafter::kMalformed:
      return NewHostileProposer(Hostility::kMalformed, world_.vocabulary(), seed);
    case GateDrafter::kReplay: {
      std::vector<TokenId> truth = Request(cell.sampling, cell.control, index).prompt;
      const GateResult& plain = Plain(cell.sampling, cell.control, index);
      truth.insert(truth.end(), plain.tokens.begin(), plain.tokens.end());
      return NewReplayProposer(std::move(truth), world_.vocabulary(), seed);
    }
    case GateDrafter::kDFlash:
    case GateDrafter::kNgram:
      break;
  }
  return nullptr;
}

CellReport Gate::Run(const GateCell& cell) {
  const int sequences = SequencesOf(cell.situation);
  const int first = cell.drafter == GateDrafter::kNgram ? 3 : 0;
  verifier::Verifier& verifier = cell.situation == Situation::kCut ? world_.cutting() : world_.verifier();
  SpeculationPlan plan;
  plan.shape = cell.budget == kChain ? drafter::TreeShape::kChain : drafter::TreeShape::kTree;
  plan.nodes = std::abs(cell.budget);
  plan.kill = KillPointOf(cell.situation);
  plan.resume_on = cell.situation == Situation::kResumed ? &world_.elsewhere() : nullptr;

  std::vector<std::unique_ptr<drafter::Proposer>> own;
  std::vector<GateRequest> requests;
  for (int i = 0; i < sequences; ++i) {
    Plain(cell.sampling, cell.control, first + i);
    own.push_back(OwnProposer(cell, first + i));
    requests.push_back(Request(cell.sampling, cell.control, first + i));
    requests.back().id = absl::StrCat("cell-", ++requests_);
  }
  std::vector<absl::StatusOr<GateResult>> results(sequences, absl::UnknownError("did not run"));
  std::vector<std::thread> threads;
  for (int i = 0; i < sequences; ++i) {
    threads.emplace_back([&, i] {
      drafter::Proposer& proposer = own[i] != nullptr                      ? *own[i]
                                    : cell.drafter == GateDrafter::kDFlash ? world_.dflash()
                                                                           : world_.ngram();
      results[i] = RunSpeculative(verifier, proposer, requests[i], plan);
    });
  }
  for (std::thread& thread : threads) {
    thread.join();
  }

  CellReport report;
  for (int i = 0; i < sequences; ++i) {
    std::string failure = Compare(Plain(cell.sampling, cell.control, first + i), results[i], tokens_);
    if (failure.empty()) {
      failure = CheckSpeculated(cell, *results[i]);
      AddCounts(*results[i], report.sum);
      ++report.sequences;
    }
    if (!failure.empty() && report.failure.empty()) {
      report.failure = absl::StrCat(cell.control < 0 ? "" : controls_[cell.control].name + " / ", Name(cell),
                                    ", sequence ", i, ", seed ", seed_, ": ", failure);
    }
  }
  return report;
}

absl::StatusOr<int> RedCells(WorldOptions options, bool few) {
  options.one_verifier = true;
  if (few) {
    options.max_tree_nodes = 7;
    options.max_sequences = 1;
    options.max_rows = 9;
    options.max_context = 256;
  }
  ASSIGN_OR_RETURN(const std::unique_ptr<GateWorld> world, GateWorld::Create(options));
  Gate gate(*world, 5, few ? Gate::kTokens / 4 : Gate::kTokens);
  const std::vector<GateSampling> samplings =
      few ? std::vector{GateSampling::kWarm} : std::vector(std::begin(kSamplings), std::end(kSamplings));
  int red = 0;
  for (const GateSampling sampling : samplings) {
    for (const int budget : few ? std::vector{3, 7} : std::vector{7, 16, 31}) {
      red += gate.Run({sampling, budget, GateDrafter::kReplay, Situation::kAlone}).failure.empty() ? 0 : 1;
    }
  }
  return red;
}

}  // namespace arborist::tests
