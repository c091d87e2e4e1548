#pragma once

#include <cstddef>
#include <span>
#include <string>
#include <utility>

#include "absl/status/statusor.h"

namespace arborist {

// A whole file of a model's directory (model_file.h), mapped read-only. Bytes stay valid while the object (or
// what it was moved into) lives; a file that another process truncates meanwhile is outside our protection.
class MappedFile {
 public:
  static absl::StatusOr<MappedFile> Open(const std::string& path);
  ~MappedFile();
  MappedFile(MappedFile&& other) noexcept
      : path_(std::move(other.path_)), bytes_(std::exchange(other.bytes_, {})) {}
  MappedFile& operator=(MappedFile&& other) noexcept {
    std::swap(path_, other.path_);
    std::swap(bytes_, other.bytes_);
    return *this;
  }

  std::span<const std::byte> bytes() const { return bytes_; }
  const std::string& path() const { return path_; }

 private:
  MappedFile(std::string path, std::span<const std::byte> bytes) : path_(std::move(path)), bytes_(bytes) {}

  std::string path_;
  std::span<const std::byte> bytes_;
};

}  // namespace arborist
