#pragma once

namespace arborist::coordinator {

// One function for each command; argv[0] is the command's name. Each returns the exit status.
int GenerateCommand(int argc, const char* const* argv);
int ModelCommand(int argc, const char* const* argv);
int TokenizeCommand(int argc, const char* const* argv);
int DetokenizeCommand(int argc, const char* const* argv);
int HealthCommand(int argc, const char* const* argv);
int BatchCommand(int argc, const char* const* argv);
int PingCommand(int argc, const char* const* argv);

}  // namespace arborist::coordinator
