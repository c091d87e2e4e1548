#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "common/device/device.h"

namespace arborist {

// How far recorded work has come: it is divided into parts, and the GPU says in the host's memory which one
// it has begun. So the kernels of one part can be named after a fault, which does not say where it was.
class Progress {
 public:
  // `word` is page-locked memory.
  explicit Progress(DeviceMemory word) : word_(std::move(word)) { Begun(0); }

  // The next part of what is being recorded; part 0 is nothing.
  uint32_t AddPart(absl::string_view name);
  // One more kernel of the last part.
  void AddKernel(absl::string_view kernel);

  void Begun(uint32_t part) { *word() = part; }
  volatile uint32_t* word() const { return static_cast<volatile uint32_t*>(word_.data()); }
  // " in <part> (one of <kernels>)", or "" while nothing has begun.
  std::string Where() const;

 private:
  struct Part {
    std::string name;
    std::vector<std::string> kernels;  // each once
  };
  DeviceMemory word_;
  std::vector<Part> parts_;
};

}  // namespace arborist
