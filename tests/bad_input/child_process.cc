#include "tests/bad_input/child_process.h"

#include <fcntl.h>
#include <spawn.h>
#include <unistd.h>

#include <cstdlib>

#include "absl/strings/str_cat.h"

namespace arborist::bad_input {

std::string ProgramPath(const std::string& name) {
  const char* const bin = std::getenv("ARBORIST_BIN");
  if (bin != nullptr && *bin != '\0') {
    return absl::StrCat(bin, "/", name);
  }
  const char* const build = std::getenv("ARBORIST_BINARY_DIR");
  return absl::StrCat(build == nullptr ? "" : build, "/bin/", name);
}

absl::StatusOr<pid_t> StartProgram(std::vector<std::string> words, const std::string& log) {
  std::vector<char*> argv;
  for (std::string& word : words) {
    argv.push_back(word.data());
  }
  argv.push_back(nullptr);
  posix_spawn_file_actions_t actions;
  posix_spawn_file_actions_init(&actions);
  posix_spawn_file_actions_addopen(&actions, STDOUT_FILENO, log.c_str(), O_CREAT | O_WRONLY | O_APPEND, 0600);
  posix_spawn_file_actions_adddup2(&actions, STDOUT_FILENO, STDERR_FILENO);
  pid_t pid = -1;
  const int failed = posix_spawn(&pid, argv[0], &actions, nullptr, argv.data(), environ);
  posix_spawn_file_actions_destroy(&actions);
  if (failed != 0) {
    return absl::NotFoundError(absl::StrCat(words[0], " does not start, expected a build of it"));
  }
  return pid;
}

}  // namespace arborist::bad_input
