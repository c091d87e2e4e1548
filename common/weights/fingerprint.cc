#include "common/weights/fingerprint.h"

#include <openssl/sha.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <map>
#include <sstream>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "common/base/model_file.h"
#include "common/base/status_macros.h"
#include "common/weights/checkpoint.h"
#include "common/weights/mapped_file.h"

namespace arborist {
namespace {

constexpr char kCacheName[] = ".arborist-sha256";

// "size mtime_seconds mtime_nanoseconds"
absl::StatusOr<std::string> Stamp(const std::string& path) {
  struct stat info;
  if (::stat(path.c_str(), &info) != 0) {
    return absl::NotFoundError(absl::StrCat(path, ": cannot be examined: ", std::strerror(errno)));
  }
  return absl::StrCat(info.st_size, " ", info.st_mtim.tv_sec, " ", info.st_mtim.tv_nsec);
}

struct CachedHash {
  std::string stamp;
  std::string hash;
};

// One line a file: "size seconds nanoseconds hash name". A damaged line is worth nothing and is dropped.
std::map<std::string, CachedHash> ReadCache(const std::string& path) {
  std::map<std::string, CachedHash> cache;
  if (!CheckModelFile(path).ok()) {  // a pipe would hold us up
    return cache;
  }
  std::ifstream file(path);
  std::string line;
  while (std::getline(file, line)) {
    std::istringstream words(line);
    std::string size, seconds, nanoseconds, hash, name;
    if (words >> size >> seconds >> nanoseconds >> hash && std::getline(words >> std::ws, name) &&
        hash.size() == 2 * SHA256_DIGEST_LENGTH) {
      cache[name] = {absl::StrCat(size, " ", seconds, " ", nanoseconds), hash};
    }
  }
  return cache;
}

// Best effort: a read-only checkpoint only costs time.
void WriteCache(const std::string& path, const std::map<std::string, CachedHash>& cache) {
  const std::string temporary = absl::StrCat(path, ".", ::getpid());
  {
    std::ofstream file(temporary, std::ios::trunc);
    for (const auto& [name, entry] : cache) {
      file << entry.stamp << ' ' << entry.hash << ' ' << name << '\n';
    }
    if (!file.flush()) {
      std::remove(temporary.c_str());
      return;
    }
  }
  if (std::rename(temporary.c_str(), path.c_str()) != 0) {
    std::remove(temporary.c_str());
  }
}

}  // namespace

std::string Sha256(std::span<const std::byte> bytes) {
  unsigned char digest[SHA256_DIGEST_LENGTH];
  SHA256(reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size(), digest);
  return absl::BytesToHexString(
      absl::string_view(reinterpret_cast<const char*>(digest), SHA256_DIGEST_LENGTH));
}

std::string Sha256(const std::string& text) { return Sha256(std::as_bytes(std::span(text))); }

absl::StatusOr<std::string> FileSha256(const std::string& directory, const std::string& file_name) {
  const std::string path = absl::StrCat(directory, "/", file_name);
  const std::string cache_path = absl::StrCat(directory, "/", kCacheName);
  ASSIGN_OR_RETURN(const std::string stamp, Stamp(path));
  std::map<std::string, CachedHash> cache = ReadCache(cache_path);
  if (const auto found = cache.find(file_name); found != cache.end() && found->second.stamp == stamp) {
    return found->second.hash;
  }
  ASSIGN_OR_RETURN(const MappedFile file, MappedFile::Open(path));
  const std::string hash = Sha256(file.bytes());
  cache[file_name] = {stamp, hash};
  WriteCache(cache_path, cache);
  return hash;
}

absl::StatusOr<std::string> CheckpointFingerprint(const std::string& directory) {
  ASSIGN_OR_RETURN(std::vector<std::string> names, WeightFileNames(directory));
  names.insert(names.begin(), "config.json");
  std::string text;
  for (const std::string& name : names) {
    ASSIGN_OR_RETURN(const std::string hash, FileSha256(directory, name));
    absl::StrAppend(&text, hash, " ", name, "\n");
  }
  return Sha256(text);
}

}  // namespace arborist
