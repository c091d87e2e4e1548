#include "coordinator/config.h"

#include <algorithm>

#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "arborist/v1/config.pb.h"
#include "common/base/status_macros.h"
#include "common/base/utf8.h"
#include "common/rpc/channel.h"
#include "common/rpc/flags.h"
#include "common/rpc/status_bridge.h"
#include "common/rpc/textproto.h"
#include "coordinator/request_codec.h"

namespace arborist::coordinator {
namespace {

constexpr int kMaxPeers = 64;

absl::StatusOr<Mode> DecodeMode(v1::SpeculationMode mode) {
  switch (mode) {
    case v1::SPECULATION_MODE_UNSPECIFIED:
    case v1::SPECULATION_MODE_AUTO:
      return Mode::kAuto;
    case v1::SPECULATION_MODE_TREE:
      return Mode::kTree;
    case v1::SPECULATION_MODE_CHAIN:
      return Mode::kChain;
    case v1::SPECULATION_MODE_OFF:
      return Mode::kOff;
    default:
      return FieldError("default_mode", absl::StrCat(static_cast<int>(mode)), "AUTO, TREE, CHAIN or OFF");
  }
}

absl::Status ReadPeers(const char* field, const google::protobuf::RepeatedPtrField<std::string>& addresses,
                       int least, std::vector<std::string>& out) {
  if (addresses.size() < least || addresses.size() > kMaxPeers) {
    return FieldError(field, absl::StrCat(addresses.size(), " addresses"),
                      absl::StrCat(least, " to ", kMaxPeers));
  }
  for (int i = 0; i < addresses.size(); ++i) {
    RETURN_IF_ERROR(ValidateAddress(absl::StrCat(field, "[", i, "]"), addresses[i]));
    out.push_back(addresses[i]);
  }
  return absl::OkStatus();
}

absl::StatusOr<Config> Check(const v1::CoordinatorConfig& in) {
  Config out;
  ASSIGN_OR_RETURN(out.rpc, ReadRpcConfig(in.rpc()));
  RETURN_IF_ERROR(ReadPeers("verifiers", in.verifiers(), 1, out.verifiers));
  RETURN_IF_ERROR(ReadPeers("drafters", in.drafters(), 0, out.drafters));
  if (in.tokenizer().empty()) {
    return FieldError("tokenizer", "", "the directory of the model (flag --tokenizer)");
  }
  out.tokenizer = in.tokenizer();
  out.model_name = in.model_name();
  if (!IsPrintableUtf8(out.model_name)) {
    return FieldError("model_name", absl::CHexEscape(out.model_name), "UTF-8 without control characters");
  }
  ASSIGN_OR_RETURN(out.max_requests, ValueOr("max_requests", in.max_requests(), 256, 1, 65536));
  ASSIGN_OR_RETURN(const int64_t samples, ValueOr("max_samples", in.max_samples(), 128, 1, kMaxSamples));
  out.max_samples = std::min(static_cast<int>(samples), out.max_requests);  // each is one of those
  ASSIGN_OR_RETURN(out.default_mode, DecodeMode(in.default_mode()));
  ASSIGN_OR_RETURN(out.default_tree_nodes,
                   ValueOr("default_tree_nodes", in.default_tree_nodes(), 16, 1, 255));
  RETURN_IF_ERROR(CheckRange("default_max_tokens", in.default_max_tokens(), 0, INT32_MAX));
  out.default_max_tokens = in.default_max_tokens();
  ASSIGN_OR_RETURN(const int64_t timeout,
                   ValueOr("max_timeout_ms", in.max_timeout_ms(), 3600000, 1, 86400000));
  out.max_timeout = absl::Milliseconds(timeout);
  ASSIGN_OR_RETURN(out.max_unsent_bytes,
                   ValueOr("max_unsent_bytes", in.max_unsent_bytes(), 1 << 20, 1, 16 << 20));
  ASSIGN_OR_RETURN(out.metrics_listen, ReadMetricsConfig(in.metrics()));
  ASSIGN_OR_RETURN(out.log_level, ReadLogLevel(in.log_level()));
  return out;
}

}  // namespace

absl::StatusOr<CommandLine> ReadCommandLine(int argc, const char* const* argv) {
  CommandLine out;
  std::string path;
  v1::CoordinatorConfig over;  // what flags say
  FlagSet flags("usage: arborist-coordinator [--config FILE] [flags]");
  flags.AddText("config", "CoordinatorConfig as textproto", [&](const std::string& v) { path = v; });
  flags.AddText("listen", "unix:/path or host:port; may be repeated",
                [&](const std::string& v) { over.mutable_rpc()->add_listen(v); });
  flags.AddText("verifier", "address of a verifier, best first; may be repeated",
                [&](const std::string& v) { over.add_verifiers(v); });
  flags.AddText("drafter", "address of a drafter, best first; may be repeated",
                [&](const std::string& v) { over.add_drafters(v); });
  flags.AddText("tokenizer", "directory of the model", [&](const std::string& v) { over.set_tokenizer(v); });
  flags.AddInteger("max-requests", "the most requests at once", 1, 65536,
                   [&](int64_t v) { over.set_max_requests(static_cast<int32_t>(v)); });
  flags.AddInteger("max-samples", "the most answers of one request", 1, kMaxSamples,
                   [&](int64_t v) { over.set_max_samples(static_cast<int32_t>(v)); });
  flags.AddInteger("peer-silence-ms", "silence after which a peer is unusable", 50, 600000,
                   [&](int64_t v) { over.mutable_rpc()->set_peer_silence_ms(static_cast<int32_t>(v)); });
  AddMetricsFlag(flags, over);
  AddLogLevelFlag(flags, over);
  flags.AddSwitch("help", "this text", [&] { out.help = flags.Help(); });
  RETURN_IF_ERROR(flags.Parse(argc, argv));
  if (!out.help.empty()) {
    return out;
  }
  v1::CoordinatorConfig config;
  if (!path.empty()) {
    RETURN_IF_ERROR(LoadTextproto(path, config));
  }
  if (over.rpc().listen_size() > 0) {  // a list given by flags replaces the file's
    config.mutable_rpc()->clear_listen();
  }
  if (over.verifiers_size() > 0) {
    config.clear_verifiers();
  }
  if (over.drafters_size() > 0) {
    config.clear_drafters();
  }
  config.MergeFrom(over);
  ASSIGN_OR_RETURN(out.config, Check(config));
  return out;
}

}  // namespace arborist::coordinator
