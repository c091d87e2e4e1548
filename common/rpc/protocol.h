#pragma once

#include <cstdint>

namespace arborist {

// Peers must say the same number; it rises when old and new processes cannot work together.
inline constexpr int32_t kProtocolVersion = 1;

inline constexpr char kVerifierServiceName[] = "arborist.v1.VerifierService";
inline constexpr char kDrafterServiceName[] = "arborist.v1.DrafterService";
inline constexpr char kCoordinatorServiceName[] = "arborist.v1.CoordinatorService";

inline constexpr char kVerifierOrigin[] = "verifier";
inline constexpr char kDrafterOrigin[] = "drafter";
inline constexpr char kCoordinatorOrigin[] = "coordinator";

}  // namespace arborist
