#pragma once

#include <chrono>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/time/time.h"
#include "common/log/log_line.h"
#include "common/rpc/rpc_config.h"
#include "coordinator/generation_defaults.h"

namespace arborist::coordinator {

// The coordinator's configuration, checked and complete; see CoordinatorConfig in
// proto/arborist/v1/config.proto.
struct Config {
  RpcSettings rpc;
  std::vector<std::string> verifiers;
  std::vector<std::string> drafters;
  std::string tokenizer;
  std::string model_name;  // empty: the verifier's
  int max_requests = 0;
  int max_samples = 1;  // of one request; at most max_requests
  Mode default_mode = Mode::kAuto;
  int default_tree_nodes = 0;
  int default_max_tokens = 0;  // 0: the context limit
  absl::Duration max_timeout;
  size_t max_unsent_bytes = 0;
  std::chrono::milliseconds reader_patience{30000};  // proto/arborist/v1/coordinator.proto names it
  std::string metrics_listen;                        // empty: nowhere
  LogLevel log_level = LogLevel::kInfo;
};

// --config FILE and single flags. InvalidArgument names field or flag. An empty usage text means that --help
// was not asked for.
struct CommandLine {
  Config config;
  std::string help;  // not empty: print it and leave
};
absl::StatusOr<CommandLine> ReadCommandLine(int argc, const char* const* argv);

}  // namespace arborist::coordinator
