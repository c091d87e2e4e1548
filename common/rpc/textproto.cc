#include "common/rpc/textproto.h"

#include <filesystem>
#include <fstream>
#include <iterator>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "google/protobuf/io/tokenizer.h"
#include "google/protobuf/text_format.h"

namespace arborist {
namespace {

class FirstError : public google::protobuf::io::ErrorCollector {
 public:
  explicit FirstError(std::string name) : name_(std::move(name)) {}

  void AddError(int line, google::protobuf::io::ColumnNumber column, const std::string& message) override {
    if (text_.empty()) {
      text_ = absl::StrCat(name_, ":", line + 1, ":", column + 1, ": ", message);
    }
  }
  void AddWarning(int, google::protobuf::io::ColumnNumber, const std::string&) override {}

  const std::string& text() const { return text_; }

 private:
  std::string name_;
  std::string text_;
};

}  // namespace

absl::Status ParseTextproto(const std::string& text, const std::string& name,
                            google::protobuf::Message& message) {
  FirstError error(name);
  google::protobuf::TextFormat::Parser parser;
  parser.RecordErrorsTo(&error);
  if (!parser.ParseFromString(text, &message)) {
    return absl::InvalidArgumentError(error.text().empty() ? absl::StrCat(name, ": not a textproto")
                                                           : error.text());
  }
  return absl::OkStatus();
}

absl::Status LoadTextproto(const std::string& path, google::protobuf::Message& message) {
  std::error_code ignored;
  std::ifstream file(path, std::ios::binary);
  if (std::filesystem::is_directory(path, ignored) || !file) {
    return absl::NotFoundError(absl::StrCat("--config=", path, ", expected a readable file"));
  }
  const std::string text{std::istreambuf_iterator<char>(file), std::istreambuf_iterator<char>()};
  return ParseTextproto(text, path, message);
}

}  // namespace arborist
