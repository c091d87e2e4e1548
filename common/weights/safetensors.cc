#include "common/weights/safetensors.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <utility>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/base/status_macros.h"
#include "common/json/json.h"

namespace arborist {
namespace {

static_assert(std::endian::native == std::endian::little, "the format is little endian and is used in place");

constexpr int64_t kLengthBytes = 8;
constexpr int64_t kMaxHeaderBytes = 100'000'000;  // the format's own limit

struct StoredType {
  const char* name;
  int64_t bytes;
};

// All that a file may hold, used by us or not.
constexpr StoredType kStoredTypes[] = {
    {"F64", 8},  {"F32", 4},     {"F16", 2},     {"BF16", 2},    {"I64", 8}, {"I32", 4},
    {"I16", 2},  {"I8", 1},      {"U64", 8},     {"U32", 4},     {"U16", 2}, {"U8", 1},
    {"BOOL", 1}, {"F8_E4M3", 1}, {"F8_E5M2", 1}, {"F8_E8M0", 1},
};

int64_t StoredBytes(const std::string& dtype) {
  for (const StoredType& type : kStoredTypes) {
    if (dtype == type.name) {
      return type.bytes;
    }
  }
  return 0;
}

absl::Status Bad(const std::string& path, const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat(path, ": ", what));
}

}  // namespace

std::string ShowShape(const std::vector<int64_t>& shape) {
  return absl::StrCat("[", absl::StrJoin(shape, ", "), "]");
}

absl::StatusOr<SafetensorsFile> SafetensorsFile::Open(const std::string& path) {
  ASSIGN_OR_RETURN(MappedFile mapped, MappedFile::Open(path));
  SafetensorsFile file(std::move(mapped));
  RETURN_IF_ERROR(file.ParseHeader());
  RETURN_IF_ERROR(file.CheckLayout());
  return file;
}

absl::Status SafetensorsFile::ParseHeader() {
  const std::span<const std::byte> bytes = file_.bytes();
  const int64_t size = static_cast<int64_t>(bytes.size());
  if (size < kLengthBytes) {
    return Bad(path(), absl::StrCat("file size=", size, ", expected at least 8 bytes of header length"));
  }
  uint64_t length = 0;
  std::memcpy(&length, bytes.data(), sizeof(length));
  if (length > static_cast<uint64_t>(std::min(size - kLengthBytes, kMaxHeaderBytes))) {
    return Bad(path(),
               absl::StrCat("header length=", length, ", expected at most ",
                            std::min(size - kLengthBytes, kMaxHeaderBytes), " (file size ", size, ")"));
  }
  data_begin_ = kLengthBytes + static_cast<int64_t>(length);
  const std::string text(reinterpret_cast<const char*>(bytes.data()) + kLengthBytes, length);
  ASSIGN_OR_RETURN(const JsonObject header, ParseJson(text, absl::StrCat(path(), ": header")));
  for (const auto& [name, value] : header.fields().fields()) {
    if (name == "__metadata__") {
      for (const auto& [key, entry] : value.struct_value().fields()) {
        metadata_[key] = entry.string_value();
      }
      continue;
    }
    ASSIGN_OR_RETURN(const JsonObject fields, header.Object(name));
    Entry entry;
    ASSIGN_OR_RETURN(entry.dtype, fields.String("dtype"));
    ASSIGN_OR_RETURN(entry.shape, fields.IntList("shape"));
    ASSIGN_OR_RETURN(const std::vector<int64_t> offsets, fields.IntList("data_offsets"));
    if (offsets.size() != 2) {
      return fields.Unexpected("data_offsets", "two numbers");
    }
    entry.begin = offsets[0];
    entry.end = offsets[1];
    entries_[name] = std::move(entry);
  }
  return absl::OkStatus();
}

absl::Status SafetensorsFile::CheckLayout() const {
  const int64_t data_size = static_cast<int64_t>(file_.bytes().size()) - data_begin_;
  std::vector<std::pair<int64_t, const std::string*>> order;
  for (const auto& [name, entry] : entries_) {
    const int64_t element = StoredBytes(entry.dtype);
    if (element == 0) {
      return Bad(path(),
                 absl::StrCat("tensor ", name, ": dtype=", entry.dtype, ", expected a safetensors type"));
    }
    int64_t expected = element;
    for (const int64_t dimension : entry.shape) {
      if (dimension < 0 || __builtin_mul_overflow(expected, dimension, &expected)) {
        return Bad(path(), absl::StrCat("tensor ", name, ": shape=", ShowShape(entry.shape),
                                        ", expected sizes >= 0 whose product fits"));
      }
    }
    if (entry.begin < 0 || entry.end < entry.begin || entry.end > data_size) {
      return Bad(path(), absl::StrCat("tensor ", name, ": data_offsets=[", entry.begin, ", ", entry.end,
                                      "], expected inside [0, ", data_size, "] (is the file truncated?)"));
    }
    if (entry.end - entry.begin != expected) {
      return Bad(path(), absl::StrCat("tensor ", name, ": ", entry.end - entry.begin, " bytes, expected ",
                                      expected, " for ", entry.dtype, " ", ShowShape(entry.shape)));
    }
    if ((data_begin_ + entry.begin) % element != 0 && expected > 0) {
      return Bad(path(), absl::StrCat("tensor ", name, ": file offset ", data_begin_ + entry.begin,
                                      ", expected a multiple of its element's ", element, " bytes"));
    }
    order.emplace_back(entry.begin, &name);
  }
  std::sort(order.begin(), order.end(), [this](const auto& a, const auto& b) {
    return std::pair(a.first, entries_.at(*a.second).end) < std::pair(b.first, entries_.at(*b.second).end);
  });
  int64_t reached = 0;
  for (const auto& [begin, name] : order) {
    if (begin != reached) {
      return Bad(path(), absl::StrCat("tensor ", *name, ": begins at ", begin, ", expected ", reached,
                                      begin < reached ? " (it overlaps the one before)" : " (a gap)"));
    }
    reached = entries_.at(*name).end;
  }
  if (reached != data_size) {
    return Bad(path(), absl::StrCat("data ends at ", reached, ", expected the file's ", data_size));
  }
  return absl::OkStatus();
}

absl::StatusOr<TensorView> SafetensorsFile::Find(const std::string& name) const {
  const auto found = entries_.find(name);
  if (found == entries_.end()) {
    return absl::NotFoundError(absl::StrCat(path(), ": tensor ", name, ": missing"));
  }
  const Entry& entry = found->second;
  for (const DType dtype : {DType::kF32, DType::kBF16, DType::kF16, DType::kI32, DType::kI64, DType::kU8}) {
    if (entry.dtype == Name(dtype)) {
      return TensorView{.name = name,
                        .dtype = dtype,
                        .shape = entry.shape,
                        .data = file_.bytes().data() + data_begin_ + entry.begin,
                        .bytes = static_cast<size_t>(entry.end - entry.begin)};
    }
  }
  return Bad(path(), absl::StrCat("tensor ", name, ": dtype=", entry.dtype,
                                  ", expected F32, BF16, F16, I32, I64 or U8"));
}

std::vector<std::string> SafetensorsFile::Names() const {
  std::vector<std::string> names;
  for (const auto& [name, entry] : entries_) {
    names.push_back(name);
  }
  return names;
}

}  // namespace arborist
