#include "coordinator/request_metrics.h"

#include <algorithm>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/metrics/buckets.h"

namespace arborist::coordinator {
namespace {

constexpr std::array<const char*, 4> kMethods = {"Generate", "Tokenize", "Detokenize", "GetModel"};
constexpr char kOtherCode[] = "OTHER";
// Each costs a histogram: the codes that a method's documentation names, and one for what should not happen.
const std::vector<absl::StatusCode> kGenerateCodes = {absl::StatusCode::kOk,
                                                      absl::StatusCode::kInvalidArgument,
                                                      absl::StatusCode::kUnimplemented,
                                                      absl::StatusCode::kNotFound,
                                                      absl::StatusCode::kResourceExhausted,
                                                      absl::StatusCode::kUnavailable,
                                                      absl::StatusCode::kDeadlineExceeded,
                                                      absl::StatusCode::kCancelled,
                                                      absl::StatusCode::kInternal};
const std::vector<absl::StatusCode> kOtherCodes = {absl::StatusCode::kOk, absl::StatusCode::kInvalidArgument,
                                                   absl::StatusCode::kUnavailable};
// In the order of FallbackReason.
constexpr std::array<const char*, 5> kFallbacks = {"drafter_unavailable", "drafter_silent", "drafter_fault",
                                                   "verifier_silent", "verifier_fault"};

std::map<std::string, HistogramTally*> Durations(MetricRegistry& registry, const char* method,
                                                 const std::vector<absl::StatusCode>& codes) {
  std::map<std::string, HistogramTally*> durations;
  const auto add = [&](const std::string& code) {
    durations[code] = &registry.AddTally("request_duration_seconds", "From a call's arrival to its end.",
                                         kRequestSeconds, {{"method", method}, {"code", code}});
  };
  for (const absl::StatusCode code : codes) {
    add(absl::StatusCodeToString(code));
  }
  add(kOtherCode);
  return durations;
}

std::map<std::string, prometheus::Counter*> Counters(MetricRegistry& registry, const char* name,
                                                     const char* help, const char* label,
                                                     const std::vector<const char*>& values) {
  std::map<std::string, prometheus::Counter*> counters;
  for (const char* value : values) {
    counters[value] = &registry.AddCounter(name, help, {{label, value}});
  }
  return counters;
}

prometheus::Gauge& Connected(MetricRegistry& registry, const std::string& peer) {
  return registry.AddGauge(absl::StrCat(peer, "_connected"),
                           absl::StrCat("1 while a ", peer, " can be used, else 0."));
}

}  // namespace

bool IsOverByDeadline(absl::Time now, absl::Time arrived, absl::Time deadline) {
  return now >= deadline - absl::Milliseconds(5) - (deadline - arrived) / 100;
}

RequestMetrics::RequestMetrics(MetricRegistry& registry)
    : requests_(registry, "requests_total", "Generate calls that ended."),
      first_token_(registry.AddTally("time_to_first_token_seconds",
                                     "From a request's arrival to its first tokens.", kRequestSeconds)),
      inter_token_(registry.AddTally("inter_token_latency_seconds",
                                     "Of each token after the first ones: its chunk's interval, divided by "
                                     "the chunk's tokens.",
                                     kTokenSeconds)),
      chunk_interval_(registry.AddTally("stream_chunk_interval_seconds",
                                        "From one chunk of tokens to the next.", kTokenSeconds)),
      queue_(registry.AddTally("request_queue_duration_seconds",
                               "Time that an answer waited for admission or for steps.", kRequestSeconds)),
      prompt_tokens_(registry.AddCounter("prompt_tokens_total", "Tokens of prompts.")),
      generated_tokens_(registry.AddCounter("generated_tokens_total", "Tokens sent to clients.")),
      in_flight_(registry.AddGauge("requests_in_flight", "Answers that Generate calls wait for.")),
      awaiting_(registry.AddGauge("requests_awaiting_first_token", "Generate calls that have no token yet.")),
      rejected_(Counters(registry, "admission_rejected_total", "Generate calls that were not taken.",
                         "reason", {"queue_full", "no_verifier", "verifier_queue_full"})),
      cancelled_(Counters(registry, "cancelled_requests_total",
                          "Generate calls that did not reach their end.", "cause",
                          {"client_gone", "deadline", "slow_reader"})),
      rounds_(registry.AddCounter("speculative_rounds_total", "Rounds that verified a tree.")),
      draft_nodes_(registry.AddCounter("speculative_draft_nodes_total", "Drafted nodes that were verified.")),
      accepted_(
          registry.AddCounter("speculative_accepted_tokens_total", "Drafted nodes that were accepted.")),
      emitted_(registry.AddCounter("speculative_emitted_tokens_total",
                                   "Tokens of rounds that verified a tree, the target's own included.")),
      accepted_length_(registry.AddTally("speculative_accepted_length",
                                         "Drafted nodes that a round accepted.", kSmallCounts)),
      tree_nodes_(
          registry.AddTally("speculative_tree_nodes", "Drafted nodes of a verified tree.", kPowersOfTwo)),
      acceptance_ratio_(registry.AddTally("request_acceptance_ratio",
                                          "Of an answer that drafted: accepted nodes per verified one.",
                                          kRatios)),
      detokenize_(registry.AddTally("detokenize_duration_seconds", "Time to turn a chunk's tokens into text.",
                                    kShortSeconds)),
      verifier_connected_(Connected(registry, "verifier")),
      drafter_connected_(Connected(registry, "drafter")) {
  for (size_t method = 0; method < kMethods.size(); ++method) {
    durations_[method] = Durations(registry, kMethods[method], method == 0 ? kGenerateCodes : kOtherCodes);
  }
  for (int i = 0; i <= kDepths; ++i) {
    accepted_by_depth_[static_cast<size_t>(i)] = &registry.AddCounter(
        "speculative_accepted_by_depth_total", "Drafted nodes that were accepted, by their depth.",
        {{"depth", i == kDepths ? "deeper" : absl::StrCat(i + 1)}});
  }
  for (size_t i = 0; i < kFallbacks.size(); ++i) {
    fallbacks_[i] = &registry.AddCounter("speculative_fallback_total",
                                         "Times that a request left or did not get the path it was to take.",
                                         {{"reason", kFallbacks[i]}});
  }
}

void RequestMetrics::CallEnded(Method method, absl::StatusCode code, double seconds) {
  if (method == Method::kGenerate) {
    requests_.Count(code);
  }
  const auto& durations = durations_[static_cast<size_t>(method)];
  const auto known = durations.find(absl::StatusCodeToString(code));
  (known == durations.end() ? durations.at(kOtherCode) : known->second)->Observe(seconds);
}

void RequestMetrics::GenerateFailed(const absl::Status& status, const std::string& reason,
                                    const std::string& origin, bool deadline_passed) {
  if (reason == "QUEUE_FULL") {
    rejected_.at(origin == "verifier" ? "verifier_queue_full" : "queue_full")->Increment();
  } else if (reason == "NO_VERIFIER") {
    rejected_.at("no_verifier")->Increment();
  } else if (reason == "SLOW_READER") {
    cancelled_.at("slow_reader")->Increment();
  } else if (status.code() == absl::StatusCode::kDeadlineExceeded) {
    cancelled_.at("deadline")->Increment();
  } else if (status.code() == absl::StatusCode::kCancelled) {
    cancelled_.at(deadline_passed ? "deadline" : "client_gone")->Increment();
  }
}

void RequestMetrics::MoreTokens(double seconds, int64_t tokens) {
  chunk_interval_.Observe(seconds);
  inter_token_.Observe(seconds / static_cast<double>(tokens), tokens);
}

void RequestMetrics::Answered(double queue_seconds, int64_t verified_nodes, int64_t accepted_nodes) {
  queue_.Observe(queue_seconds);
  if (verified_nodes > 0) {
    acceptance_ratio_.Observe(static_cast<double>(accepted_nodes) / static_cast<double>(verified_nodes));
  }
}

void RequestMetrics::Run(const TokenRun& run) {
  if (run.verified_nodes == 0) {
    return;
  }
  rounds_.Increment();
  draft_nodes_.Increment(run.verified_nodes);
  accepted_.Increment(run.accepted);
  emitted_.Increment(static_cast<double>(run.tokens.size()));
  accepted_length_.Observe(run.accepted);
  tree_nodes_.Observe(run.verified_nodes);
  for (int depth = 0; depth < run.accepted; ++depth) {
    accepted_by_depth_[static_cast<size_t>(std::min(depth, kDepths))]->Increment();
  }
}

void RequestMetrics::SetPeers(bool verifier, bool drafter) {
  verifier_connected_.Set(verifier ? 1 : 0);
  drafter_connected_.Set(drafter ? 1 : 0);
}

}  // namespace arborist::coordinator
