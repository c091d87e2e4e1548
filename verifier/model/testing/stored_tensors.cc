#include "verifier/model/testing/stored_tensors.h"

#include <cstring>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "common/weights/safetensors.h"
#include "verifier/model/testing/golden_model.h"

namespace arborist::verifier::testing {

Tensors ReadTensors(const std::string& path) {
  const auto file = SafetensorsFile::Open(path);
  Tensors tensors;
  for (const std::string& name : file->Names()) {
    const TensorView view = *file->Find(name);
    tensors[name] = {std::string(Name(view.dtype)), view.shape,
                     std::string(reinterpret_cast<const char*>(view.data), view.bytes)};
  }
  return tensors;
}

void WriteTensors(const std::string& path, const Tensors& tensors) {
  std::vector<std::string> entries;
  std::string data;
  // Wider types first, so that all are aligned.
  for (const bool wide : {true, false}) {
    for (const auto& [name, tensor] : tensors) {
      if ((tensor.dtype == "F32") != wide) {
        continue;
      }
      entries.push_back(absl::StrCat("\"", name, "\": {\"dtype\": \"", tensor.dtype, "\", \"shape\": [",
                                     absl::StrJoin(tensor.shape, ","), "], \"data_offsets\": [", data.size(),
                                     ",", data.size() + tensor.bytes.size(), "]}"));
      data += tensor.bytes;
    }
  }
  std::string header = absl::StrCat("{", absl::StrJoin(entries, ", "), "}");
  header.resize((header.size() + 7) / 8 * 8, ' ');
  const uint64_t length = header.size();
  std::ofstream file(path, std::ios::binary);
  file.write(reinterpret_cast<const char*>(&length), 8);
  file << header << data;
}

void Widen(Tensors& tensors) {
  for (auto& [name, tensor] : tensors) {
    if (tensor.dtype != "BF16") {
      continue;
    }
    std::string wide;
    for (size_t i = 0; i < tensor.bytes.size(); i += 2) {
      BFloat16 value;
      std::memcpy(&value.bits, tensor.bytes.data() + i, 2);
      const float widened = ToFloat(value);
      wide.append(reinterpret_cast<const char*>(&widened), 4);
    }
    tensor = {"F32", tensor.shape, wide};
  }
}

void WriteWidenedGolden(const std::string& name, const std::string& directory) {
  const std::filesystem::path to = directory;
  for (const auto& entry : std::filesystem::directory_iterator(GoldenDirectory(name))) {
    const std::filesystem::path& from = entry.path();
    if (from.extension() == ".safetensors" && from.stem() != "golden") {
      Tensors tensors = ReadTensors(from.string());
      Widen(tensors);
      WriteTensors((to / from.filename()).string(), tensors);
    } else if (from.extension() == ".json") {
      std::filesystem::copy_file(from, to / from.filename());
    }
  }
}

}  // namespace arborist::verifier::testing
