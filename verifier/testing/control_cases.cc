#include "verifier/testing/control_cases.h"

#include <algorithm>
#include <iterator>
#include <numeric>
#include <random>

namespace arborist::verifier {
namespace {

std::vector<TokenId> SomeIds(int vocabulary, int count, std::mt19937_64& random) {
  std::vector<int32_t> all(static_cast<size_t>(vocabulary));
  std::iota(all.begin(), all.end(), 0);
  std::shuffle(all.begin(), all.end(), random);
  std::vector<TokenId> ids;
  for (int i = 0; i < count; ++i) {
    ids.push_back(TokenId{all[static_cast<size_t>(i)]});
  }
  std::sort(ids.begin(), ids.end());
  return ids;
}

float Between(float low, float high, std::mt19937_64& random) {
  return std::uniform_real_distribution<float>(low, high)(random);
}

}  // namespace

std::vector<ControlCase> ControlCases(int vocabulary, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::vector<ControlCase> cases;
  const auto add = [&cases](const std::string& name) -> ControlCase& {
    cases.push_back({.name = name, .controls = {}, .stop_ids = {}});
    return cases.back();
  };
  ControlCase all{.name = "Everything", .controls = {}, .stop_ids = {}};
  add("Repetition").controls.repetition_penalty = all.controls.repetition_penalty = Between(1.2f, 2, random);
  add("Rewarded").controls.repetition_penalty = Between(0.5f, 0.9f, random);
  add("Presence").controls.presence_penalty = all.controls.presence_penalty = Between(0.5f, 2, random);
  add("Frequency").controls.frequency_penalty = all.controls.frequency_penalty = Between(0.3f, 2, random);
  for (const TokenId id : SomeIds(vocabulary, std::min(vocabulary / 3, kMaxLogitBiases), random)) {
    all.controls.logit_bias.push_back({.token = id, .bias = Between(-6, 6, random)});
  }
  add("Bias").controls.logit_bias = all.controls.logit_bias;
  const std::vector<TokenId> allowed = SomeIds(vocabulary, vocabulary / 2, random);
  add("Allowed").controls.allowed_token_ids = allowed;
  all.stop_ids = SomeIds(vocabulary, std::min(vocabulary / 10, kMaxStopIds), random);
  std::set_union(allowed.begin(), allowed.end(), all.stop_ids.begin(), all.stop_ids.end(),
                 std::back_inserter(all.controls.allowed_token_ids));
  all.controls.min_tokens = 9;
  ControlCase& held = add("MinTokens");
  held.stop_ids = all.stop_ids;
  held.controls.min_tokens = 21;
  ControlCase& longer = add("NeverStops");
  longer.stop_ids = all.stop_ids;
  longer.controls.min_tokens = 1 << 20;  // as many as there are
  add("TellTop").controls.top_log_probs = all.controls.top_log_probs = 5;
  add("TellTopTwenty").controls.top_log_probs = 20;
  add("TellPrompt").controls.prompt_log_probs = all.controls.prompt_log_probs = true;
  cases.push_back(all);
  return cases;
}

}  // namespace arborist::verifier
