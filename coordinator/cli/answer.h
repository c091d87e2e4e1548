#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "arborist/v1/coordinator.grpc.pb.h"
#include "coordinator/cli/connection.h"

namespace arborist::coordinator {

// One of the n answers to a request: what its chunks said, joined, and its end.
struct GeneratedAnswer {
  using Clock = std::chrono::steady_clock;

  std::string text;
  std::vector<int32_t> token_ids;
  std::vector<float> log_probs;
  std::vector<v1::TopLogProbs> top_log_probs;
  std::string prompt_text;  // with echo
  std::vector<int32_t> prompt_token_ids;
  std::vector<float> prompt_log_probs;     // from the prompt's second token on
  std::optional<v1::GenerateFinal> final;  // none: the call ended before the answer did
  Clock::time_point first_chunk;           // of the answer's own tokens
  int64_t first_chunk_tokens = 0;
};

// What came of one GenerateRequest.
struct GeneratedAnswers {
  std::vector<GeneratedAnswer> answers;  // by sample_index; of a call that failed, those that had begun
  GeneratedAnswer::Clock::time_point end;
  // INTERNAL, too, where the server's messages do not fit the request.
  grpc::Status status;
};

// Sends the request and reads to the end. `show` hears of every message after it is joined to its answer.
GeneratedAnswers ReadAnswers(
    v1::CoordinatorService::Stub& stub, const Connection& connection, const v1::GenerateRequest& request,
    absl::FunctionRef<void(const GeneratedAnswers&, const v1::GenerateResponse&)> show);

double MeanAcceptedLength(const v1::GenerateFinal& final);

}  // namespace arborist::coordinator
