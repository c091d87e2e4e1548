#include "common/base/model_file.h"

#include <filesystem>
#include <fstream>
#include <system_error>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"

namespace arborist {
namespace {

namespace fs = std::filesystem;

bool IsBelow(const fs::path& path, const fs::path& folder) {
  fs::path at = path.parent_path();
  while (at != folder && at != at.parent_path()) {
    at = at.parent_path();
  }
  return at == folder;
}

// folder = .../snapshots/REVISION, real = .../blobs/HASH
bool IsBlobOfSnapshot(const fs::path& real, const fs::path& folder) {
  const fs::path snapshots = folder.parent_path();
  return snapshots.filename() == "snapshots" && real.parent_path() == snapshots.parent_path() / "blobs";
}

absl::Status Unreachable(const std::string& path, const std::error_code& error) {
  return absl::NotFoundError(absl::StrCat(path, ": cannot be opened: ", error.message()));
}

}  // namespace

bool HasModelFile(const std::string& path) {
  std::error_code error;
  return fs::exists(fs::symlink_status(path, error));
}

absl::Status CheckModelFile(const std::string& path) {
  std::error_code error;
  const fs::path real = fs::canonical(path, error);
  if (error) {
    return Unreachable(path, error);
  }
  const fs::path parent = fs::path(path).parent_path();
  const fs::path folder = fs::canonical(parent.empty() ? "." : parent, error);
  if (error) {
    return Unreachable(path, error);
  }
  if (!IsBelow(real, folder) && !IsBlobOfSnapshot(real, folder)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": is a symbolic link to ", real.string(),
                                                   ", expected a file inside ", folder.string()));
  }
  if (!fs::is_regular_file(real, error)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": not a regular file"));
  }
  return absl::OkStatus();
}

absl::StatusOr<std::string> ReadModelFile(const std::string& path, int64_t most_bytes) {
  RETURN_IF_ERROR(CheckModelFile(path));
  std::ifstream file(path, std::ios::binary | std::ios::ate);
  const int64_t size = file ? static_cast<int64_t>(file.tellg()) : -1;
  if (size > most_bytes) {
    return absl::InvalidArgumentError(
        absl::StrCat(path, ": size=", size, " bytes, expected at most ", most_bytes));
  }
  std::string bytes(size > 0 ? size : 0, '\0');
  if (size < 0 || !file.seekg(0) || !file.read(bytes.data(), size)) {
    return absl::FailedPreconditionError(absl::StrCat(path, ": cannot be read, expected a readable file"));
  }
  return bytes;
}

}  // namespace arborist
