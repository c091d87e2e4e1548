#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/dtype.h"
#include "common/weights/mapped_file.h"

namespace arborist {

// A tensor in a mapped file, row-major and aligned to its element. The memory belongs to the file.
struct TensorView {
  std::string name;
  DType dtype = DType::kF32;
  std::vector<int64_t> shape;
  const std::byte* data = nullptr;
  size_t bytes = 0;

  int64_t elements() const { return static_cast<int64_t>(bytes / ByteSize(dtype)); }
  // The caller has compared dtype.
  template <typename T>
  const T* As() const {
    return reinterpret_cast<const T*>(data);
  }
};

// "[2, 3]", for messages.
std::string ShowShape(const std::vector<int64_t>& shape);

// One .safetensors file: 8 bytes of header length (little endian), a JSON header, the data. Everything the
// header claims is checked on opening: types, shapes, offsets, sizes, overlap, gaps, truncation, alignment.
class SafetensorsFile {
 public:
  static absl::StatusOr<SafetensorsFile> Open(const std::string& path);

  bool Has(const std::string& name) const { return entries_.contains(name); }
  // NotFound, or InvalidArgument for a type that DType lacks (such a tensor may lie in a file unused).
  absl::StatusOr<TensorView> Find(const std::string& name) const;
  std::vector<std::string> Names() const;  // ascending
  const std::map<std::string, std::string>& metadata() const { return metadata_; }
  const std::string& path() const { return file_.path(); }

 private:
  struct Entry {
    std::string dtype;
    std::vector<int64_t> shape;
    int64_t begin = 0;  // in the data
    int64_t end = 0;
  };

  explicit SafetensorsFile(MappedFile file) : file_(std::move(file)) {}
  absl::Status ParseHeader();
  absl::Status CheckLayout() const;

  MappedFile file_;
  int64_t data_begin_ = 0;  // in the file
  std::map<std::string, Entry> entries_;
  std::map<std::string, std::string> metadata_;
};

}  // namespace arborist
