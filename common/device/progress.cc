#include "common/device/progress.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace arborist {

uint32_t Progress::AddPart(absl::string_view name) {
  parts_.push_back({std::string(name), {}});
  return static_cast<uint32_t>(parts_.size());
}

void Progress::AddKernel(absl::string_view kernel) {
  std::vector<std::string>& kernels = parts_.back().kernels;
  if (std::find(kernels.begin(), kernels.end(), kernel) == kernels.end()) {
    kernels.emplace_back(kernel);
  }
}

std::string Progress::Where() const {
  const uint32_t begun = *word();
  if (begun == 0 || begun > parts_.size()) {
    return "";
  }
  const Part& part = parts_[begun - 1];
  return absl::StrCat(" in ", part.name, " (one of ", absl::StrJoin(part.kernels, ", "), ")");
}

}  // namespace arborist
