#include "drafter/config.h"

#include <algorithm>
#include <thread>

#include "absl/strings/str_cat.h"
#include "arborist/v1/config.pb.h"
#include "common/base/status_macros.h"
#include "common/rpc/device_config.h"
#include "common/rpc/flags.h"
#include "common/rpc/status_bridge.h"
#include "common/rpc/textproto.h"

namespace arborist::drafter {
namespace {

absl::StatusOr<FaultPlan> ReadFault(const v1::DrafterFault& in) {
  FaultPlan plan;
  switch (in.point()) {
    case v1::FAULT_POINT_UNSPECIFIED:
      break;
    case v1::FAULT_POINT_BEFORE_TREE:
      plan.point = FaultPoint::kBeforeTree;
      break;
    case v1::FAULT_POINT_AFTER_TREE_SENT:
      plan.point = FaultPoint::kAfterTreeSent;
      break;
    case v1::FAULT_POINT_BEFORE_TOKENS_FORWARDED:
      plan.point = FaultPoint::kBeforeTokensForwarded;
      break;
    default:
      return FieldError("fault.point", absl::StrCat(static_cast<int>(in.point())), "a FaultPoint");
  }
  switch (in.kind()) {
    case v1::FAULT_KIND_UNSPECIFIED:
      break;
    case v1::FAULT_KIND_DIE:
      plan.kind = FaultKind::kDie;
      break;
    case v1::FAULT_KIND_STALL:
      plan.kind = FaultKind::kStall;
      break;
    default:
      return FieldError("fault.kind", absl::StrCat(static_cast<int>(in.kind())), "a FaultKind");
  }
  ASSIGN_OR_RETURN(plan.round, ValueOr("fault.round", in.round(), 1, 1, INT64_MAX));
  return plan;
}

absl::Status ReadProposer(const v1::DrafterConfig& in, Config& out) {
  const bool has_model = !in.model().empty();
  switch (in.proposer()) {
    case v1::PROPOSER_KIND_UNSPECIFIED:
      out.proposer = has_model ? ProposerKind::kDFlash : ProposerKind::kNgram;
      break;
    case v1::PROPOSER_KIND_DFLASH:
      out.proposer = ProposerKind::kDFlash;
      break;
    case v1::PROPOSER_KIND_NGRAM:
      out.proposer = ProposerKind::kNgram;
      break;
    default:
      return FieldError("proposer", absl::StrCat(static_cast<int>(in.proposer())), "DFLASH or NGRAM");
  }
  if (out.proposer == ProposerKind::kDFlash && !has_model) {
    return FieldError("model", "", "the directory of the DFlash checkpoint (flag --model)");
  }
  if (out.proposer == ProposerKind::kDFlash && in.target().empty()) {
    return FieldError("target", "",
                      "the directory of the target model that DFlash borrows from (flag --target)");
  }
  out.model = in.model();
  out.target = in.target();
  return absl::OkStatus();
}

absl::StatusOr<Config> Check(const v1::DrafterConfig& in) {
  Config out;
  ASSIGN_OR_RETURN(out.rpc, ReadRpcConfig(in.rpc()));
  if (in.verifier().empty()) {
    return FieldError("verifier", "", "the verifier's address (flag --verifier)");
  }
  RETURN_IF_ERROR(ValidateAddress("verifier", in.verifier()));
  out.verifier = in.verifier();
  RETURN_IF_ERROR(ReadProposer(in, out));
  ASSIGN_OR_RETURN(out.device, ReadDeviceConfig(in.device(), in.gpu()));
  const int cores = static_cast<int>(std::max(1u, std::thread::hardware_concurrency()));
  ASSIGN_OR_RETURN(out.threads, ValueOr("threads", in.threads(), cores, 1, 1024));
  ASSIGN_OR_RETURN(out.max_sequences, ValueOr("max_sequences", in.max_sequences(), 64, 1, 4096));
  if (!(in.score_scale() >= 0 && in.score_scale() <= 100)) {
    return FieldError("score_scale", absl::StrCat(in.score_scale()), "a finite value in [0, 100]");
  }
  out.score_scale = in.score_scale() == 0 ? 1 : in.score_scale();
  out.coupled = !in.has_coupled() || in.coupled();
  ASSIGN_OR_RETURN(out.decode_tokens, ValueOr("decode_tokens", in.decode_tokens(), 4, 1, 1024));
  ASSIGN_OR_RETURN(out.plain_decode_tokens,
                   ValueOr("plain_decode_tokens", in.plain_decode_tokens(), 256, 1, 65536));
  ASSIGN_OR_RETURN(out.fault, ReadFault(in.fault()));
  ASSIGN_OR_RETURN(out.metrics_listen, ReadMetricsConfig(in.metrics()));
  ASSIGN_OR_RETURN(out.log_level, ReadLogLevel(in.log_level()));
  out.tokenizer = in.tokenizer();
  return out;
}

absl::Status SetProposer(const std::string& name, v1::DrafterConfig& config) {
  if (name != "dflash" && name != "ngram") {
    return FieldError("--proposer", name, "dflash or ngram");
  }
  config.set_proposer(name == "dflash" ? v1::PROPOSER_KIND_DFLASH : v1::PROPOSER_KIND_NGRAM);
  return absl::OkStatus();
}

}  // namespace

absl::StatusOr<CommandLine> ReadCommandLine(int argc, const char* const* argv) {
  std::string path;
  bool help = false;
  v1::DrafterConfig over;
  FlagSet flags("usage: arborist-drafter --config FILE [flags]; see DrafterConfig in config.proto");
  flags.AddText("config", "textproto file", [&](const std::string& v) { path = v; });
  flags.AddText("listen", "unix:/path or host:port; may be repeated",
                [&](const std::string& v) { over.mutable_rpc()->add_listen(v); });
  flags.AddText("verifier", "address of the verifier", [&](const std::string& v) { over.set_verifier(v); });
  flags.AddText("model", "directory of the DFlash checkpoint",
                [&](const std::string& v) { over.set_model(v); });
  flags.AddText("target", "directory of the target model", [&](const std::string& v) { over.set_target(v); });
  flags.Add("proposer", "dflash or ngram", [&](const std::string& v) { return SetProposer(v, over); });
  AddDeviceFlags(flags, over);
  flags.AddInteger("threads", "compute threads", 1, 1024, [&](int64_t v) { over.set_threads(v); });
  flags.AddInteger("max-sequences", "sequences at once", 1, 4096,
                   [&](int64_t v) { over.set_max_sequences(v); });
  flags.AddInteger("peer-silence-ms", "silence after which a peer is unusable", 50, 600000,
                   [&](int64_t v) { over.mutable_rpc()->set_peer_silence_ms(v); });
  flags.AddText("tokenizer", "directory of the tokenizer with which drafts follow a constraint",
                [&](const std::string& v) { over.set_tokenizer(v); });
  AddMetricsFlag(flags, over);
  AddLogLevelFlag(flags, over);
  flags.AddSwitch("help", "print this", [&] { help = true; });
  RETURN_IF_ERROR(flags.Parse(argc, argv));
  CommandLine line;
  if (help) {
    line.help = flags.Help();
    return line;
  }
  v1::DrafterConfig config;
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

}  // namespace arborist::drafter
