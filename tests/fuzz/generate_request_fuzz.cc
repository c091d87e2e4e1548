// GenerateRequest, the public one, from the wire: whatever the coordinator lets in the verifier lets in too,
// and whatever it refuses it refuses by name.
#include <google/protobuf/stubs/logging.h>

#include <algorithm>

#include "common/base/check.h"
#include "common/rpc/protocol.h"
#include "coordinator/request_codec.h"
#include "coordinator/sequence_codec.h"
#include "drafter/speculate_codec.h"
#include "tests/fuzz/byte_vocabulary.h"
#include "tests/fuzz/message_mutator.h"
#include "verifier/constraint_codec.h"
#include "verifier/verify_codec.h"

namespace arborist {
namespace {

constexpr int kVocabulary = 1000;
constexpr int kContext = 512;

// Single bytes and the marks of the Kimi chat layout.
Tokenizer ChatTokenizer() {
  std::string added;
  int id = 256;
  for (const char* mark :
       {"<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>", "<|im_end|>"}) {
    added += std::string(id == 256 ? "" : ",") + R"({"special":true,"id":)" + std::to_string(id) +
             R"(,"content":")" + mark + "\"}";
    ++id;
  }
  const std::string json = R"({"pre_tokenizer":{"type":"ByteLevel"},"model":{"type":"BPE","vocab":{)" +
                           fuzz::ByteVocabularyEntries() + R"(},"merges":[]},"added_tokens":[)" + added +
                           "]}";
  absl::StatusOr<Tokenizer> tokenizer = Tokenizer::Parse(json, "", "fuzz");
  Check(tokenizer.ok(), std::string(tokenizer.status().message()));
  return *std::move(tokenizer);
}

void CheckVerifierTakes(coordinator::PathStart start) {
  start.request_id = "r";
  v1::Open open;
  coordinator::EncodeSequence(start, *open.mutable_sequence());
  std::string wire;
  Check(open.SerializeToString(&wire) && open.ParseFromString(wire), "it passes the wire");
  verifier::VerifierInfo info;
  info.fingerprint = start.fingerprint;
  info.vocabulary_size = kVocabulary;
  info.context_length = kContext;
  info.max_tree_nodes = 64;
  const absl::Status taken = verifier::DecodeOpen(open, info).status();
  Check(taken.ok() || taken.code() == absl::StatusCode::kUnimplemented,
        "the coordinator let in what the verifier refuses: " + std::string(taken.message()));
  if (start.mode != coordinator::Mode::kOff) {
    v1::SpeculateRequest speculate;
    *speculate.mutable_sequence() = open.sequence();
    const auto drafted = drafter::DecodeSpeculate(speculate, info.max_tree_nodes);
    Check(drafted.ok(),
          "the coordinator let in what the drafter refuses: " + std::string(drafted.status().message()));
    Check(drafter::EncodeOpen(speculate.sequence(), 0, "").open().sequence().SerializeAsString() ==
              open.sequence().SerializeAsString(),
          "the drafter passes the sequence on as it is");
  }
  const v1::Sampling& sampling = open.sequence().sampling();
  if (verifier::IsConstrained(sampling)) {
    const absl::Status form = verifier::DecodeConstraint(sampling).status();
    Check(form.ok(),
          "the coordinator let in a form that the verifier refuses: " + std::string(form.message()));
  }
}

void CheckResolved(const v1::GenerateRequest& request, const coordinator::ResolvedRequest& resolved) {
  Check(resolved.samples >= 1 && resolved.samples <= 16, "n");
  Check(resolved.timeout > absl::ZeroDuration(), "timeout");
  Check(resolved.text.stops.size() <= 16, "stop");
  for (const std::string& stop : resolved.text.stops) {
    Check(!stop.empty() && stop.size() <= 256, "stop strings");
  }
  const coordinator::SamplingParameters& sampling = resolved.start.sampling;
  Check(sampling.min_tokens >= 0 && sampling.min_tokens <= sampling.max_tokens, "min_tokens");
  Check(!request.has_seed() || sampling.seed == request.seed(), "the seed is the request's");
  CheckVerifierTakes(resolved.start);
}

}  // namespace
}  // namespace arborist

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace arborist;
  static const Tokenizer& tokenizer = *[] {
    google::protobuf::SetLogHandler(nullptr);  // it reports every string that is not UTF-8
    return new Tokenizer(ChatTokenizer());
  }();
  static const coordinator::VerifierFacts facts{.protocol_version = kProtocolVersion,
                                                .fingerprint = "f",
                                                .projection_hash = "p",
                                                .model_name = "m",
                                                .vocabulary_size = kVocabulary,
                                                .context_length = kContext,
                                                .max_tree_nodes = 64};
  v1::GenerateRequest request;
  if (!request.ParseFromArray(data, static_cast<int>(size))) {
    return 0;
  }
  const coordinator::GenerationDefaults defaults{.eos_ids = {TokenId{260}}};
  const absl::StatusOr<coordinator::ResolvedRequest> resolved =
      coordinator::ResolveRequest(request, facts, "m", defaults, {.max_samples = 16}, tokenizer);
  if (resolved.ok()) {
    CheckResolved(request, *resolved);
    return 0;
  }
  const absl::StatusCode code = resolved.status().code();
  Check(code == absl::StatusCode::kInvalidArgument || code == absl::StatusCode::kNotFound ||
            code == absl::StatusCode::kUnimplemented,
        "a refusal has a code that clients know");
  Check(!resolved.status().message().empty(), "and says why");
  return 0;
}

extern "C" size_t LLVMFuzzerCustomMutator(uint8_t* data, size_t size, size_t max_size, unsigned int seed) {
  arborist::v1::GenerateRequest message;
  return arborist::fuzz::MutateMessage(message, data, size, max_size, seed);
}
