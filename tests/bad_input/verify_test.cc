// Protocol misuse and malformed messages on Verify, against a real verifier.
#include "common/rpc/protocol.h"
#include "common/rpc/status_bridge.h"
#include "tests/bad_input/processes.h"
#include "tests/bad_input/verify_stream.h"

namespace arborist::bad_input {
namespace {

constexpr absl::StatusCode kPrecondition = absl::StatusCode::kFailedPrecondition;

// Each step is a VerifyRequest over a good one of its kind, or one of the words of VerifyStream::Do.
struct Misuse {
  const char* name;
  std::vector<std::string> steps;
  Refusal refusal;
};

const std::vector<Misuse>& Misuses() {
  static const auto* const table = new std::vector<Misuse>{
      {"nothing",
       {"half-close"},
       Precondition("NOT_OPEN", "the stream ended before Open, expected open as the first message")},
      {"a message of nothing", {"nothing"}, Field("message", "unset, expected open, tree, decode or stop")},
      {"a tree first", {"tree {}"}, Precondition("NOT_OPEN", "tree, decode or stop came before open")},
      {"a decode first", {"decode {}"}, Precondition("NOT_OPEN", "tree, decode or stop came before open")},
      {"a stop first", {"stop {}"}, Precondition("NOT_OPEN", "tree, decode or stop came before open")},
      {"a second open",
       {"open {}", "wait", "open {}"},
       Precondition("ALREADY_OPEN", "open came a second time, expected it once")},
      {"a tree too early",
       {"open { sequence { prompt: [LONG] } }", "tree {}"},
       Precondition("NOT_READY", "tree or decode came before progress said WAITING")},
      {"a second round in flight",
       {"open {}", "wait", "decode { max_tokens: 64 }", "decode { round: 2 }"},
       Precondition("ROUND_IN_FLIGHT", "round 1 is outstanding, expected no second Tree or Decode")},
      {"a round too far", {"open {}", "wait", "decode { round: 2 }"}, Field("round", "2, expected 1")},
      {"a round again",
       {"open {}", "wait", "decode { max_tokens: 1 }", "committed", "decode {}"},
       Field("round", "1, expected 2")},
      {"a round of zero", {"open {}", "wait", "decode { round: 0 }"}, Field("round", "0, expected 1")},
      {"a negative round", {"open {}", "wait", "tree { round: -1 }"}, Field("round", "-1, expected 1")},
      {"a decode of nothing",
       {"open {}", "wait", "decode { max_tokens: 0 }"},
       Field("decode.max_tokens", "0, expected a value >= 1")},
      {"a decode of less than nothing",
       {"open {}", "wait", "decode { max_tokens: -5 }"},
       Field("decode.max_tokens", "-5, expected a value >= 1")},
      {"a message after stop",
       {"open {}", "wait", "decode { max_tokens: 900 }", "stop {}", "decode {}"},
       Precondition("NOT_OPEN", "a message came after stop, expected none")},
      {"drafting seconds that are no number",
       {"open {}", "wait", "tree { draft_seconds: nan }"},
       Field("tree.draft_seconds", "nan, expected a finite value >= 0")},
      {"drafting seconds below zero",
       {"open {}", "wait", "tree { draft_seconds: -1 }"},
       Field("tree.draft_seconds", "-1, expected a finite value >= 0")},
      {"an open without a sequence", {"clear-sequence"}, Field("sequence", "unset, expected a sequence")},
      {"an open without sampling",
       {"clear-sampling"},
       Field("sequence.sampling", "unset, expected resolved sampling")},
      {"another protocol version",
       {"open { sequence { protocol_version: 2 } }"},
       Precondition("PROTOCOL_VERSION_MISMATCH", "sequence.protocol_version=2, expected 1")},
      {"no protocol version",
       {"open { sequence { protocol_version: 0 } }"},
       Precondition("PROTOCOL_VERSION_MISMATCH", "sequence.protocol_version=0, expected 1")},
      {"another fingerprint",
       {"open { sequence { fingerprint: 'other' } }"},
       Precondition("FINGERPRINT_MISMATCH", "sequence.fingerprint=other, expected FINGERPRINT")},
      {"no fingerprint",
       {"open { sequence { fingerprint: '' } }"},
       Precondition("FINGERPRINT_MISMATCH", "sequence.fingerprint=, expected FINGERPRINT")},
      {"another projection",
       {"open { projection_hash: 'other' }"},
       Precondition("PROJECTION_MISMATCH", "projection_hash=other, expected PROJECTION_HASH")},
      {"another drafter's projection",
       {"open { drafter_projection_hash: 'other' }"},
       Precondition("PROJECTION_MISMATCH", "drafter_projection_hash=other, expected PROJECTION_HASH")},
      {"no request id",
       {"open { sequence { request_id: '' } }"},
       Field("sequence.request_id", "(0 bytes), expected 1 to 128 bytes of printable ASCII")},
      {"a request id with a newline",
       {"open { sequence { request_id: 'a\\nb' } }"},
       Field("sequence.request_id", "(3 bytes), expected 1 to 128 bytes of printable ASCII")},
      {"a request id of 129 bytes",
       {"open { sequence { request_id: 'LONG_ID' } }"},
       Field("sequence.request_id", "(129 bytes), expected 1 to 128 bytes of printable ASCII")},
      {"a sample index beyond 1023",
       {"open { sequence { sample_index: 1024 } }"},
       Field("sequence.sample_index", "1024, expected a value below 1024")},
      {"an epoch of zero",
       {"open { sequence { epoch: 0 } }"},
       Field("sequence.epoch", "0, expected a value >= 1")},
      {"no prompt", {"clear-prompt"}, Field("sequence.prompt", "(0 tokens), expected at least 1 token")},
      {"a negative id in the prompt",
       {"open { sequence { prompt: -1 } }"},
       Field("sequence.prompt[3]", "-1, expected an id in [0, 4096)")},
      {"an id beyond the vocabulary in the prompt",
       {"open { sequence { prompt: 4096 } }"},
       Field("sequence.prompt[3]", "4096, expected an id in [0, 4096)")},
      {"a prompt beyond the context",
       {"open { sequence { prompt: [WHOLE] } }"},
       Field("sequence.prompt",
             "(2051 tokens with output_so_far), expected fewer than the context length 2048")},
      {"a negative id in the output",
       {"open { sequence { output_so_far: -7 } }"},
       Field("sequence.output_so_far[0]", "-7, expected an id in [0, 4096)")},
      {"as much output as is wanted",
       {"open { sequence { output_so_far: [5, 6] sampling { max_tokens: 2 } } }"},
       Field("sequence.output_so_far", "(2 tokens), expected fewer than max_tokens 2")},
      {"a tree budget above the server's",
       {"open { sequence { tree_nodes: 256 } }"},
       Field("sequence.tree_nodes", "256, expected a value in [0, 255]")},
      {"a negative tree budget",
       {"open { sequence { tree_nodes: -1 } }"},
       Field("sequence.tree_nodes", "-1, expected a value in [0, 255]")},
      {"a mode that is unknown",
       {"open { sequence { mode: 77 } }"},
       Field("sequence.mode", "77, expected a SpeculationMode")},
      {"a priority above 100",
       {"open { sequence { priority: 101 } }"},
       Field("sequence.priority", "101, expected a value in [-100, 100]")},
      {"a feature window below zero",
       {"open { feature_window: -1 }"},
       Field("feature_window", "-1, expected a value in [0, 2048]")},
      {"a feature window beyond the context",
       {"open { feature_window: 2049 }"},
       Field("feature_window", "2049, expected a value in [0, 2048]")},
      {"a temperature that is no number",
       {"open { sequence { sampling { temperature: nan } } }"},
       Field("sequence.sampling.temperature", "nan, expected a finite value in [0, 100]")},
      {"an infinite temperature",
       {"open { sequence { sampling { temperature: inf } } }"},
       Field("sequence.sampling.temperature", "inf, expected a finite value in [0, 100]")},
      {"a negative temperature",
       {"open { sequence { sampling { temperature: -0.5 } } }"},
       Field("sequence.sampling.temperature", "-0.5, expected a finite value in [0, 100]")},
      {"a top_k beyond the vocabulary",
       {"open { sequence { sampling { top_k: 4097 } } }"},
       Field("sequence.sampling.top_k", "4097, expected a value in [0, 4096]")},
      {"a top_p above one",
       {"open { sequence { sampling { top_p: 1.5 } } }"},
       Field("sequence.sampling.top_p", "1.5, expected a value in (0, 1], or 0 for 1")},
      {"a min_p that is no number",
       {"open { sequence { sampling { min_p: nan } } }"},
       Field("sequence.sampling.min_p", "nan, expected a value in [0, 1]")},
      {"no output wanted",
       {"open { sequence { sampling { max_tokens: 0 } } }"},
       Field("sequence.sampling.max_tokens", "0, expected a value >= 1")},
      {"a stop id beyond the vocabulary",
       {"open { sequence { sampling { stop_ids: 4096 } } }"},
       Field("sequence.sampling.stop_ids[0]", "4096, expected an id in [0, 4096)")},
      {"129 stop ids",
       {"open { sequence { sampling { stop_ids: [MANY] } } }"},
       Field("sequence.sampling.stop_ids count", "129, expected at most 128")},
  };
  return *table;
}

TEST(BadVerifyStreams, EveryMisuseEndsItsStreamAndNothingElse) {
  for (const Misuse& misuse : Misuses()) {
    SCOPED_TRACE(misuse.name);
    VerifyStream stream;
    for (const std::string& step : misuse.steps) {
      stream.Do(step);
    }
    ExpectRefused(stream.End(), kVerifierOrigin, misuse.refusal);
    ExpectStillServes();
  }
}

}  // namespace
}  // namespace arborist::bad_input
