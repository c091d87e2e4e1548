// Bad sequences for a real drafter, which refuses them itself or passes on what its verifier says.
#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/rpc/protocol.h"
#include "common/rpc/status_bridge.h"
#include "tests/bad_input/processes.h"
#include "tests/bad_input/verify_stream.h"

namespace arborist::bad_input {
namespace {

struct BadSequence {
  const char* name;
  const char* sequence;  // over a good one; empty: none at all
  const char* origin;
  Refusal refusal;
};

const std::vector<BadSequence>& BadSequences() {
  static const auto* const table = new std::vector<BadSequence>{
      {"no sequence", "", kDrafterOrigin, Field("sequence", "unset, expected a sequence")},
      {"another protocol version", "protocol_version: 2", kDrafterOrigin,
       Precondition("PROTOCOL_VERSION_MISMATCH", "sequence.protocol_version=2, expected 1")},
      {"another fingerprint", "fingerprint: 'other'", kDrafterOrigin,
       Precondition("FINGERPRINT_MISMATCH", "sequence.fingerprint=other, expected FINGERPRINT")},
      {"no request id", "request_id: ''", kDrafterOrigin,
       Field("sequence.request_id", ", expected 1 to 128 bytes of printable ASCII")},
      {"an epoch of zero", "epoch: 0", kDrafterOrigin, Field("sequence.epoch", "0, expected a value >= 1")},
      {"a mode that does not draft", "mode: SPECULATION_MODE_OFF", kDrafterOrigin,
       Field("sequence.mode", "4, expected AUTO, TREE or CHAIN")},
      {"a mode that is unknown", "mode: 77", kDrafterOrigin,
       Field("sequence.mode", "77, expected AUTO, TREE or CHAIN")},
      {"a tree of nothing", "tree_nodes: 0", kDrafterOrigin,
       Field("sequence.tree_nodes", "0, expected a value in [1, 255]")},
      {"a tree of 256 nodes", "tree_nodes: 256", kDrafterOrigin,
       Field("sequence.tree_nodes", "256, expected a value in [1, 255]")},
      {"a negative id in the prompt", "prompt: -1", kDrafterOrigin,
       Field("sequence.prompt[3]", "-1, expected an id >= 0")},
      {"an id beyond the vocabulary", "prompt: 4096", kDrafterOrigin,
       Field("sequence.prompt[3]", "4096, expected an id in [0, 4096)")},
      {"a negative id in the output", "output_so_far: -1", kDrafterOrigin,
       Field("sequence.output_so_far[0]", "-1, expected an id >= 0")},
      {"a temperature that is no number", "sampling { temperature: nan }", kDrafterOrigin,
       Field("sequence.sampling.temperature", "nan, expected a finite value in [0, 100]")},
      {"a top_p that is no number", "sampling { top_p: nan }", kVerifierOrigin,
       Field("sequence.sampling.top_p", "nan, expected a value in (0, 1], or 0 for 1")},
      {"a top_k below zero", "sampling { top_k: -1 }", kVerifierOrigin,
       Field("sequence.sampling.top_k", "-1, expected a value in [0, 4096]")},
      {"no output wanted", "sampling { max_tokens: 0 }", kVerifierOrigin,
       Field("sequence.sampling.max_tokens", "0, expected a value >= 1")},
      {"a stop id beyond the vocabulary", "sampling { stop_ids: 5000 }", kVerifierOrigin,
       Field("sequence.sampling.stop_ids[0]", "5000, expected an id in [0, 4096)")},
      {"a prompt beyond the context", "prompt: [WHOLE]", kVerifierOrigin,
       Field("sequence.prompt",
             "(2051 tokens with output_so_far), expected fewer than the context length 2048")},
      {"a sample index beyond 1023", "sample_index: 1024", kVerifierOrigin,
       Field("sequence.sample_index", "1024, expected a value below 1024")},
      {"a priority below -100", "priority: -101", kVerifierOrigin,
       Field("sequence.priority", "-101, expected a value in [-100, 100]")},
  };
  return *table;
}

TEST(BadSpeculations, EveryBadSequenceIsRefusedByWhoeverKnows) {
  for (const BadSequence& bad : BadSequences()) {
    SCOPED_TRACE(bad.name);
    v1::SpeculateRequest request;
    if (*bad.sequence != '\0') {
      *request.mutable_sequence() = GoodSequence("speculate");
      Overlay(Spelled(bad.sequence), *request.mutable_sequence());
    }
    grpc::ClientContext context;
    context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    auto stream = TheProcesses().drafter().Speculate(&context, request);
    v1::SpeculateResponse response;
    while (stream->Read(&response)) {
      EXPECT_FALSE(response.has_tokens());
    }
    ExpectRefused(FromGrpcStatus(stream->Finish()), bad.origin, bad.refusal);
    ExpectStillServes();
  }
}

}  // namespace
}  // namespace arborist::bad_input
