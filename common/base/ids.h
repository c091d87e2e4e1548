#pragma once

#include <cstdint>

namespace arborist {

// A vocabulary id. No arithmetic and no implicit way back: use Raw().
enum class TokenId : int32_t {};

constexpr int32_t Raw(TokenId id) { return static_cast<int32_t>(id); }

}  // namespace arborist
