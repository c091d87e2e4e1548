// A .safetensors file and an index over shards. What opens must lie inside the file, aligned, without overlap
// and without gaps, and no name may lead out of the folder.
//
// Input: a byte that says which: 0 a whole file; 1 two bytes of data size, then a header (its length is set
// right); 2 an index, beside one shard.
#include <map>

#include "common/base/check.h"
#include "common/weights/checkpoint.h"
#include "common/weights/safetensors.h"
#include "tests/fuzz/fuzz_input.h"
#include "tests/fuzz/scratch_folder.h"

namespace arborist {
namespace {

std::string WithLength(std::string_view header, size_t data_bytes) {
  const uint64_t length = header.size();
  std::string file(reinterpret_cast<const char*>(&length), sizeof(length));
  file += header;
  file.resize(file.size() + data_bytes, '\x55');
  return file;
}

void CheckTensor(const TensorView& tensor) {
  int64_t elements = 1;
  for (const int64_t dimension : tensor.shape) {
    Check(dimension >= 0, "sizes are not negative");
    elements *= dimension;
  }
  Check(static_cast<int64_t>(tensor.bytes) == elements * static_cast<int64_t>(ByteSize(tensor.dtype)),
        "a tensor has the bytes of its shape");
  Check(elements == 0 || reinterpret_cast<uintptr_t>(tensor.data) % ByteSize(tensor.dtype) == 0, "aligned");
  volatile uint8_t sum = 0;  // faults where the mapping ends
  for (size_t i = 0; i < tensor.bytes; ++i) {
    sum = static_cast<uint8_t>(sum + static_cast<uint8_t>(tensor.data[i]));
  }
}

void CheckFile(const fuzz::ScratchFolder& folder, const std::string& bytes) {
  folder.Write("x.safetensors", bytes);
  const absl::StatusOr<SafetensorsFile> file = SafetensorsFile::Open(folder.path() + "/x.safetensors");
  if (!file.ok()) {
    Check(!file.status().message().empty(), "a refusal says why");
    return;
  }
  Check(!file->Has("__metadata__"), "metadata is no tensor");
  bool all_known = true;
  size_t total = 0;
  std::map<const std::byte*, const std::byte*> stretches;  // begin -> end
  for (const std::string& name : file->Names()) {
    const absl::StatusOr<TensorView> tensor = file->Find(name);
    all_known = all_known && tensor.ok();
    if (tensor.ok()) {
      CheckTensor(*tensor);
      total += tensor->bytes;
      if (tensor->bytes > 0) {
        Check(stretches.emplace(tensor->data, tensor->data + tensor->bytes).second,
              "no two begin at one byte");
      }
    }
  }
  const std::byte* reached = stretches.empty() ? nullptr : stretches.begin()->first;
  for (const auto& [begin, end] : stretches) {
    Check(all_known ? begin == reached : begin >= reached, "no overlap, and no gap");
    reached = end;
  }
  uint64_t header = 0;
  bytes.copy(reinterpret_cast<char*>(&header), sizeof(header));
  Check(!all_known || total == bytes.size() - sizeof(header) - header, "tensors fill the file");
}

void CheckIndex(const fuzz::ScratchFolder& folder, std::string_view index) {
  folder.Write("model.safetensors.index.json", index);
  const absl::StatusOr<std::vector<std::string>> names = WeightFileNames(folder.path());
  if (names.ok()) {
    for (const std::string& name : *names) {
      Check(name.find('/') == std::string::npos && name != ".." && name != "." && !name.empty(),
            "a shard is a file of the folder");
    }
  }
  const absl::StatusOr<Checkpoint> checkpoint = Checkpoint::Open(folder.path());
  if (checkpoint.ok()) {
    for (const std::string& name : checkpoint->Names()) {
      const absl::StatusOr<TensorView> tensor = checkpoint->Find(name);
      if (tensor.ok()) {
        CheckTensor(*tensor);
      }
    }
  }
}

}  // namespace
}  // namespace arborist

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace arborist;
  static const fuzz::ScratchFolder files, shards;
  static const bool has_shard = [] {
    shards.Write("a.safetensors",
                 WithLength(R"({"w":{"dtype":"F32","shape":[2,2],"data_offsets":[0,16]}} )", 16));
    return true;
  }();
  Check(has_shard, "the index has a shard to name");
  fuzz::FuzzInput input(data, size);
  switch (input.Below(3)) {
    case 0:
      CheckFile(files, std::string(input.rest()));
      break;
    case 1: {
      const size_t data_bytes = input.Byte() * size_t{256} + input.Byte();
      CheckFile(files, WithLength(input.rest(), data_bytes));
      break;
    }
    default:
      CheckIndex(shards, input.rest());
  }
  return 0;
}
