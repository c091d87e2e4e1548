#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace arborist::fuzz {

// Cuts an input into choices and texts, from the front; where it is used up it gives zeros and empty texts,
// so that every input is a whole one.
class FuzzInput {
 public:
  FuzzInput(const uint8_t* data, size_t size) : rest_(reinterpret_cast<const char*>(data), size) {}

  bool empty() const { return rest_.empty(); }
  uint8_t Byte() {
    const uint8_t byte = rest_.empty() ? 0 : static_cast<uint8_t>(rest_[0]);
    rest_.remove_prefix(rest_.empty() ? 0 : 1);
    return byte;
  }
  size_t Below(size_t limit) { return Byte() % limit; }  // limit in [1, 256]
  std::string_view Bytes(size_t count) {
    const std::string_view bytes = rest_.substr(0, count);
    rest_.remove_prefix(bytes.size());
    return bytes;
  }
  // Up to the next `mark`, which goes too. UTF-8 has no bytes 0xFE and 0xFF: they keep texts apart.
  std::string_view Until(char mark) {
    const std::string_view part = rest_.substr(0, rest_.find(mark));
    rest_.remove_prefix(std::min(part.size() + 1, rest_.size()));
    return part;
  }
  std::string_view rest() const { return rest_; }

 private:
  std::string_view rest_;
};

inline std::vector<std::string> SplitAt(std::string_view text, char mark) {
  std::vector<std::string> parts;
  for (FuzzInput rest(reinterpret_cast<const uint8_t*>(text.data()), text.size()); !rest.empty();) {
    parts.emplace_back(rest.Until(mark));
  }
  return parts;
}

}  // namespace arborist::fuzz
