#include "common/weights/mapped_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "common/base/model_file.h"
#include "common/base/status_macros.h"

namespace arborist {
namespace {

absl::Status Failed(const std::string& path, const char* what) {
  const int error = errno;
  const std::string message = absl::StrCat(path, ": ", what, ": ", std::strerror(error));
  return error == ENOENT ? absl::NotFoundError(message) : absl::FailedPreconditionError(message);
}

}  // namespace

absl::StatusOr<MappedFile> MappedFile::Open(const std::string& path) {
  RETURN_IF_ERROR(CheckModelFile(path));
  const int file = ::open(path.c_str(), O_RDONLY | O_CLOEXEC);
  if (file < 0) {
    return Failed(path, "cannot be opened");
  }
  struct stat info;
  if (::fstat(file, &info) != 0) {
    const absl::Status status = Failed(path, "cannot be examined");
    ::close(file);
    return status;
  }
  const size_t size = static_cast<size_t>(info.st_size);
  if (size == 0) {  // mmap refuses it
    ::close(file);
    return MappedFile(path, {});
  }
  void* data = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, file, 0);
  const absl::Status status = data == MAP_FAILED ? Failed(path, "cannot be mapped") : absl::OkStatus();
  ::close(file);
  if (!status.ok()) {
    return status;
  }
  return MappedFile(path, {static_cast<const std::byte*>(data), size});
}

MappedFile::~MappedFile() {
  if (!bytes_.empty()) {
    ::munmap(const_cast<std::byte*>(bytes_.data()), bytes_.size());
  }
}

}  // namespace arborist
