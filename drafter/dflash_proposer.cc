#include "drafter/dflash_proposer.h"

#include <algorithm>
#include <cmath>
#include <span>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/check.h"
#include "common/base/status_macros.h"
#include "common/projection/projection.h"
#include "drafter/context_cache.h"
#include "drafter/propose_args.h"

namespace arborist::drafter {
namespace {

constexpr int kMaxCandidates = 64;
// Below it the noise is lost beside logits / temperature, which may overflow: rank as at 0.
constexpr float kLeastNoisyTemperature = 1e-4f;

// Context rows that some layer can see.
int32_t WindowOf(const DFlashSettings& settings, int32_t context_window) {
  const int32_t limit =
      context_window > 0 ? std::min(context_window, settings.max_positions) : settings.max_positions;
  int32_t window = 1;
  for (const LayerVisibility& layer : settings.layers) {
    window = std::max(window, layer.window > 0 ? std::min(limit, layer.window - 1) : limit);
  }
  return window;
}

absl::Status CheckOptions(const DFlashOptions& options) {
  if (!(options.beta > 0 && options.beta <= 100)) {
    return absl::InvalidArgumentError(absl::StrCat("beta=", options.beta, ", expected a number in (0, 100]"));
  }
  if (options.context_window < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("context_window=", options.context_window, ", expected at least 0"));
  }
  if (options.max_positions < 0) {
    return absl::InvalidArgumentError(
        absl::StrCat("max_positions=", options.max_positions, ", expected at least 0"));
  }
  return absl::OkStatus();
}

}  // namespace

// One sequence: the root, its position and the draft keys and values before it.
class DFlashContext : public DraftContext {
 public:
  explicit DFlashContext(DFlashProposer& proposer)
      : proposer_(proposer),
        cache_(static_cast<int64_t>(proposer.settings().layers.size()), proposer.settings().kv_width(),
               proposer.feature_window(), proposer.settings().max_positions) {}

  absl::Status AppendTokens(int32_t first_position, std::span<const TokenId> tokens) override {
    RETURN_IF_ERROR(CheckAppend(first_position, tokens, length_, proposer_.settings().vocabulary));
    if (!tokens.empty()) {
      root_ = tokens.back();
      length_ += static_cast<int32_t>(tokens.size());
    }
    return absl::OkStatus();
  }

  absl::Status AppendFeatures(int32_t first_position, int32_t rows,
                              std::span<const BFloat16> features) override {
    const int64_t hidden = proposer_.settings().hidden;
    if (rows < 0 || features.size() != static_cast<size_t>(rows * hidden)) {
      return absl::InvalidArgumentError(absl::StrCat("features: ", features.size(), " values, expected ",
                                                     rows, " rows of hidden_size=", hidden));
    }
    // The root's own features do not exist yet.
    if (first_position < 0 || static_cast<int64_t>(first_position) + rows > std::max(length_ - 1, 0)) {
      return absl::FailedPreconditionError(absl::StrCat(
          "features of positions ", first_position, " to ", static_cast<int64_t>(first_position) + rows - 1,
          ", expected committed positions before the root's ", length_ - 1));
    }
    const int32_t kept = std::min(rows, std::max(proposer_.settings().max_positions - first_position, 0));
    return proposer_.AppendContext(first_position, kept, features, cache_);
  }

  bool Ready() const override {
    return length_ > 0 && root_position() < proposer_.settings().max_positions &&
           cache_.Covers(visible_begin(), root_position());
  }

  absl::StatusOr<TokenTree> Propose(const ProposeArgs& args) override {
    RETURN_IF_ERROR(CheckProposeArgs(args, length_));
    if (root_position() >= proposer_.settings().max_positions) {
      return absl::OutOfRangeError(absl::StrCat("root position=", root_position(), ", expected below ",
                                                proposer_.settings().max_positions,
                                                ", the drafter's max_position_embeddings"));
    }
    if (!Ready()) {
      return absl::FailedPreconditionError(
          absl::StrCat("features of positions ", visible_begin(), " to ", root_position() - 1,
                       " are not all there, expected them before a proposal"));
    }
    if (args.nodes == 0) {
      return TokenTree::RootOnly(root_);
    }
    return proposer_.Propose(args, root_, root_position(), cache_.View(visible_begin(), root_position()));
  }

 private:
  int32_t root_position() const { return length_ - 1; }
  int32_t visible_begin() const { return std::max(root_position() - proposer_.feature_window(), 0); }

  DFlashProposer& proposer_;
  ContextCache cache_;
  TokenId root_{};
  int32_t length_ = 0;  // committed tokens
};

