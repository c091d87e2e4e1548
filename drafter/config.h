#pragma once

#include <string>

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/log/log_line.h"
#include "common/rpc/rpc_config.h"
#include "drafter/fault_points.h"

namespace arborist::drafter {

enum class ProposerKind { kDFlash, kNgram };

// DrafterConfig (config.proto) after every check.
struct Config {
  RpcSettings rpc;
  std::string verifier;
  ProposerKind proposer = ProposerKind::kNgram;
  std::string model;     // of DFlash
  std::string target;    // of DFlash
  DeviceOptions device;  // of DFlash
  int threads = 1;
  int max_sequences = 0;
  float score_scale = 1;
  bool coupled = true;
  int decode_tokens = 0;
  int plain_decode_tokens = 0;
  FaultPlan fault;             // test hook
  std::string tokenizer;       // empty: the target's, if it has one
  std::string metrics_listen;  // empty: nowhere
  LogLevel log_level = LogLevel::kInfo;
};

struct CommandLine {
  std::string help;  // not empty: print it and leave
  Config config;
};

// Reads --config, lays the other flags over it and checks the result.
absl::StatusOr<CommandLine> ReadCommandLine(int argc, const char* const* argv);

}  // namespace arborist::drafter
