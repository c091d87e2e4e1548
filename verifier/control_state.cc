#include "verifier/control_state.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/base/stop_choice.h"
#include "verifier/allowed_ids.h"
#include "verifier/control_lists.h"

namespace arborist::verifier {
namespace {

using kernels::LogitEntry;

absl::Status FieldError(absl::string_view field, double value, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(field, "=", value, ", expected ", expected));
}

absl::Status CheckIds(absl::string_view field, std::span<const TokenId> ids, int64_t vocabulary) {
  for (size_t i = 0; i < ids.size(); ++i) {
    if (Raw(ids[i]) < 0 || Raw(ids[i]) >= vocabulary) {
      return FieldError(absl::StrCat(field, "[", i, "]"), Raw(ids[i]),
                        absl::StrCat("an id in [0, ", vocabulary, ")"));
    }
  }
  return absl::OkStatus();
}

std::vector<TokenId> Sorted(std::span<const TokenId> ids) {
  std::vector<TokenId> sorted(ids.begin(), ids.end());
  std::sort(sorted.begin(), sorted.end());
  sorted.erase(std::unique(sorted.begin(), sorted.end()), sorted.end());
  return sorted;
}

absl::Status CheckBiases(std::span<const LogitBias> biases, int64_t vocabulary) {
  if (biases.size() > kMaxLogitBiases) {
    return FieldError("logit_bias count", static_cast<double>(biases.size()),
                      absl::StrCat("at most ", kMaxLogitBiases));
  }
  std::vector<TokenId> ids;
  for (size_t i = 0; i < biases.size(); ++i) {
    if (!std::isfinite(biases[i].bias)) {
      return FieldError(absl::StrCat("logit_bias[", i, "].bias"), biases[i].bias, "a finite value");
    }
    ids.push_back(biases[i].token);
  }
  RETURN_IF_ERROR(CheckIds("logit_bias", ids, vocabulary));
  const auto distinct = static_cast<double>(Sorted(ids).size());
  return distinct == static_cast<double>(ids.size())
             ? absl::OkStatus()
             : FieldError("logit_bias distinct ids", distinct, absl::StrCat(ids.size(), ", one a bias"));
}

absl::Status CheckSomethingIsLeft(const OpenArgs& args, int64_t vocabulary) {
  const SamplingControls& controls = args.controls;
  const std::vector<TokenId>& allowed = controls.allowed_token_ids;
  if (controls.min_tokens == 0 || StopsLeaveAChoice(args.stop_ids, allowed, vocabulary)) {
    return absl::OkStatus();
  }
  return FieldError("min_tokens", controls.min_tokens,
                    allowed.empty() ? "0, since every id of the vocabulary is a stop id"
                                    : "0, since allowed_token_ids holds nothing but stop ids");
}

bool Penalizes(const SamplingControls& controls) {
  return controls.repetition_penalty != 1 || controls.presence_penalty != 0 ||
         controls.frequency_penalty != 0;
}

}  // namespace

absl::Status CheckControls(const OpenArgs& args, int64_t vocabulary) {
  const SamplingControls& controls = args.controls;
  if (!std::isfinite(controls.repetition_penalty) || controls.repetition_penalty <= 0) {
    return FieldError("repetition_penalty", controls.repetition_penalty, "a finite value > 0");
  }
  if (!std::isfinite(controls.presence_penalty)) {
    return FieldError("presence_penalty", controls.presence_penalty, "a finite value");
  }
  if (!std::isfinite(controls.frequency_penalty)) {
    return FieldError("frequency_penalty", controls.frequency_penalty, "a finite value");
  }
  RETURN_IF_ERROR(CheckBiases(controls.logit_bias, vocabulary));
  RETURN_IF_ERROR(CheckIds("allowed_token_ids", controls.allowed_token_ids, vocabulary));
  if (controls.min_tokens < 0 || controls.min_tokens > args.max_tokens) {
    return FieldError("min_tokens", controls.min_tokens,
                      absl::StrCat("a value in [0, max_tokens ", args.max_tokens, "]"));
  }
  if (controls.top_log_probs < 0 || controls.top_log_probs > kMaxTopLogProbs) {
    return FieldError("top_log_probs", controls.top_log_probs,
                      absl::StrCat("a value in [0, ", kMaxTopLogProbs, "]"));
  }
  if (args.stop_ids.size() > kMaxStopIds) {
    return FieldError("stop_ids count", static_cast<double>(args.stop_ids.size()),
                      absl::StrCat("at most ", kMaxStopIds));
  }
  RETURN_IF_ERROR(CheckIds("stop_ids", args.stop_ids, vocabulary));
  return CheckSomethingIsLeft(args, vocabulary);
}

