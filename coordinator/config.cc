#include "coordinator/config.h"

#include "absl/strings/str_cat.h"
#include "arborist/v1/config.pb.h"
#include "common/base/status_macros.h"
#include "common/rpc/channel.h"
#include "common/rpc/flags.h"
#include "common/rpc/status_bridge.h"
#include "common/rpc/textproto.h"

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
  ASSIGN_OR_RETURN(out.max_requests, ValueOr("max_requests", in.max_requests(), 256, 1, 65536));
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
  return out;
}

// A list given by flags replaces the file's.
std::function<absl::Status(const std::string&)> Replacing(
    google::protobuf::RepeatedPtrField<std::string>* list) {
  return [list, first = true](const std::string& value) mutable {
    if (first) {
      list->Clear();
      first = false;
    }
    *list->Add() = value;
    return absl::OkStatus();
  };
}

}  // namespace

absl::StatusOr<CommandLine> ReadCommandLine(int argc, const char* const* argv) {
  CommandLine out;
  std::string path;
  v1::CoordinatorConfig file;
  // The file is read first, wherever --config stands, so that flags override it.
  FlagSet flags("usage: arborist-coordinator [--config FILE] [flags]");
  bool applying = false;
  const auto when_applying = [&](std::function<absl::Status(const std::string&)> apply) {
    return [&applying, apply = std::move(apply)](const std::string& value) {
      return applying ? apply(value) : absl::OkStatus();
    };
  };
  flags.Add("config", "CoordinatorConfig as textproto", [&](const std::string& value) {
    path = value;
    return absl::OkStatus();
  });
  flags.Add("listen", "address to serve on, unix:/path or host:port; may be repeated",
            when_applying([&](const std::string& value) {
              file.mutable_rpc()->add_listen(value);
              return absl::OkStatus();
            }));
  flags.Add("verifier", "address of a verifier, best first; may be repeated",
            when_applying(Replacing(file.mutable_verifiers())));
  flags.Add("drafter", "address of a drafter, best first; may be repeated",
            when_applying(Replacing(file.mutable_drafters())));
  flags.Add("tokenizer", "directory of the model", when_applying([&](const std::string& value) {
              file.set_tokenizer(value);
              return absl::OkStatus();
            }));
  flags.AddInteger("max-requests", "the most requests at once", 0, 65536,
                   [&](int64_t value) { file.set_max_requests(static_cast<int32_t>(value)); });
  flags.AddInteger(
      "peer-silence-ms", "silence after which a peer is unusable", 0, 600000,
      [&](int64_t value) { file.mutable_rpc()->set_peer_silence_ms(static_cast<int32_t>(value)); });
  flags.AddSwitch("help", "this text", [&] { out.help = flags.Help(); });
  RETURN_IF_ERROR(flags.Parse(argc, argv));
  if (!out.help.empty()) {
    return out;
  }
  if (!path.empty()) {
    file.Clear();
    RETURN_IF_ERROR(LoadTextproto(path, file));
  }
  applying = true;
  RETURN_IF_ERROR(flags.Parse(argc, argv));
  ASSIGN_OR_RETURN(out.config, Check(file));
  return out;
}

}  // namespace arborist::coordinator
