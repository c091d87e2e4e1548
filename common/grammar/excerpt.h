#pragma once

#include <cstddef>
#include <string>
#include <string_view>

namespace arborist {

// What an error shows of a text that a client sent: a few characters from byte `at` on in quotes, or that the
// text is over there. Whole characters, because an error's words are UTF-8 too.
std::string Excerpt(std::string_view text, size_t at);

}  // namespace arborist
