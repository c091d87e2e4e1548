#include "verifier/verify_codec.h"

#include <bit>
#include <cmath>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/protocol.h"
#include "common/rpc/status_bridge.h"
#include "common/rpc/tree_codec.h"
#include "verifier/field_checks.h"
#include "verifier/sampling_codec.h"

namespace arborist::verifier {
namespace {

constexpr size_t kMaxRequestIdBytes = 128;
constexpr uint32_t kMaxSamples = 1024;
constexpr int kMaxMergedTokens = 64;

absl::Status Mismatch(const char* reason, const std::string& field, const std::string& value,
                      const std::string& expected) {
  return ErrorWithReason(absl::StatusCode::kFailedPrecondition, reason,
                         absl::StrCat(field, "=", value, ", expected ", expected));
}

absl::Status CheckProjection(const char* field, const std::string& hash, const VerifierInfo& info) {
  if (hash.empty() || hash == info.projection_hash) {
    return absl::OkStatus();
  }
  return Mismatch(
      reason::kProjectionMismatch, field, hash,
      info.projection_hash.empty() ? "empty: this verifier has no projection" : info.projection_hash);
}

absl::Status CheckPeer(const v1::Open& open, const VerifierInfo& info) {
  const v1::Sequence& sequence = open.sequence();
  if (sequence.protocol_version() != kProtocolVersion) {
    return Mismatch(reason::kProtocolVersionMismatch, "sequence.protocol_version",
                    absl::StrCat(sequence.protocol_version()), absl::StrCat(kProtocolVersion));
  }
  if (sequence.fingerprint() != info.fingerprint) {
    return Mismatch(reason::kFingerprintMismatch, "sequence.fingerprint", sequence.fingerprint(),
                    info.fingerprint);
  }
  RETURN_IF_ERROR(CheckProjection("projection_hash", open.projection_hash(), info));
  return CheckProjection("drafter_projection_hash", open.drafter_projection_hash(), info);
}

absl::Status CheckKey(const v1::Sequence& sequence) {
  const std::string& id = sequence.request_id();
  bool printable = !id.empty() && id.size() <= kMaxRequestIdBytes;
  for (const char c : id) {
    printable = printable && c > ' ' && c <= '~';
  }
  if (!printable) {
    return FieldError("sequence.request_id", absl::StrCat("(", id.size(), " bytes)"),
                      "1 to 128 bytes of printable ASCII");
  }
  RETURN_IF_ERROR(Range("sequence.sample_index", sequence.sample_index(),
                        sequence.sample_index() < kMaxSamples, absl::StrCat("a value below ", kMaxSamples)));
  return Range("sequence.epoch", static_cast<double>(sequence.epoch()), sequence.epoch() >= 1,
               "a value >= 1");
}

absl::Status CheckLengths(const v1::Sequence& sequence, const VerifierInfo& info) {
  if (sequence.prompt().empty()) {
    return FieldError("sequence.prompt", "(0 tokens)", "at least 1 token");
  }
  const int64_t tokens = int64_t{sequence.prompt_size()} + sequence.output_so_far_size();
  if (tokens >= info.context_length) {
    return FieldError("sequence.prompt", absl::StrCat("(", tokens, " tokens with output_so_far)"),
                      absl::StrCat("fewer than the context length ", info.context_length));
  }
  if (sequence.output_so_far_size() >= sequence.sampling().max_tokens()) {
    return FieldError("sequence.output_so_far", absl::StrCat("(", sequence.output_so_far_size(), " tokens)"),
                      absl::StrCat("fewer than max_tokens ", sequence.sampling().max_tokens()));
  }
  RETURN_IF_ERROR(CheckIds("sequence.prompt", sequence.prompt(), info.vocabulary_size));
  return CheckIds("sequence.output_so_far", sequence.output_so_far(), info.vocabulary_size);
}

v1::FinishReason EncodeFinishReason(FinishReason reason) {
  switch (reason) {
    case FinishReason::kNone:
      return v1::FINISH_REASON_UNSPECIFIED;
    case FinishReason::kStopId:
      return v1::FINISH_REASON_STOP_ID;
    case FinishReason::kMaxTokens:
      return v1::FINISH_REASON_MAX_TOKENS;
    case FinishReason::kContextLimit:
      return v1::FINISH_REASON_CONTEXT_LIMIT;
    case FinishReason::kConstraint:
      return v1::FINISH_REASON_CONSTRAINT;
  }
  return v1::FINISH_REASON_UNSPECIFIED;
}

v1::ProgressState EncodeState(ProgressState state) {
  switch (state) {
    case ProgressState::kQueued:
      return v1::PROGRESS_STATE_QUEUED;
    case ProgressState::kPrefill:
      return v1::PROGRESS_STATE_PREFILL;
    case ProgressState::kWaiting:
      return v1::PROGRESS_STATE_WAITING;
    case ProgressState::kVerify:
      return v1::PROGRESS_STATE_VERIFY;
  }
  return v1::PROGRESS_STATE_UNSPECIFIED;
}

// One list a token.
void FillTopLogProbs(const Committed& committed, v1::Committed& message) {
  const size_t k = committed.top_log_probs.size() / committed.tokens.size();
  for (size_t i = 0; i < committed.tokens.size() && k > 0; ++i) {
    v1::TopLogProbs& list = *message.add_top_log_probs();
    for (size_t j = 0; j < k; ++j) {
      v1::TokenLogProb& entry = *list.add_tokens();
      entry.set_token_id(Raw(committed.top_log_probs[i * k + j].token));
      entry.set_log_prob(committed.top_log_probs[i * k + j].log_prob);
    }
  }
}

void FillFeatures(int32_t first_position, int32_t rows, const std::vector<uint16_t>& features,
                  v1::Features& message) {
  static_assert(std::endian::native == std::endian::little, "the wire is little endian");
  message.set_first_position(first_position);
  message.set_row_count(rows);
  message.set_rows(features.data(), features.size() * sizeof(uint16_t));
}

}  // namespace

absl::StatusOr<OpenArgs> DecodeOpen(const v1::Open& open, const VerifierInfo& info) {
  if (!open.has_sequence()) {
    return FieldError("sequence", "unset", "a sequence");
  }
  const v1::Sequence& sequence = open.sequence();
  RETURN_IF_ERROR(CheckPeer(open, info));
  RETURN_IF_ERROR(CheckKey(sequence));
  if (!sequence.has_sampling()) {
    return FieldError("sequence.sampling", "unset", "resolved sampling");
  }
  const v1::Sampling& sampling = sequence.sampling();
  RETURN_IF_ERROR(CheckSampling(sampling, info.vocabulary_size));
  RETURN_IF_ERROR(CheckLengths(sequence, info));
  RETURN_IF_ERROR(Range("sequence.mode", sequence.mode(), v1::SpeculationMode_IsValid(sequence.mode()),
                        "a SpeculationMode"));
  RETURN_IF_ERROR(Range("sequence.tree_nodes", sequence.tree_nodes(),
                        sequence.tree_nodes() >= 0 && sequence.tree_nodes() <= info.max_tree_nodes,
                        absl::StrCat("a value in [0, ", info.max_tree_nodes, "]")));
  RETURN_IF_ERROR(Range("sequence.priority", sequence.priority(),
                        sequence.priority() >= -100 && sequence.priority() <= 100, "a value in [-100, 100]"));
  RETURN_IF_ERROR(Range("feature_window", open.feature_window(),
                        open.feature_window() >= 0 && open.feature_window() <= info.context_length,
                        absl::StrCat("a value in [0, ", info.context_length, "]")));
  OpenArgs args;
  args.key = {.request_id = sequence.request_id(), .sample_index = sequence.sample_index()};
  args.epoch = sequence.epoch();
  args.prompt = DecodeTokens(sequence.prompt());
  args.output_so_far = DecodeTokens(sequence.output_so_far());
  args.sampling = {.temperature = sampling.temperature(),
                   .top_k = sampling.top_k(),
                   .top_p = sampling.top_p() == 0 ? 1.0f : sampling.top_p(),
                   .min_p = sampling.min_p(),
                   .seed = sampling.seed(),
                   .sample_index = sequence.sample_index()};
  args.controls = DecodeControls(sampling);
  args.stop_ids = DecodeTokens(sampling.stop_ids());
  args.max_tokens = sampling.max_tokens();
  args.priority = sequence.priority();
  args.tree_nodes = sequence.tree_nodes();
  args.automatic =
      sequence.mode() == v1::SPECULATION_MODE_AUTO || sequence.mode() == v1::SPECULATION_MODE_UNSPECIFIED;
  args.feature_window = open.feature_window();
  args.projection_hash = open.projection_hash();
  args.drafter_projection_hash = open.drafter_projection_hash();
  return args;
}

absl::Status CheckDraftSeconds(double seconds) {
  return Range("tree.draft_seconds", seconds, std::isfinite(seconds) && seconds >= 0, "a finite value >= 0");
}

v1::VerifyResponse EncodeCommitted(const Committed& committed) {
  v1::VerifyResponse response;
  v1::Committed& message = *response.mutable_committed();
  message.set_epoch(committed.epoch);
  message.set_round(committed.round);
  message.set_last(committed.last);
  message.set_first_position(committed.first_position);
  EncodeTokens(committed.tokens, *message.mutable_token_ids());
  message.mutable_log_probs()->Add(committed.log_probs.begin(), committed.log_probs.end());
  FillTopLogProbs(committed, message);
  message.set_verified_nodes(committed.verified_nodes);
  message.set_cut_nodes(committed.cut_nodes);
  message.set_finish_reason(EncodeFinishReason(committed.finish_reason));
  message.set_next_budget(committed.next_budget);
  message.set_queue_seconds(committed.queue_seconds);
  message.set_verify_seconds(committed.verify_seconds);
  message.set_compacted(committed.compacted);
  if (committed.feature_rows > 0) {
    FillFeatures(committed.feature_position, committed.feature_rows, committed.features,
                 *message.mutable_features());
  }
  return response;
}

v1::VerifyResponse EncodeFeatures(int32_t first_position, int32_t rows,
                                  const std::vector<uint16_t>& features) {
  v1::VerifyResponse response;
  FillFeatures(first_position, rows, features, *response.mutable_features());
  return response;
}

v1::VerifyResponse EncodePromptLogProbs(int32_t first_position, const std::vector<float>& log_probs) {
  v1::VerifyResponse response;
  v1::PromptLogProbs& message = *response.mutable_prompt_log_probs();
  message.set_first_position(first_position);
  message.mutable_log_probs()->Add(log_probs.begin(), log_probs.end());
  return response;
}

v1::VerifyResponse EncodeProgress(ProgressState state, int prompt_tokens_done,
                                  std::optional<int> next_budget) {
  v1::VerifyResponse response;
  response.mutable_progress()->set_state(EncodeState(state));
  if (next_budget.has_value()) {
    response.mutable_progress()->set_next_budget(*next_budget);
  }
  response.mutable_progress()->set_prompt_tokens_done(prompt_tokens_done);
  return response;
}

bool MergeDecoded(v1::VerifyResponse& tail, v1::VerifyResponse& next) {
  if (!tail.has_committed() || !next.has_committed()) {
    return false;
  }
  v1::Committed& a = *tail.mutable_committed();
  const v1::Committed& b = next.committed();
  const bool same_decode = a.epoch() == b.epoch() && a.round() == b.round() && !a.last() &&
                           a.first_position() + a.token_ids_size() == b.first_position() &&
                           a.token_ids_size() + b.token_ids_size() <= kMaxMergedTokens;
  const bool features_join = a.has_features() == b.has_features() &&
                             (!a.has_features() || a.features().first_position() + a.features().row_count() ==
                                                       b.features().first_position());
  if (!same_decode || !features_join) {
    return false;
  }
  a.set_last(b.last());
  a.mutable_token_ids()->MergeFrom(b.token_ids());
  a.mutable_log_probs()->MergeFrom(b.log_probs());
  a.mutable_top_log_probs()->MergeFrom(b.top_log_probs());
  a.set_finish_reason(b.finish_reason());
  a.set_next_budget(b.next_budget());
  a.set_queue_seconds(a.queue_seconds() + b.queue_seconds());
  a.set_verify_seconds(a.verify_seconds() + b.verify_seconds());
  if (a.has_features()) {
    a.mutable_features()->set_row_count(a.features().row_count() + b.features().row_count());
    a.mutable_features()->mutable_rows()->append(b.features().rows());
  }
  return true;
}

bool MergePromptLogProbs(v1::VerifyResponse& tail, const v1::VerifyResponse& next) {
  if (!tail.has_prompt_log_probs() || !next.has_prompt_log_probs()) {
    return false;
  }
  v1::PromptLogProbs& a = *tail.mutable_prompt_log_probs();
  const v1::PromptLogProbs& b = next.prompt_log_probs();
  if (a.first_position() + a.log_probs_size() != b.first_position() ||
      static_cast<size_t>(a.log_probs_size() + b.log_probs_size()) > kMaxPromptLogProbs) {
    return false;
  }
  a.mutable_log_probs()->MergeFrom(b.log_probs());
  return true;
}

}  // namespace arborist::verifier