absl::StatusOr<std::unique_ptr<DFlashProposer>> DFlashProposer::Create(const DFlashOptions& options,
                                                                       const kernels::KernelSet& kernels,
                                                                       ThreadPool& threads) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(DFlashSettings settings, ReadDFlashConfig(options.drafter_directory));
  if (options.max_positions > 0) {
    settings.max_positions = std::min(settings.max_positions, options.max_positions);
  }
  ASSIGN_OR_RETURN(Projection projection, LoadProjection(options.drafter_directory));
  std::unique_ptr<DFlashProposer> proposer(new DFlashProposer(kernels, threads));
  proposer->projection_hash_ = std::move(projection.hash);
  proposer->drafter_ = std::move(projection.checkpoint);
  ASSIGN_OR_RETURN(proposer->target_, Checkpoint::Open(options.target_directory));
  DFlashWeights weights;
  RETURN_IF_ERROR(LoadDrafterTensors(proposer->drafter_, settings, weights));
  RETURN_IF_ERROR(LoadTargetTensors(proposer->target_, settings, weights));
  proposer->beta_ = options.beta;
  proposer->window_ = WindowOf(settings, options.context_window);
  const int64_t depths = settings.block - 1;
  proposer->features_.resize(kContextChunk * settings.hidden);
  proposer->scratch_.resize(kernels::TopKLogProbScratchBytes(depths, settings.vocabulary));
  proposer->candidate_.resize(depths * kMaxCandidates);
  proposer->log_prob_.resize(depths * kMaxCandidates);
  proposer->model_ = std::make_unique<DFlashModel>(std::move(settings), std::move(weights), kernels);
  return proposer;
}

absl::StatusOr<std::unique_ptr<DraftContext>> DFlashProposer::NewContext() {
  return std::make_unique<DFlashContext>(*this);
}

int DFlashProposer::max_depth() const { return std::min(settings().block - 1, kMaxTreeDepth); }

absl::Status DFlashProposer::AppendContext(int32_t first_position, int32_t rows,
                                           std::span<const BFloat16> features, ContextCache& cache) {
  const std::lock_guard<std::mutex> lock(mutex_);
  const int64_t hidden = settings().hidden;
  for (int32_t done = 0; done < rows; done += kContextChunk) {
    const int32_t count = std::min(kContextChunk, rows - done);
    for (int64_t i = 0; i < count * hidden; ++i) {
      features_[i] = ToFloat(features[done * hidden + i]);
      if (!std::isfinite(features_[i])) {
        return absl::InvalidArgumentError(absl::StrCat("features: position ",
                                                       first_position + done + i / hidden, " holds ",
                                                       features_[i], ", expected finite values"));
      }
    }
    RETURN_IF_ERROR(model_->AppendContext(first_position + done, {features_.data(), count, hidden, hidden},
                                          cache, StreamView{.threads = &threads_}));
  }
  return absl::OkStatus();
}

absl::StatusOr<TokenTree> DFlashProposer::Propose(const ProposeArgs& args, TokenId root, int32_t position,
                                                  const ContextView& context) {
  const std::lock_guard<std::mutex> lock(mutex_);
  // A tree of n nodes is at most n deep.
  const int depths = std::min(max_depth(), args.nodes);
  ASSIGN_OR_RETURN(
      const View2<const float> logits,
      model_->DraftBlock({.bonus = root, .position = position, .context = context, .depths = depths},
                         StreamView{.threads = &threads_}));
  return BuildTree(args, root, position, logits);
}

absl::StatusOr<TokenTree> DFlashProposer::BuildTree(const ProposeArgs& args, TokenId root, int32_t position,
                                                    View2<const float> logits) {
  const bool chain = args.shape == TreeShape::kChain;
  const int64_t depths = logits.rows;
  const int64_t k = chain ? 1 : std::min<int64_t>({args.nodes, kMaxCandidates, logits.columns});
  const int budget = chain ? static_cast<int>(depths) : args.nodes;
  const StreamView stream{.threads = &threads_};
  const kernels::TopKParams wanted = {
      .temperature = args.temperature < kLeastNoisyTemperature ? 0.0f : args.temperature,
      .beta = beta_,
      .seed = args.seed,
      .sample_index = args.sample_index,
      .first_position = position + 1,
      .depths = static_cast<int32_t>(depths),
      .k = static_cast<int32_t>(k)};
  RETURN_IF_ERROR(
      kernels_.top_k_log_prob({.logits = logits,
                               .params = {&wanted, 1},
                               .token = {candidate_.data(), depths, k, k},
                               .log_prob = {log_prob_.data(), depths, k, k},
                               .scratch = {scratch_.data(), static_cast<int64_t>(scratch_.size())}},
                              stream));
  TokenTree tree;
  tree.token.resize(budget + 1);
  tree.parent.resize(budget + 1);
  tree.score.resize(budget + 1);
  int32_t nodes = 0;
  const kernels::TreeBuildParams shape = {
      .root = root, .depths = wanted.depths, .k = wanted.k, .budget = budget};
  RETURN_IF_ERROR(kernels_.tree_build({.params = {&shape, 1},
                                       .token = {candidate_.data(), depths, k, k},
                                       .log_prob = {log_prob_.data(), depths, k, k},
                                       .out_token = {tree.token.data(), 1, budget + 1, budget + 1},
                                       .out_parent = {tree.parent.data(), 1, budget + 1, budget + 1},
                                       .out_score = {tree.score.data(), 1, budget + 1, budget + 1},
                                       .out_nodes = {&nodes, 1}},
                                      stream));
  CutToPrefix(tree, nodes);
  return tree;
}

}  // namespace arborist::drafter
