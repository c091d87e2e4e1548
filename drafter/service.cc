#include "drafter/service.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/protocol.h"
#include "common/rpc/status_bridge.h"
#include "common/tree/token_tree.h"
#include "drafter/drafter_metrics.h"
#include "drafter/speculate_codec.h"

namespace arborist::drafter {
namespace {

class RefusingReactor final : public grpc::ServerWriteReactor<v1::SpeculateResponse> {
 public:
  explicit RefusingReactor(const absl::Status& status) { Finish(ToGrpcStatus(status, kDrafterOrigin)); }
  void OnDone() override { delete this; }
};

// Sequences up to which loops look for the verifier's answer. With 32 sequences two that looked cost a fifth
// of the tokens a second, on one H200 and 16 cores.
constexpr int kMostSpinning = 2;

}  // namespace

DrafterServiceImpl::DrafterServiceImpl(Proposer* proposer, std::shared_ptr<grpc::Channel> verifier,
                                       const DrafterServiceOptions& options,
                                       std::function<void(const VerifierHandshake&)> set_serving)
    : proposer_(proposer),
      options_(options),
      verifier_channel_(std::move(verifier)),
      verifier_(v1::VerifierService::NewStub(verifier_channel_)),
      sequences_(static_cast<size_t>(options.max_sequences)),
      spin_(options.spin, kMostSpinning),
      heartbeat_(std::make_unique<Heartbeat>(kHeartbeatInterval, nullptr)),
      workers_(std::make_unique<WorkerPool>(static_cast<size_t>(options.max_sequences))) {
  shared_ = {.proposer = proposer_,
             .verifier = verifier_.get(),
             .sequences = &sequences_,
             .heartbeat = heartbeat_.get(),
             .options = {.coupled = options.coupled,
                         .decode_tokens = options.decode_tokens,
                         .plain_decode_tokens = options.plain_decode_tokens,
                         .max_depth = std::min(proposer->max_depth(), kMaxTreeDepth),
                         .feature_window = proposer->needs_features() ? proposer->feature_window() : 0,
                         .fault = options.fault,
                         .metrics = options.metrics},
             .peer_silence = options.peer_silence,
             .spin = &spin_,
             .tokens_follow_tree = options.tokens_follow_tree,
             .constraints = options.vocabulary == nullptr
                                ? nullptr
                                : std::make_shared<ConstraintStore>(options.vocabulary)};
  client_ = std::make_unique<VerifierClient>(
      verifier_channel_,
      VerifierClient::Options{.projection_hash =
                                  proposer->needs_features() ? proposer->projection_hash() : std::string()},
      std::move(set_serving));
}

DrafterServiceImpl::~DrafterServiceImpl() { Stop(); }

void DrafterServiceImpl::Stop() {
  client_.reset();
  workers_.reset();
  heartbeat_.reset();
}

absl::StatusOr<SpeculationRequest> DrafterServiceImpl::Check(const v1::SpeculateRequest& request) const {
  const VerifierHandshake verifier = client_->state();
  ASSIGN_OR_RETURN(SpeculationRequest decoded,
                   DecodeSpeculate(request, verifier.ready ? verifier.max_tree_nodes : kMaxTreeBudget));
  if (!verifier.ready) {
    const absl::Status status = ErrorWithReason(absl::StatusCode::kUnavailable, reason::kVerifierUnreachable,
                                                verifier.not_ready_reason);
    return WithRetryDelay(status, std::chrono::milliseconds(500));
  }
  if (request.sequence().fingerprint() != verifier.fingerprint) {
    return ErrorWithReason(absl::StatusCode::kFailedPrecondition, reason::kFingerprintMismatch,
                           absl::StrCat("sequence.fingerprint=", request.sequence().fingerprint(),
                                        ", expected ", verifier.fingerprint));
  }
  for (size_t i = 0; i < decoded.tokens.size(); ++i) {
    if (Raw(decoded.tokens[i]) >= verifier.vocabulary_size) {
      return FieldError(TokenField(i, request.sequence()), absl::StrCat(Raw(decoded.tokens[i])),
                        absl::StrCat("an id in [0, ", verifier.vocabulary_size, ")"));
    }
  }
  return decoded;
}

grpc::ServerWriteReactor<v1::SpeculateResponse>* DrafterServiceImpl::Speculate(
    grpc::CallbackServerContext* context, const v1::SpeculateRequest* request) {
  absl::StatusOr<SpeculationRequest> decoded = Check(*request);
  if (!decoded.ok()) {
    if (options_.metrics != nullptr) {
      options_.metrics->CallEnded(decoded.status().code());
    }
    return new RefusingReactor(decoded.status());
  }
  const v1::Sequence& sequence = request->sequence();
  auto* reactor = new SpeculateReactor(&shared_, sequence, *std::move(decoded), context);
  const absl::Status admitted =
      sequences_.Add({sequence.request_id(), sequence.sample_index()}, sequence.epoch(), reactor);
  if (!admitted.ok()) {
    reactor->Refuse(admitted);
  } else {
    workers_->Run([reactor] { reactor->Run(); });
  }
  return reactor;
}

grpc::ServerUnaryReactor* DrafterServiceImpl::GetInfo(grpc::CallbackServerContext* context,
                                                      const v1::DrafterServiceGetInfoRequest*,
                                                      v1::DrafterServiceGetInfoResponse* response) {
  const VerifierHandshake verifier = client_->state();
  response->set_protocol_version(kProtocolVersion);
  response->set_proposer(options_.proposer_name);
  response->set_projection_hash(proposer_->needs_features() ? proposer_->projection_hash() : "");
  response->set_verifier_fingerprint(verifier.fingerprint);
  response->set_verifier_address(options_.verifier_address);
  response->set_ready(verifier.ready);
  response->set_not_ready_reason(verifier.not_ready_reason);
  response->set_max_depth(shared_.options.max_depth);
  response->set_max_tree_nodes(verifier.ready ? verifier.max_tree_nodes : kMaxTreeBudget);
  response->set_max_sequences(options_.max_sequences);
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  reactor->Finish(grpc::Status::OK);
  return reactor;
}

}  // namespace arborist::drafter
