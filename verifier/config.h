#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>

#include "absl/status/statusor.h"
#include "common/device/device.h"
#include "common/log/log_line.h"
#include "common/rpc/rpc_config.h"
#include "common/tensor/dtype.h"
#include "kernels/backend.h"
#include "verifier/shadow.h"

namespace arborist::verifier {

// VerifierConfig (config.proto) after every check that needs no model; 0 means: depends on the model.
struct Config {
  RpcSettings rpc;
  std::string model;
  std::string drafter;  // empty: no features
  std::string model_name;
  std::string tokenizer;  // empty: the model's, if it has one
  DeviceOptions device;
  DType kv_type = DType::kF32;
  kernels::Numerics numerics = kernels::Numerics::kExact;
  int threads = 1;
  int64_t kv_pages = 0;
  int max_sequences = 0;
  int max_queue = 0;
  int max_step_rows = 0;
  int context_length = 0;
  int max_tree_nodes = 0;
  int prefill_chunk = 0;
  std::chrono::milliseconds stall_limit{0};
  std::optional<uint64_t> cut_trees_seed;
  std::string metrics_listen;  // empty: nowhere
  LogLevel log_level = LogLevel::kInfo;
  ShadowOptions shadow;             // its callbacks are the caller's
  bool shadow_not_serving = false;  // after a fault
};

struct CommandLine {
  std::string help;  // not empty: print it and leave
  Config config;
};

// Reads --config, lays the other flags over it and checks the result.
absl::StatusOr<CommandLine> ReadCommandLine(int argc, const char* const* argv);

}  // namespace arborist::verifier
