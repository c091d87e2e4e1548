#pragma once

#include <string>
#include <string_view>

namespace arborist::fuzz {

// A folder of this process in memory (/dev/shm, else /tmp), gone at its end: readers under test open paths.
class ScratchFolder {
 public:
  ScratchFolder();
  ~ScratchFolder();
  const std::string& path() const { return path_; }
  void Write(const std::string& name, std::string_view bytes) const;
  void Remove(const std::string& name) const;

 private:
  std::string path_;
};

}  // namespace arborist::fuzz
