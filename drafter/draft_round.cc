#include "drafter/draft_round.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"

namespace arborist::drafter {
namespace {

constexpr int64_t kMaxCandidates = kernels::kTopKLogProbMaxK;
constexpr int64_t kTreeColumns = kMaxTreeBudget + 1;
// Below it the noise is lost beside logits / temperature, which may overflow: rank as at 0.
constexpr float kLeastNoisyTemperature = 1e-4f;

}  // namespace

absl::StatusOr<std::unique_ptr<DraftRound>> DraftRound::Create(const DraftRoundOptions& options,
                                                               DFlashModel& model,
                                                               const kernels::KernelSet& kernels) {
  std::unique_ptr<DraftRound> round(new DraftRound(options, model, kernels));
  RETURN_IF_ERROR(round->Allocate());
  if (model.device().kind() == DeviceKind::kCuda) {
    RETURN_IF_ERROR(model.device().Measure([&] { return round->Record(); },
                                           absl::StrCat(round->sizes_.size(), " recorded rounds")));
  }
  return round;
}

absl::Status DraftRound::Allocate() {
  const DFlashSettings& s = model_.settings();
  const int64_t streams = options_.max_streams, rows = streams * (s.block - 1);
  columns_ = std::min<int64_t>(kMaxCandidates, s.vocabulary);
  Carver inputs(nullptr), outputs(nullptr);
  DraftBatch::Carve(s, streams, streams * options_.append_rows, inputs);
  DraftedTrees::Carve(streams, kTreeColumns, outputs);
  ASSIGN_OR_RETURN(host_inputs_, device_.AllocateHost(inputs.bytes(), "round inputs"));
  ASSIGN_OR_RETURN(device_inputs_, device_.Allocate(inputs.bytes(), "round inputs"));
  ASSIGN_OR_RETURN(host_outputs_, device_.AllocateHost(outputs.bytes(), "drafted trees"));
  ASSIGN_OR_RETURN(device_outputs_, device_.Allocate(outputs.bytes(), "drafted trees"));
  const size_t id_bytes = rows * columns_ * sizeof(TokenId);
  ASSIGN_OR_RETURN(candidates_, device_.Allocate(2 * id_bytes, "draft candidates"));
  candidate_ = candidates_.As<TokenId>();
  log_prob_ = reinterpret_cast<float*>(candidates_.As<std::byte>() + id_bytes);
  const size_t scratch = device_.kind() == DeviceKind::kCuda
                             ? kernels::TopKLogProbCudaScratchBytes(rows, s.vocabulary)
                             : kernels::TopKLogProbScratchBytes(rows, s.vocabulary);
  ASSIGN_OR_RETURN(top_k_scratch_, device_.Allocate(scratch, "draft candidates"));
  for (int64_t size = 1; size < streams; size *= 2) {
    LayOut(size);
  }
  LayOut(streams);
  return absl::OkStatus();
}

// Every size has its own layout over the same memory: what is not used is not copied.
void DraftRound::LayOut(int64_t streams) {
  const DFlashSettings& s = model_.settings();
  Size& size = sizes_.emplace_back();
  size.streams = streams;
  Carver host(host_inputs_.data()), device(device_inputs_.data());
  size.host = DraftBatch::Carve(s, streams, streams * options_.append_rows, host);
  size.device = DraftBatch::Carve(s, streams, streams * options_.append_rows, device);
  size.input_bytes = host.bytes();
  Carver host_trees(host_outputs_.data()), device_trees(device_outputs_.data());
  size.host_trees = DraftedTrees::Carve(streams, kTreeColumns, host_trees);
  size.device_trees = DraftedTrees::Carve(streams, kTreeColumns, device_trees);
  size.output_bytes = host_trees.bytes();
}

absl::Status DraftRound::Record() {
  if (device_.launch_by_launch()) {
    return absl::OkStatus();
  }
  for (Size& size : sizes_) {
    const auto enqueue = [&] {
      return Enqueue(size, options_.planes, options_.max_context, model_.settings().block - 1);
    };
    // Once for real: what a kernel needs to be loaded for is then there, and a fault shows before serving.
    Fill({}, size);
    RETURN_IF_ERROR(enqueue());
    RETURN_IF_ERROR(device_.Synchronize());
    ASSIGN_OR_RETURN(size.work,
                     device_.Record(enqueue, absl::StrCat("draft of ", size.streams, " sequences")));
  }
  return absl::OkStatus();
}

absl::Status DraftRound::Run(std::span<const DraftRequest* const> requests,
                             std::span<TokenTree* const> trees) {
  const int64_t count = static_cast<int64_t>(requests.size());
  Check(count >= 1 && count <= options_.max_streams && trees.size() == requests.size(),
        "a round is of 1 to max_streams sequences");
  Size& size = *std::find_if(sizes_.begin(), sizes_.end(), [&](const Size& s) { return s.streams >= count; });
  Fill(requests, size);
  if (size.work != nullptr) {
    RETURN_IF_ERROR(size.work->Start());
  } else if (device_.kind() == DeviceKind::kCuda) {
    RETURN_IF_ERROR(Enqueue(size, options_.planes, options_.max_context, model_.settings().block - 1));
  } else {
    const DraftRequest& only = *requests[0];
    RETURN_IF_ERROR(
        Enqueue(size, only.context.planes, only.context.rows, std::min(options_.max_depth, only.args.nodes)));
  }
  RETURN_IF_ERROR(device_.Synchronize());
  for (int64_t i = 0; i < count; ++i) {
    const DraftedTrees& out = size.host_trees;
    if (out.error[i] != 0) {
      return absl::InternalError("the draft model's logits are not finite");
    }
    trees[i]->token.assign(out.token.row(i), out.token.row(i) + out.nodes[i]);
    trees[i]->parent.assign(out.parent.row(i), out.parent.row(i) + out.nodes[i]);
    trees[i]->score.assign(out.score.row(i), out.score.row(i) + out.nodes[i]);
  }
  return absl::OkStatus();
}

void DraftRound::Fill(std::span<const DraftRequest* const> requests, Size& size) {
  const DFlashSettings& s = model_.settings();
  const int64_t count = static_cast<int64_t>(requests.size());
  for (int64_t i = 0; i < size.streams; ++i) {
    if (i >= count) {
      size.host.block.SetPadding(s, i);
      size.host.top_k[i] = {};
      size.host.tree[i] = {};
      continue;
    }
    const DraftRequest& request = *requests[i];
    const bool chain = request.args.shape == TreeShape::kChain;
    // A tree of n nodes is at most n deep and n wide.
    const int32_t depths = std::min(options_.max_depth, request.args.nodes);
    const int32_t k = chain ? 1 : static_cast<int32_t>(std::min<int64_t>(request.args.nodes, columns_));
    size.host.block.SetStream(s, i, request.root, request.position, request.context);
    size.host.top_k[i] = {
        .temperature = request.args.temperature < kLeastNoisyTemperature ? 0.0f : request.args.temperature,
        .beta = options_.beta,
        .seed = request.args.seed,
        .sample_index = request.args.sample_index,
        .first_position = request.position + 1,
        .depths = depths,
        .k = k};
    size.host.tree[i] = {
        .root = request.root, .depths = depths, .k = k, .budget = chain ? depths : request.args.nodes};
  }
  for (int64_t i = 0; i < size.streams * options_.append_rows; ++i) {
    const int64_t stream = i / options_.append_rows, row = i % options_.append_rows;
    if (stream >= count || row >= requests[stream]->append_rows) {
      size.host.block.SetAppendPadding(s, i);
      continue;
    }
    const DraftRequest& request = *requests[stream];
    const int32_t position = request.append_position + static_cast<int32_t>(row);
    size.host.block.SetAppend(s, i, position, request.cache->row(position), request.append + row * s.hidden);
  }
}

absl::Status DraftRound::Enqueue(const Size& size, const ContextPlanes& planes, int64_t max_context,
                                 int64_t depths) {
  RETURN_IF_ERROR(device_.Copy(device_inputs_.data(), host_inputs_.data(), size.input_bytes));
  RETURN_IF_ERROR(model_.Forward(size.device.block, planes, max_context));
  RETURN_IF_ERROR(device_.Mark("candidates and trees"));
  ASSIGN_OR_RETURN(const View2<const float> logits, model_.Head(size.streams, depths));
  RETURN_IF_ERROR(Candidates(size, logits));
  const DraftedTrees& out = size.device_trees;
  RETURN_IF_ERROR(
      kernels_.tree_build({.params = {size.device.tree.data, size.streams},
                           .token = {candidate_, logits.rows, columns_, columns_},
                           .log_prob = {log_prob_, logits.rows, columns_, columns_},
                           .out_token = out.token,
                           .out_parent = out.parent,
                           .out_score = out.score,
                           .out_nodes = out.nodes,
                           .error = device_.kind() == DeviceKind::kCuda ? out.error : View1<int32_t>{}},
                          device_.stream()));
  return device_.Copy(host_outputs_.data(), device_outputs_.data(), size.output_bytes);
}

absl::Status DraftRound::Candidates(const Size& size, View2<const float> logits) {
  return kernels_.top_k_log_prob(
      {.logits = logits,
       .params = {size.device.top_k.data, size.streams},
       .token = {candidate_, logits.rows, columns_, columns_},
       .log_prob = {log_prob_, logits.rows, columns_, columns_},
       .scratch = {top_k_scratch_.As<std::byte>(), static_cast<int64_t>(top_k_scratch_.bytes())}},
      device_.stream());
}

}  // namespace arborist::drafter
