#include "coordinator/cli/answer.h"

#include <algorithm>
#include <numeric>

#include "absl/strings/str_cat.h"

namespace arborist::coordinator {
namespace {

grpc::Status Misfit(const std::string& message) { return grpc::Status(grpc::StatusCode::INTERNAL, message); }

void JoinChunk(const v1::GenerateChunk& chunk, GeneratedAnswer& answer) {
  answer.prompt_log_probs.insert(answer.prompt_log_probs.end(), chunk.prompt_log_probs().begin(),
                                 chunk.prompt_log_probs().end());
  if (chunk.is_prompt()) {
    answer.prompt_text += chunk.text();
    answer.prompt_token_ids.insert(answer.prompt_token_ids.end(), chunk.token_ids().begin(),
                                   chunk.token_ids().end());
    return;
  }
  if (answer.token_ids.empty()) {
    answer.first_chunk = GeneratedAnswer::Clock::now();
    answer.first_chunk_tokens = chunk.token_ids_size();
  }
  answer.text += chunk.text();
  answer.token_ids.insert(answer.token_ids.end(), chunk.token_ids().begin(), chunk.token_ids().end());
  answer.log_probs.insert(answer.log_probs.end(), chunk.log_probs().begin(), chunk.log_probs().end());
  answer.top_log_probs.insert(answer.top_log_probs.end(), chunk.top_log_probs().begin(),
                              chunk.top_log_probs().end());
}

// False: the message does not fit what came before it.
bool Join(const v1::GenerateResponse& response, uint32_t expected, std::vector<GeneratedAnswer>& answers) {
  if (response.sample_index() >= expected) {
    return false;
  }
  answers.resize(std::max<size_t>(answers.size(), response.sample_index() + 1));
  GeneratedAnswer& answer = answers[response.sample_index()];
  if (answer.final.has_value()) {
    return false;
  }
  if (response.has_chunk()) {
    JoinChunk(response.chunk(), answer);
  } else if (response.has_final()) {
    answer.final = response.final();
  }
  return true;
}

}  // namespace

GeneratedAnswers ReadAnswers(
    v1::CoordinatorService::Stub& stub, const Connection& connection, const v1::GenerateRequest& request,
    absl::FunctionRef<void(const GeneratedAnswers&, const v1::GenerateResponse&)> show) {
  grpc::ClientContext context;
  connection.SetDeadline(context);
  const auto reader = stub.Generate(&context, request);
  const auto expected = static_cast<uint32_t>(std::max(request.n(), 1));
  GeneratedAnswers out;
  v1::GenerateResponse response;
  std::optional<grpc::Status> misfit;
  while (reader->Read(&response)) {
    if (!Join(response, expected, out.answers)) {
      misfit = Misfit(absl::StrCat("a message with sample_index=", response.sample_index(),
                                   ", expected one of an answer below ", expected, " that has not ended"));
      context.TryCancel();
      break;
    }
    show(out, response);
  }
  out.status = reader->Finish();
  out.end = GeneratedAnswer::Clock::now();
  const auto ended = std::count_if(out.answers.begin(), out.answers.end(),
                                   [](const GeneratedAnswer& answer) { return answer.final.has_value(); });
  if (misfit.has_value()) {
    out.status = *misfit;
  } else if (out.status.ok() && ended != expected) {
    out.status = Misfit(
        absl::StrCat("the call ended well after the ends of ", ended, " answers, expected ", expected));
  }
  return out;
}

double MeanAcceptedLength(const v1::GenerateFinal& final) {
  const auto& lengths = final.accepted_lengths();
  return lengths.empty() ? 0 : std::accumulate(lengths.begin(), lengths.end(), 0.0) / lengths.size();
}

}  // namespace arborist::coordinator
