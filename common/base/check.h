#pragma once

#include <source_location>
#include <string_view>

namespace arborist {

// For what *we* did wrong: a broken invariant prints file:line and `why`, then aborts. It is on in every
// build. What the world does wrong (input, disk, network, device) is an absl::Status instead.
void Check(bool condition, std::string_view why,
           const std::source_location& where = std::source_location::current());

}  // namespace arborist
