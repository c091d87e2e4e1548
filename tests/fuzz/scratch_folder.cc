#include "tests/fuzz/scratch_folder.h"

#include <unistd.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "common/base/check.h"

namespace arborist::fuzz {

ScratchFolder::ScratchFolder() {
  const char* base = ::access("/dev/shm", W_OK) == 0 ? "/dev/shm" : "/tmp";
  path_ = std::string(base) + "/arborist_fuzz_XXXXXX";
  Check(::mkdtemp(path_.data()) != nullptr, "a scratch folder can be made");
}

ScratchFolder::~ScratchFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

void ScratchFolder::Write(const std::string& name, std::string_view bytes) const {
  std::ofstream file(path_ + "/" + name, std::ios::binary | std::ios::trunc);
  file.write(bytes.data(), static_cast<std::streamsize>(bytes.size()));
  file.close();
  Check(!file.fail(), "a scratch file can be written");
}

void ScratchFolder::Remove(const std::string& name) const {
  std::error_code ignored;
  std::filesystem::remove(path_ + "/" + name, ignored);
}

}  // namespace arborist::fuzz
