#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace arborist::coordinator {

// Writes one JSON object, keys in the order of the calls. Numbers of 64 bits stay numbers.
class JsonWriter {
 public:
  void Text(std::string_view key, std::string_view value);
  void Integer(std::string_view key, int64_t value);
  void Unsigned(std::string_view key, uint64_t value);
  void Number(std::string_view key, double value);  // null where it is not finite
  void Boolean(std::string_view key, bool value);
  template <typename List>
  void Integers(std::string_view key, const List& values) {
    std::string text = "[";
    for (const auto value : values) {
      text += text.size() > 1 ? ", " : "";
      text += std::to_string(value);
    }
    Raw(key, text + "]");
  }
  void Numbers(std::string_view key, const std::vector<float>& values);
  // Each is itself JSON.
  void List(std::string_view key, const std::vector<std::string>& values);
  // `json` is itself JSON.
  void Raw(std::string_view key, std::string_view json);

  std::string Finish() const { return "{" + body_ + "}"; }

 private:
  std::string body_;
};

std::string JsonQuoted(std::string_view text);
std::string JsonList(const std::vector<std::string>& values);

}  // namespace arborist::coordinator
