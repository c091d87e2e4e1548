#pragma once

#include <cstdint>
#include <cstring>
#include <filesystem>
#include <fstream>
#include <map>
#include <random>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "common/tensor/dtype.h"

namespace arborist::testing {

// A directory of its own that disappears with the object.
class ScratchDirectory {
 public:
  ScratchDirectory() {
    std::string name = std::filesystem::temp_directory_path() / "arborist-test-XXXXXX";
    Check(::mkdtemp(name.data()) != nullptr, "a temporary directory can be made");
    path_ = name;
  }
  ~ScratchDirectory() { std::filesystem::remove_all(path_); }
  ScratchDirectory(const ScratchDirectory&) = delete;
  ScratchDirectory& operator=(const ScratchDirectory&) = delete;
  const std::string& path() const { return path_; }

  void Write(const std::string& name, const std::string& bytes) const {
    std::ofstream file(path_ + "/" + name, std::ios::binary | std::ios::trunc);
    file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
    Check(file.good(), "a test file can be written");
  }

 private:
  std::string path_;
};

// Named tensors, to be altered by a test and written as one safetensors file.
class CheckpointWriter {
 public:
  void SetBf16(const std::string& name, std::vector<int64_t> shape, const std::vector<float>& values) {
    std::string bytes;
    for (const float value : values) {
      const uint16_t bits = ToBFloat16(value).bits;
      bytes.append(reinterpret_cast<const char*>(&bits), sizeof(bits));
    }
    tensors_[name] = {"BF16", std::move(shape), std::move(bytes)};
  }

  void SetF32(const std::string& name, std::vector<int64_t> shape, const std::vector<float>& values) {
    tensors_[name] = {
        "F32", std::move(shape),
        std::string(reinterpret_cast<const char*>(values.data()), values.size() * sizeof(float))};
  }

  void SetRaw(const std::string& name, const std::string& dtype, std::vector<int64_t> shape,
              std::string bytes) {
    tensors_[name] = {dtype, std::move(shape), std::move(bytes)};
  }

  // bf16 normal values around `mean`.
  void SetRandom(const std::string& name, std::vector<int64_t> shape, float deviation, float mean,
                 std::mt19937& random) {
    int64_t count = 1;
    for (const int64_t size : shape) {
      count *= size;
    }
    std::normal_distribution<float> normal(mean, deviation);
    std::vector<float> values(count);
    for (float& value : values) {
      value = normal(random);
    }
    SetBf16(name, std::move(shape), values);
  }

  void Remove(const std::string& name) { tensors_.erase(name); }
  void Rename(const std::string& from, const std::string& to) {
    tensors_[to] = tensors_.at(from);
    tensors_.erase(from);
  }
  std::vector<std::string> Names() const {
    std::vector<std::string> names;
    for (const auto& [name, tensor] : tensors_) {
      names.push_back(name);
    }
    return names;
  }

  std::string Bytes() const {
    std::string header, data;
    for (const auto& [name, tensor] : tensors_) {
      std::string shape;
      for (const int64_t size : tensor.shape) {
        shape += (shape.empty() ? "" : ",") + std::to_string(size);
      }
      header += (header.empty() ? "{\"" : ",\"") + name + "\":{\"dtype\":\"" + tensor.dtype +
                "\",\"shape\":[" + shape + "],\"data_offsets\":[" + std::to_string(data.size()) + "," +
                std::to_string(data.size() + tensor.bytes.size()) + "]}";
      data += tensor.bytes;
    }
    header += header.empty() ? "{}" : "}";
    header.resize((header.size() + 7) / 8 * 8, ' ');
    const uint64_t length = header.size();
    return std::string(reinterpret_cast<const char*>(&length), sizeof(length)) + header + data;
  }

 private:
  struct Tensor {
    std::string dtype;
    std::vector<int64_t> shape;
    std::string bytes;
  };
  std::map<std::string, Tensor> tensors_;
};

}  // namespace arborist::testing
