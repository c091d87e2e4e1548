#include "coordinator/cli/json_writer.h"

#include <cmath>
#include <cstdio>

namespace arborist::coordinator {
namespace {

// Nine digits: a float is read back as it was.
std::string NumberText(double value) {
  if (!std::isfinite(value)) {
    return "null";
  }
  char text[40];
  std::snprintf(text, sizeof(text), "%.9g", value);
  return text;
}

}  // namespace

std::string JsonQuoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\t':
        out += "\\t";
        break;
      case '\r':
        out += "\\r";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20) {
          char escape[8];
          std::snprintf(escape, sizeof(escape), "\\u%04x", static_cast<unsigned char>(c));
          out += escape;
        } else {
          out.push_back(c);
        }
    }
  }
  return out + "\"";
}

std::string JsonList(const std::vector<std::string>& values) {
  std::string text = "[";
  for (const std::string& value : values) {
    text += text.size() > 1 ? ", " : "";
    text += value;
  }
  return text + "]";
}

void JsonWriter::Raw(std::string_view key, std::string_view json) {
  body_ += body_.empty() ? "" : ", ";
  body_ += JsonQuoted(key) + ": " + std::string(json);
}

void JsonWriter::Text(std::string_view key, std::string_view value) { Raw(key, JsonQuoted(value)); }
void JsonWriter::Integer(std::string_view key, int64_t value) { Raw(key, std::to_string(value)); }
void JsonWriter::Unsigned(std::string_view key, uint64_t value) { Raw(key, std::to_string(value)); }
void JsonWriter::Boolean(std::string_view key, bool value) { Raw(key, value ? "true" : "false"); }

void JsonWriter::Number(std::string_view key, double value) { Raw(key, NumberText(value)); }

void JsonWriter::Numbers(std::string_view key, const std::vector<float>& values) {
  std::vector<std::string> texts;
  texts.reserve(values.size());
  for (const float value : values) {
    texts.push_back(NumberText(value));
  }
  List(key, texts);
}

void JsonWriter::List(std::string_view key, const std::vector<std::string>& values) {
  Raw(key, JsonList(values));
}

}  // namespace arborist::coordinator
