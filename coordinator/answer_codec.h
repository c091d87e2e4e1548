#pragma once

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "arborist/v1/coordinator.pb.h"
#include "coordinator/prompt_echo.h"
#include "coordinator/request_flow.h"

namespace arborist::coordinator {

// What goes to the client.

// Log-probabilities of single tokens are left out unless the chunk has them.
v1::GenerateResponse ChunkMessage(uint32_t sample_index, AnswerChunk chunk);
v1::GenerateResponse EchoMessage(uint32_t sample_index, PromptEcho::Piece piece);

// The same for all answers of a request.
struct RequestFacts {
  std::string request_id;
  std::string system_fingerprint;
  uint64_t seed = 0;
  int64_t prompt_tokens = 0;
};
v1::GenerateResponse FinalMessage(uint32_t sample_index, const RequestFacts& facts, const Answer& answer,
                                  double total_seconds);

// Chunks of one answer that wait become one: a slow reader gets fewer, larger ones.
bool MergeChunks(v1::GenerateResponse& waiting, v1::GenerateResponse& next);

// Complete for a client: reason, origin, when to come again; fields as the client calls them.
absl::Status StatusFor(const PathEnd& error);

}  // namespace arborist::coordinator
