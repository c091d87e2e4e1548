#pragma once

#include <chrono>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/functional/function_ref.h"
#include "arborist/v1/coordinator.grpc.pb.h"
#include "coordinator/cli/connection.h"

namespace arborist::coordinator {

// What came of one GenerateRequest.
struct GeneratedAnswer {
  using Clock = std::chrono::steady_clock;

  std::string text;
  std::vector<int32_t> token_ids;
  v1::GenerateFinal final;
  Clock::time_point first_chunk;  // of the text
  int64_t first_chunk_tokens = 0;
  Clock::time_point end;
  grpc::Status status;
};

// Sends the request and reads to the end. `show` hears of every chunk.
GeneratedAnswer ReadAnswer(v1::CoordinatorService::Stub& stub, const Connection& connection,
                           const v1::GenerateRequest& request,
                           absl::FunctionRef<void(const v1::GenerateChunk&)> show);

double MeanAcceptedLength(const v1::GenerateFinal& final);
// One object; of a request that failed {"error": {code, origin, reason, message}} and what came before it.
std::string AsJson(const GeneratedAnswer& answer);

}  // namespace arborist::coordinator
