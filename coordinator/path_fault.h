#pragma once

#include <string>

#include "coordinator/request_metrics.h"
#include "coordinator/sequence_path.h"

namespace arborist::coordinator {

// Who is at fault when a path ends badly decides what follows.

// The verifier refused the request itself: no other path would take it.
bool IsRequestFault(const PathEnd& end);

// The verifier has no room. Going elsewhere would only move the queue.
bool IsOverload(const PathEnd& end);

// The stream lost its sequence or its place, the verifier is well: a higher epoch may go on there.
bool IsTakenOver(const PathEnd& end);

inline constexpr char kPeerSilent[] = "PEER_SILENT";

PathEnd NoVerifier(const std::string& why);
PathEnd Silent(const std::string& origin);

// What a request that goes on elsewhere after this counts as.
FallbackReason FallbackAfter(bool of_drafter, const PathEnd& end);

}  // namespace arborist::coordinator
