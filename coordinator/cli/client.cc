#include "coordinator/cli/client.h"

#include <cstdio>
#include <string_view>

#include "coordinator/cli/commands.h"

namespace arborist::coordinator {
namespace {

constexpr char kUsage[] =
    "usage: arborist COMMAND [flags]      (arborist COMMAND --help lists the flags)\n"
    "  generate    generate text and stream it\n"
    "  model       what is served\n"
    "  tokenize    text to token ids\n"
    "  detokenize  token ids to text\n"
    "  health      whether a process serves; can wait for it\n"
    "  batch       generate many texts at once\n"
    "  ping        the round trip to a process\n";

// An answer that could not be written (a full disk) is no success.
int WithOutput(int status) {
  if (std::fflush(stdout) == 0 && std::ferror(stdout) == 0) {
    return status;
  }
  std::fputs("arborist: standard output cannot be written\n", stderr);
  return status != 0 ? status : 1;
}

}  // namespace

int RunClient(int argc, const char* const* argv) {
  struct Command {
    std::string_view name;
    int (*run)(int, const char* const*);
  };
  constexpr Command kCommands[] = {{"generate", GenerateCommand}, {"model", ModelCommand},
                                   {"tokenize", TokenizeCommand}, {"detokenize", DetokenizeCommand},
                                   {"health", HealthCommand},     {"batch", BatchCommand},
                                   {"ping", PingCommand}};
  const std::string_view name = argc > 1 ? argv[1] : "";
  for (const Command& command : kCommands) {
    if (name == command.name) {
      return WithOutput(command.run(argc - 1, argv + 1));
    }
  }
  const bool asked = name == "--help" || name == "help";
  std::fputs(kUsage, asked ? stdout : stderr);
  return asked ? 0 : 2;
}

}  // namespace arborist::coordinator
