#include "verifier/config.h"

#include <algorithm>
#include <filesystem>
#include <thread>

#include "absl/strings/escaping.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "arborist/v1/config.pb.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/rpc/channel.h"
#include "common/rpc/device_config.h"
#include "common/rpc/flags.h"
#include "common/rpc/status_bridge.h"
#include "common/rpc/textproto.h"

namespace arborist::verifier {
namespace {

constexpr int kStepRows = 512;
// 32 trees of 64 nodes: what does not fit a step waits for another, while a GPU reads the weights anew.
constexpr int kStepRowsOnGpu = 2080;

std::string NameOr(const std::string& name, int number) { return name.empty() ? absl::StrCat(number) : name; }

absl::StatusOr<DType> ReadKvType(v1::KvType type, DeviceKind device) {
  const bool cuda = device == DeviceKind::kCuda;
  switch (type) {
    case v1::KV_TYPE_UNSPECIFIED:
      return cuda ? DType::kBF16 : DType::kF32;
    case v1::KV_TYPE_F32:
      return DType::kF32;
    case v1::KV_TYPE_BF16:
      if (cuda) {
        return DType::kBF16;
      }
      [[fallthrough]];
    default:
      return FieldError("kv_type", NameOr(v1::KvType_Name(type), type),
                        cuda ? "F32 or BF16" : "F32 on the CPU");
  }
}

absl::Status SetKvType(const std::string& name, v1::VerifierConfig& config) {
  if (name != "f32" && name != "bf16") {
    return FieldError("--kv-type", name, "f32 or bf16");
  }
  config.set_kv_type(name == "f32" ? v1::KV_TYPE_F32 : v1::KV_TYPE_BF16);
  return absl::OkStatus();
}

absl::StatusOr<kernels::Numerics> ReadNumerics(v1::Numerics numerics, DeviceKind device) {
  const bool cuda = device == DeviceKind::kCuda;
  if (numerics == v1::NUMERICS_UNSPECIFIED || numerics == v1::NUMERICS_EXACT) {
    return kernels::Numerics::kExact;
  }
  if (numerics == v1::NUMERICS_FAST && cuda) {
    return kernels::Numerics::kFast;
  }
  return FieldError("numerics", NameOr(v1::Numerics_Name(numerics), numerics),
                    cuda ? "EXACT or FAST" : "EXACT on the CPU");
}

absl::Status SetNumerics(const std::string& name, v1::VerifierConfig& config) {
  if (name != "exact" && name != "fast") {
    return FieldError("--numerics", name, "exact or fast");
  }
  config.set_numerics(name == "exact" ? v1::NUMERICS_EXACT : v1::NUMERICS_FAST);
  return absl::OkStatus();
}

absl::StatusOr<ShadowKernel> ReadShadowKernel(v1::ShadowKernel kernel, const Config& config) {
  const bool exact = config.numerics == kernels::Numerics::kExact;
  switch (kernel) {
    case v1::SHADOW_KERNEL_TREE_ATTENTION_MLA:
      return ShadowKernel::kTreeAttentionMla;
    case v1::SHADOW_KERNEL_MOE_ROUTE:
      return ShadowKernel::kMoeRoute;
    case v1::SHADOW_KERNEL_SAMPLE_TARGET:
      return ShadowKernel::kSampleTarget;
    case v1::SHADOW_KERNEL_TREE_ACCEPT:
      return ShadowKernel::kTreeAccept;
    case v1::SHADOW_KERNEL_KV_COMPACT:
      if (exact) {
        return ShadowKernel::kKvCompact;
      }
      return FieldError("shadow.kernels", "KV_COMPACT", "it only with numerics EXACT");
    case v1::SHADOW_KERNEL_RECORDED_STEP:
      if (exact && config.device.kind == DeviceKind::kCuda) {
        return ShadowKernel::kRecordedStep;
      }
      return FieldError("shadow.kernels", "RECORDED_STEP", "it only with device CUDA and numerics EXACT");
    default:
      return FieldError("shadow.kernels", absl::StrCat(static_cast<int>(kernel)), "a kernel's name");
  }
}

absl::Status CheckPart(const std::string& field, float value) {
  if (!(value >= 0 && value <= 1)) {
    return FieldError(field, absl::StrCat(value), "a value in [0, 1]");
  }
  return absl::OkStatus();
}

// After device, numerics and kv_type of `config`.
absl::StatusOr<ShadowOptions> ReadShadowConfig(const v1::ShadowConfig& in, const Config& config) {
  ShadowOptions out;
  RETURN_IF_ERROR(CheckPart("shadow.fraction", in.fraction()));
  RETURN_IF_ERROR(CheckPart("shadow.relative_limit", in.relative_limit()));
  out.fraction = in.fraction();
  out.relative_limit = in.relative_limit() > 0 ? in.relative_limit() : DefaultShadowLimit(config.kv_type);
  for (const int kernel : in.kernels()) {
    ASSIGN_OR_RETURN(const ShadowKernel named,
                     ReadShadowKernel(static_cast<v1::ShadowKernel>(kernel), config));
    if (std::find(out.kernels.begin(), out.kernels.end(), named) != out.kernels.end()) {
      return FieldError("shadow.kernels", v1::ShadowKernel_Name(kernel), "each kernel once");
    }
    out.kernels.push_back(named);
  }
  out.exact = config.numerics == kernels::Numerics::kExact;
  ASSIGN_OR_RETURN(out.rows, ValueOr("shadow.rows", in.rows(), out.rows, 1, 64));
  return out;
}

absl::Status SetShadowFraction(const std::string& value, v1::VerifierConfig& config) {
  float fraction = 0;
  if (!absl::SimpleAtof(value, &fraction) || !(fraction >= 0 && fraction <= 1)) {
    return FieldError("--shadow-fraction", value, "a value in [0, 1]");
  }
  config.mutable_shadow()->set_fraction(fraction);
  return absl::OkStatus();
}

absl::StatusOr<Config> Check(const v1::VerifierConfig& in) {
  Config out;
  ASSIGN_OR_RETURN(out.rpc, ReadRpcConfig(in.rpc()));
  if (in.model().empty()) {
    return FieldError("model", "", "the directory of the target model (flag --model)");
  }
  ASSIGN_OR_RETURN(out.device, ReadDeviceConfig(in.device(), in.gpu()));
  ASSIGN_OR_RETURN(out.kv_type, ReadKvType(in.kv_type(), out.device.kind));
  ASSIGN_OR_RETURN(out.numerics, ReadNumerics(in.numerics(), out.device.kind));
  out.model = in.model();
  out.drafter = in.drafter();
  out.tokenizer = in.tokenizer();
  const std::filesystem::path directory = std::filesystem::path(in.model()).lexically_normal();
  out.model_name = !in.model_name().empty()
                       ? in.model_name()
                       : (directory.has_filename() ? directory : directory.parent_path()).filename().string();
  if (!IsPrintableUtf8(out.model_name)) {
    return FieldError("model_name", absl::CHexEscape(out.model_name),
                      "UTF-8 without control characters (flag --model-name)");
  }
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  ASSIGN_OR_RETURN(out.threads, ValueOr("threads", in.threads(), cores, 1, 1024));
  RETURN_IF_ERROR(CheckRange("kv_pages", in.kv_pages(), 0, 16777216));
  out.kv_pages = in.kv_pages();
  ASSIGN_OR_RETURN(out.max_sequences, ValueOr("max_sequences", in.max_sequences(), 64, 1, 4096));
  ASSIGN_OR_RETURN(out.max_queue, ValueOr("max_queue", in.max_queue(), 256, 1, 65536));
  ASSIGN_OR_RETURN(out.max_tree_nodes, ValueOr("max_tree_nodes", in.max_tree_nodes(), 255, 1, 255));
  // A step holds at least the largest tree and one prompt row.
  const int step_rows = out.device.kind == DeviceKind::kCuda ? kStepRowsOnGpu : kStepRows;
  ASSIGN_OR_RETURN(out.max_step_rows,
                   ValueOr("max_step_rows", in.max_step_rows(), step_rows, out.max_tree_nodes + 2, 8192));
  ASSIGN_OR_RETURN(out.prefill_chunk, ValueOr("prefill_chunk", in.prefill_chunk(),
                                              std::min(out.max_step_rows, kStepRows), 1, out.max_step_rows));
  // A token of a prompt and one of an output; 0: the model's.
  ASSIGN_OR_RETURN(out.context_length, ValueOr("context_length", in.context_length(), 0, 2, 16777216));
  ASSIGN_OR_RETURN(const int64_t stall,
                   ValueOr("stall_ms", in.stall_ms(), DefaultStallLimit().count(), 100, 3600000));
  out.stall_limit = std::chrono::milliseconds(stall);
  if (in.has_cut_trees_seed()) {
    out.cut_trees_seed = in.cut_trees_seed();
  }
  ASSIGN_OR_RETURN(out.metrics_listen, ReadMetricsConfig(in.metrics()));
  ASSIGN_OR_RETURN(out.log_level, ReadLogLevel(in.log_level()));
  ASSIGN_OR_RETURN(out.shadow, ReadShadowConfig(in.shadow(), out));
  out.shadow_not_serving = in.shadow().not_serving_on_fault();
  return out;
}

}  // namespace

absl::StatusOr<CommandLine> ReadCommandLine(int argc, const char* const* argv) {
  std::string path;
  bool help = false;
  v1::VerifierConfig over;
  FlagSet flags("usage: arborist-verifier --config FILE [flags]; see VerifierConfig in config.proto");
  flags.AddText("config", "textproto file", [&](const std::string& v) { path = v; });
  flags.AddText("listen", "unix:/path or host:port; may be repeated",
                [&](const std::string& v) { over.mutable_rpc()->add_listen(v); });
  flags.AddText("model", "directory of the target model", [&](const std::string& v) { over.set_model(v); });
  flags.AddText("drafter", "directory of the drafter checkpoint the feature projection comes from",
                [&](const std::string& v) { over.set_drafter(v); });
  flags.AddText("model-name", "name in GetInfo", [&](const std::string& v) { over.set_model_name(v); });
  flags.AddText("tokenizer", "directory of the tokenizer that constraints and bad_words need",
                [&](const std::string& v) { over.set_tokenizer(v); });
  AddDeviceFlags(flags, over);
  flags.AddInteger("threads", "compute threads", 1, 1024, [&](int64_t v) { over.set_threads(v); });
  flags.Add("kv-type", "f32, or bf16 on a GPU", [&](const std::string& v) { return SetKvType(v, over); });
  flags.Add("numerics", "exact, or fast on a GPU",
            [&](const std::string& v) { return SetNumerics(v, over); });
  flags.AddInteger("kv-pages", "KV pages of 64 positions", 1, 16777216,
                   [&](int64_t v) { over.set_kv_pages(v); });
  flags.AddInteger("max-sequences", "sequences in decode at once", 1, 4096,
                   [&](int64_t v) { over.set_max_sequences(v); });
  flags.AddInteger("context-length", "positions of prompt + output", 2, 16777216,
                   [&](int64_t v) { over.set_context_length(v); });
  AddMetricsFlag(flags, over);
  AddLogLevelFlag(flags, over);
  flags.Add("shadow-fraction", "part of the steps whose kernels are compared with oracles, in [0, 1]",
            [&](const std::string& v) { return SetShadowFraction(v, over); });
  flags.AddInteger("peer-silence-ms", "silence after which a peer is unusable", 50, 600000,
                   [&](int64_t v) { over.mutable_rpc()->set_peer_silence_ms(v); });
  flags.AddSwitch("help", "print this", [&] { help = true; });
  RETURN_IF_ERROR(flags.Parse(argc, argv));
  CommandLine line;
  if (help) {
    line.help = flags.Help();
    return line;
  }
  v1::VerifierConfig config;
  if (!path.empty()) {
    RETURN_IF_ERROR(LoadTextproto(path, config));
  }
  if (over.rpc().listen_size() > 0) {
    config.mutable_rpc()->clear_listen();
  }
  config.MergeFrom(over);
  ASSIGN_OR_RETURN(line.config, Check(config));
  return line;
}

}  // namespace arborist::verifier