std::unique_ptr<ControlState> ControlState::Create(const OpenArgs& args,
                                                   std::vector<std::unique_ptr<NodeMasks>> masks,
                                                   int64_t vocabulary, int64_t most_tokens) {
  const SamplingControls& controls = args.controls;
  const bool holds_back = controls.min_tokens > 0 && !args.stop_ids.empty();
  if (!controls.allowed_token_ids.empty()) {
    masks.push_back(std::make_unique<AllowedIds>(controls.allowed_token_ids, vocabulary));
  }
  if (!Penalizes(controls) && controls.logit_bias.empty() && masks.empty() && !holds_back &&
      controls.top_log_probs == 0) {
    return nullptr;
  }
  std::unique_ptr<ControlState> state(new ControlState());
  StepControls& step = state->step_;
  step.penalties = {.repetition = controls.repetition_penalty,
                    .presence = controls.presence_penalty,
                    .frequency = controls.frequency_penalty,
                    .entries = {}};
  step.counts_nodes = Penalizes(controls);
  step.top_log_probs = controls.top_log_probs;
  if (holds_back) {
    state->stop_ids_ = Sorted(args.stop_ids);
    const int64_t from = static_cast<int64_t>(args.prompt.size()) + controls.min_tokens;
    step.stops_from = static_cast<int32_t>(std::min<int64_t>(from, std::numeric_limits<int32_t>::max()));
  }
  state->masks_ = std::move(masks);
  for (const auto& mask : state->masks_) {
    state->mask_pointers_.push_back(mask.get());
  }
  const auto biases = static_cast<int64_t>(controls.logit_bias.size());
  state->history_.reserve(
      static_cast<size_t>(std::min(vocabulary, biases + (step.counts_nodes ? most_tokens : 0))));
  for (const LogitBias& bias : controls.logit_bias) {
    state->EntryOf(bias.token).bias = bias.bias;
  }
  // Without a repetition penalty the prompt's tokens count nowhere.
  for (const TokenId token :
       controls.repetition_penalty != 1 ? Sorted(args.prompt) : std::vector<TokenId>()) {
    state->EntryOf(token).occurred = 1;
  }
  state->Commit(args.output_so_far);
  return state;
}

void ControlState::Commit(std::span<const TokenId> tokens) {
  for (const TokenId token : step_.counts_nodes ? tokens : std::span<const TokenId>()) {
    LogitEntry& entry = EntryOf(token);
    entry.occurred = 1;
    ++entry.output_count;
  }
  for (const auto& mask : masks_) {
    mask->Commit(tokens);
  }
  step_.history = history_;
  step_.stop_ids = stop_ids_;
  step_.masks = mask_pointers_;
}

// A new one if the token has none.
LogitEntry& ControlState::EntryOf(TokenId token) {
  const auto at = std::lower_bound(
      history_.begin(), history_.end(), token,
      [](const LogitEntry& entry, TokenId wanted) { return Raw(entry.token) < Raw(wanted); });
  return at != history_.end() && at->token == token ? *at : *history_.insert(at, LogitEntry{.token = token});
}

}  // namespace arborist::verifier
