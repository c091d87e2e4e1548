#include "coordinator/service.h"

#include <chrono>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/rpc/protocol.h"
#include "common/rpc/status_bridge.h"
#include "common/rpc/tree_codec.h"
#include "common/tokenizer/chat_template.h"
#include "coordinator/generate_reactor.h"
#include "coordinator/request_codec.h"
#include "coordinator/sequence_codec.h"

namespace arborist::coordinator {
namespace {

constexpr int kMaxDetokenizeIds = 1 << 20;
constexpr size_t kMaxTextBytes = 16 << 20;

// Ends a unary call and counts it, with its time since the construction.
class CallEnd {
 public:
  CallEnd(RequestMetrics& metrics, Method method) : metrics_(metrics), method_(method) {}

  void operator()(grpc::ServerUnaryReactor& reactor, const absl::Status& status) const {
    metrics_.CallEnded(method_, status.code(),
                       std::chrono::duration<double>(std::chrono::steady_clock::now() - begin_).count());
    reactor.Finish(ToGrpcStatus(status, kCoordinatorOrigin));
  }

 private:
  RequestMetrics& metrics_;
  const Method method_;
  const std::chrono::steady_clock::time_point begin_ = std::chrono::steady_clock::now();
};

absl::Status TokenizeInto(const Tokenizer& tokenizer, const v1::TokenizeRequest& request,
                          v1::TokenizeResponse& response) {
  std::vector<TokenId> ids;
  switch (request.input_case()) {
    case v1::TokenizeRequest::kText:
      if (request.text().size() > kMaxTextBytes) {
        return FieldError("text", absl::StrCat(request.text().size(), " bytes"),
                          absl::StrCat("at most ", kMaxTextBytes, " bytes"));
      }
      if (request.omit_special_tokens()) {
        ASSIGN_OR_RETURN(ids, tokenizer.Encode(request.text(), SpecialText::kAsToken));
      } else {
        ASSIGN_OR_RETURN(ids, tokenizer.EncodePrompt(request.text()));
      }
      break;
    case v1::TokenizeRequest::kChat: {
      ASSIGN_OR_RETURN(ids, EncodeChat(request.chat(), tokenizer));
      break;
    }
    case v1::TokenizeRequest::INPUT_NOT_SET:
      return FieldError("input", "nothing", "one of text and chat");
  }
  EncodeTokens(ids, *response.mutable_token_ids());
  return absl::OkStatus();
}

absl::Status DetokenizeInto(const Tokenizer& tokenizer, const v1::DetokenizeRequest& request,
                            v1::DetokenizeResponse& response) {
  if (request.token_ids_size() > kMaxDetokenizeIds) {
    return FieldError("token_ids", absl::StrCat(request.token_ids_size(), " ids"),
                      absl::StrCat("at most ", kMaxDetokenizeIds));
  }
  const std::vector<TokenId> ids = DecodeTokens(request.token_ids());
  for (size_t i = 0; i < ids.size(); ++i) {
    if (!tokenizer.IsKnown(ids[i])) {
      return FieldError(absl::StrCat("token_ids[", i, "]"), absl::StrCat(Raw(ids[i])),
                        absl::StrCat("an id of the vocabulary, all below ", tokenizer.size()));
    }
  }
  response.set_text(tokenizer.Decode(ids, request.skip_special_tokens()));
  return absl::OkStatus();
}

absl::Status DescribeModel(Coordinator& coordinator, v1::GetModelResponse& response) {
  const std::optional<VerifierFacts> model = coordinator.router().Model();
  if (!model.has_value()) {
    return WithRetryDelay(
        ErrorWithReason(absl::StatusCode::kUnavailable, "NO_VERIFIER", "no verifier is ready, expected one"),
        std::chrono::milliseconds(1000));
  }
  response.set_name(coordinator.ModelName(*model));
  response.set_vocabulary_size(model->vocabulary_size);
  response.set_context_length(model->context_length);
  const GenerationDefaults& defaults = coordinator.defaults();
  EncodeTokens(defaults.eos_ids, *response.mutable_eos_ids());
  response.set_system_fingerprint(coordinator.SystemFingerprint(*model));
  const PeerRouter::DrafterView drafters = coordinator.router().Drafters();
  response.set_drafter_state(drafters.usable       ? v1::DRAFTER_STATE_READY
                             : drafters.configured ? v1::DRAFTER_STATE_UNAVAILABLE
                                                   : v1::DRAFTER_STATE_NONE);
  response.set_proposer(drafters.proposer);
  v1::GenerationDefaults& out = *response.mutable_defaults();
  out.set_temperature(defaults.temperature);
  out.set_top_k(defaults.top_k);
  out.set_top_p(defaults.top_p);
  out.set_min_p(defaults.min_p);
  out.set_repetition_penalty(defaults.repetition_penalty);
  out.set_mode(EncodeMode(defaults.mode));
  out.set_tree_nodes(std::min(defaults.tree_nodes, model->max_tree_nodes));
  out.set_max_tokens(defaults.max_tokens);
  response.set_max_tree_nodes(model->max_tree_nodes);
  response.set_has_chat_template(HasKimiChatMarks(coordinator.tokenizer()));
  return absl::OkStatus();
}

}  // namespace

grpc::ServerWriteReactor<v1::GenerateResponse>* CoordinatorServiceImpl::Generate(
    grpc::CallbackServerContext* context, const v1::GenerateRequest* request) {
  auto* reactor = new GenerateReactor(coordinator_, *context, *request);  // deletes itself in OnDone
  reactor->Start();
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::Tokenize(grpc::CallbackServerContext* context,
                                                           const v1::TokenizeRequest* request,
                                                           v1::TokenizeResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const CallEnd end(coordinator_.metrics(), Method::kTokenize);
  coordinator_.worker().Post(
      [this, end, reactor, request, response] {
        end(*reactor, TokenizeInto(coordinator_.tokenizer(), *request, *response));
      },
      /*priority=*/0);
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::Detokenize(grpc::CallbackServerContext* context,
                                                             const v1::DetokenizeRequest* request,
                                                             v1::DetokenizeResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  const CallEnd end(coordinator_.metrics(), Method::kDetokenize);
  coordinator_.worker().Post(
      [this, end, reactor, request, response] {
        end(*reactor, DetokenizeInto(coordinator_.tokenizer(), *request, *response));
      },
      /*priority=*/0);
  return reactor;
}

grpc::ServerUnaryReactor* CoordinatorServiceImpl::GetModel(grpc::CallbackServerContext* context,
                                                           const v1::GetModelRequest*,
                                                           v1::GetModelResponse* response) {
  grpc::ServerUnaryReactor* reactor = context->DefaultReactor();
  CallEnd(coordinator_.metrics(), Method::kGetModel)(*reactor, DescribeModel(coordinator_, *response));
  return reactor;
}

}  // namespace arborist::coordinator
