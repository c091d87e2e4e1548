// Open from the wire: whatever the verifier lets in keeps to every bound that the wire states, and whatever
// it refuses it refuses by name.
#include <google/protobuf/stubs/logging.h>

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>
#include <vector>

#include "common/base/check.h"
#include "common/rpc/protocol.h"
#include "common/rpc/status_bridge.h"
#include "tests/fuzz/message_mutator.h"
#include "verifier/constraint_codec.h"
#include "verifier/verify_codec.h"

namespace arborist::verifier {
namespace {

VerifierInfo Info() {
  VerifierInfo info;
  info.fingerprint = "f";
  info.projection_hash = "p";
  info.model_name = "m";
  info.vocabulary_size = 1000;
  info.hidden_size = 64;
  info.context_length = 512;
  info.max_tree_nodes = 64;
  info.max_sequences = 8;
  return info;
}

bool InVocabulary(const std::vector<TokenId>& ids, const VerifierInfo& info) {
  return std::all_of(ids.begin(), ids.end(),
                     [&](TokenId id) { return Raw(id) >= 0 && Raw(id) < info.vocabulary_size; });
}

void CheckAdmitted(const OpenArgs& args, const VerifierInfo& info) {
  Check(!args.key.request_id.empty() && args.key.request_id.size() <= 128 && args.key.sample_index < 1024,
        "key");
  Check(args.epoch >= 1, "epochs begin at 1");
  Check(!args.prompt.empty() && InVocabulary(args.prompt, info), "a prompt of the vocabulary");
  Check(InVocabulary(args.output_so_far, info) && InVocabulary(args.stop_ids, info), "ids of the vocabulary");
  Check(static_cast<int64_t>(args.prompt.size() + args.output_so_far.size()) < info.context_length, "room");
  Check(args.max_tokens >= 1 && args.output_so_far.size() < static_cast<size_t>(args.max_tokens),
        "tokens to write");
  Check(args.tree_nodes >= 0 && args.tree_nodes <= info.max_tree_nodes, "tree_nodes");
  Check(args.feature_window >= 0 && args.feature_window <= info.context_length, "feature_window");
  Check(args.priority >= -100 && args.priority <= 100, "priority");
  Check(args.projection_hash.empty() || args.projection_hash == info.projection_hash, "projection_hash");
  const kernels::SamplingParams& sampling = args.sampling;
  Check(std::isfinite(sampling.temperature) && sampling.temperature >= 0 && sampling.temperature <= 100,
        "temperature");
  Check(sampling.top_k >= 0 && sampling.top_k <= info.vocabulary_size, "top_k");
  Check(sampling.top_p > 0 && sampling.top_p <= 1, "top_p");
  Check(sampling.min_p >= 0 && sampling.min_p <= 1, "min_p");
  Check(args.stop_ids.size() <= kMaxStopIds, "stop_ids");
  const SamplingControls& controls = args.controls;
  Check(controls.repetition_penalty > 0 && controls.repetition_penalty <= 10, "repetition_penalty");
  Check(std::abs(controls.presence_penalty) <= 2 && std::abs(controls.frequency_penalty) <= 2, "penalties");
  Check(controls.logit_bias.size() <= kMaxLogitBiases, "logit_bias");
  std::vector<TokenId> biased;
  for (const LogitBias& bias : controls.logit_bias) {
    Check(std::abs(bias.bias) <= 100, "a bias");
    biased.push_back(bias.token);
  }
  for (const std::vector<TokenId>* ids : {&controls.allowed_token_ids, &std::as_const(biased)}) {
    Check(InVocabulary(*ids, info) && std::set<TokenId>(ids->begin(), ids->end()).size() == ids->size(),
          "distinct ids of the vocabulary");
  }
  Check(controls.min_tokens >= 0 && controls.min_tokens <= args.max_tokens, "min_tokens");
  Check(controls.top_log_probs >= 0 && controls.top_log_probs <= kMaxTopLogProbs, "top_log_probs");
}

void CheckConstraint(const v1::Sampling& sampling) {
  if (!IsConstrained(sampling)) {
    return;
  }
  Check(!NoTokenizer(sampling).ok(), "a verifier without a tokenizer refuses it");
  const absl::StatusOr<ConstraintSpec> spec = DecodeConstraint(sampling);
  if (!spec.ok()) {
    Check(spec.status().code() == absl::StatusCode::kInvalidArgument, "a refusal is INVALID_ARGUMENT");
    return;
  }
  Check(spec->json_schema.empty() || spec->regex.empty(), "one form");
  Check(!spec->json_schema.empty() || !spec->regex.empty() || !spec->bad_words.empty(), "a form is not lost");
}

}  // namespace
}  // namespace arborist::verifier

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace arborist;
  static const verifier::VerifierInfo info = [] {
    google::protobuf::SetLogHandler(nullptr);  // it reports every string that is not UTF-8
    return verifier::Info();
  }();
  v1::Open open;
  if (!open.ParseFromArray(data, static_cast<int>(size))) {
    return 0;
  }
  verifier::CheckConstraint(open.sequence().sampling());
  const absl::StatusOr<verifier::OpenArgs> args = verifier::DecodeOpen(open, info);
  if (args.ok()) {
    verifier::CheckAdmitted(*args, info);
    Check(open.sequence().protocol_version() == kProtocolVersion &&
              open.sequence().fingerprint() == info.fingerprint,
          "only a peer that fits is let in");
    return 0;
  }
  const absl::StatusCode code = args.status().code();
  Check(code == absl::StatusCode::kInvalidArgument || code == absl::StatusCode::kFailedPrecondition ||
            code == absl::StatusCode::kUnimplemented,
        "a refusal has a code that clients know");
  const grpc::Status sent = ToGrpcStatus(args.status(), "verifier");
  Check(!sent.error_message().empty() && sent.error_message().size() <= 1024 &&
            sent.error_details().size() < 4096,
        "and says why, within the metadata of a call");
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  arborist::v1::Open message;
  return arborist::fuzz::MutateMessage(message, data, size, max_size, seed);
}
