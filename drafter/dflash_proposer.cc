#include "drafter/dflash_proposer.h"

#include <algorithm>
#include <span>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/projection/projection.h"
#include "drafter/context_cache.h"
#include "drafter/propose_args.h"

namespace arborist::drafter {
namespace {

// The answers of a verify step of 32 sequences come within this time.
constexpr std::chrono::microseconds kPatience{300};

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
  if (options.max_sequences < 1 || options.max_together < 1) {
    return absl::InvalidArgumentError(absl::StrCat("max_sequences=", options.max_sequences, ", max_together=",
                                                   options.max_together, ", expected at least 1"));
  }
  return absl::OkStatus();
}

absl::Status CheckFinite(int32_t first_position, int64_t hidden, std::span<const BFloat16> features) {
  for (size_t i = 0; i < features.size(); ++i) {
    if ((features[i].bits & 0x7f80u) == 0x7f80u) {
      return absl::InvalidArgumentError(
          absl::StrCat("features: position ", first_position + static_cast<int64_t>(i) / hidden, " holds ",
                       ToFloat(features[i]), ", expected finite values"));
    }
  }
  return absl::OkStatus();
}

}  // namespace

// One sequence: the root, its position and the draft keys and values before it.
class DFlashContext : public DraftContext {
 public:
  // `first_row` is its place in the pool, if there is one.
  DFlashContext(DFlashProposer& proposer, int64_t first_row)
      : proposer_(proposer),
        first_row_(first_row),
        cache_(proposer.NewCache(first_row)),
        seat_(*proposer.queue_) {
    waiting_.reserve(proposer.round_->append_rows() * proposer.settings().hidden);
  }
  ~DFlashContext() override {
    if (proposer_.pool_ != nullptr) {
      proposer_.queue_
          ->InTurn([this] {
            proposer_.pool_->Return(first_row_);
            return absl::OkStatus();
          })
          .IgnoreError();
    }
  }

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
    features = features.first(kept * hidden);
    RETURN_IF_ERROR(CheckFinite(first_position, hidden, features));
    return kept == 0 ? absl::OkStatus() : Append(first_position, kept, features);
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
    const DraftRequest request{.root = root_,
                               .position = root_position(),
                               .context = cache_.View(visible_begin(), root_position()),
                               .args = args,
                               .cache = &cache_,
                               .append_position = waiting_position_,
                               .append_rows = waiting_rows(),
                               .append = waiting_.data()};
    absl::StatusOr<TokenTree> tree = proposer_.queue_->Draft(request, seat_);
    if (tree.ok()) {
      waiting_.clear();
    }
    return tree;
  }

 private:
  int32_t root_position() const { return length_ - 1; }
  int32_t visible_begin() const { return std::max(root_position() - proposer_.feature_window(), 0); }
  int32_t waiting_rows() const {
    return static_cast<int32_t>(static_cast<int64_t>(waiting_.size()) / proposer_.settings().hidden);
  }

  // A round takes a few neighbouring rows along, so they wait for it; others are written now.
  absl::Status Append(int32_t first_position, int32_t rows, std::span<const BFloat16> features) {
    const bool joins = waiting_.empty() || first_position == waiting_position_ + waiting_rows();
    if (!joins || waiting_rows() + rows > proposer_.round_->append_rows()) {
      RETURN_IF_ERROR(WriteWaiting());
    }
    if (rows > proposer_.round_->append_rows()) {
      return proposer_.WriteFeatures(first_position, rows, features, cache_);
    }
    absl::StatusOr<ContextCache::Slot> slot;
    const auto reserve = [&] {
      slot = cache_.Reserve(first_position, rows);
      return slot.status();
    };
    RETURN_IF_ERROR(cache_.HasRoom(first_position, rows) ? reserve() : proposer_.queue_->InTurn(reserve));
    if (waiting_.empty()) {
      waiting_position_ = first_position;
    }
    waiting_.insert(waiting_.end(), features.begin(), features.end());
    cache_.MarkWritten(*slot);
    return absl::OkStatus();
  }

  absl::Status WriteWaiting() {
    const int32_t rows = waiting_rows();
    if (rows > 0) {
      RETURN_IF_ERROR(proposer_.WriteFeatures(waiting_position_, rows, waiting_, cache_));
      waiting_.clear();
    }
    return absl::OkStatus();
  }

  DFlashProposer& proposer_;
  const int64_t first_row_;
  ContextCache cache_;
  DraftQueue::Seat seat_;
  TokenId root_{};
  int32_t length_ = 0;  // committed tokens
  // Features of neighbouring positions that the next round writes; marked as written already.
  std::vector<BFloat16> waiting_;
  int32_t waiting_position_ = 0;
};

absl::StatusOr<std::unique_ptr<DFlashProposer>> DFlashProposer::Create(const DFlashOptions& options,
                                                                       const kernels::KernelSet& kernels,
                                                                       ThreadPool& threads) {
  std::unique_ptr<Device> device = OpenCpuDevice(threads);
  ASSIGN_OR_RETURN(std::unique_ptr<DFlashProposer> proposer, Create(options, kernels, *device));
  proposer->own_device_ = std::move(device);
  return proposer;
}

absl::StatusOr<std::unique_ptr<DFlashProposer>> DFlashProposer::Create(const DFlashOptions& options,
                                                                       const kernels::KernelSet& kernels,
                                                                       Device& device) {
  RETURN_IF_ERROR(CheckOptions(options));
  ASSIGN_OR_RETURN(DFlashSettings settings, ReadDFlashConfig(options.drafter_directory));
  if (options.max_positions > 0) {
    settings.max_positions = std::min(settings.max_positions, options.max_positions);
  }
  ASSIGN_OR_RETURN(Projection projection, LoadProjection(options.drafter_directory));
  std::unique_ptr<DFlashProposer> proposer(new DFlashProposer());
  proposer->projection_hash_ = std::move(projection.hash);
  proposer->drafter_ = std::move(projection.checkpoint);
  ASSIGN_OR_RETURN(proposer->target_, Checkpoint::Open(options.target_directory));
  DFlashWeights weights;
  RETURN_IF_ERROR(LoadDrafterTensors(proposer->drafter_, settings, weights));
  RETURN_IF_ERROR(LoadTargetTensors(proposer->target_, settings, weights));
  proposer->window_ = WindowOf(settings, options.context_window);
  RETURN_IF_ERROR(proposer->MakeRound(options, std::move(settings), std::move(weights), kernels, device));
  return proposer;
}

absl::Status DFlashProposer::MakeRound(const DFlashOptions& options, DFlashSettings settings,
                                       DFlashWeights weights, const kernels::KernelSet& kernels,
                                       Device& device) {
  DraftRoundOptions round;
  round.beta = options.beta;
  round.max_depth = std::min(settings.block - 1, kMaxTreeDepth);
  if (device.kind() == DeviceKind::kCuda) {
    ASSIGN_OR_RETURN(pool_, ContextPool::Create({.layers = static_cast<int64_t>(settings.layers.size()),
                                                 .row_width = settings.kv_width(),
                                                 .window = window_,
                                                 .max_positions = settings.max_positions},
                                                options.max_sequences, device));
    round.append_rows = settings.block;  // what a round commits at most
    round.max_streams = std::min(options.max_together, options.max_sequences);
    round.planes = pool_->planes();
    round.max_context = std::min(window_, settings.max_positions);
  }
  ASSIGN_OR_RETURN(model_, DFlashModel::Create(std::move(settings), std::move(weights),
                                               {.streams = round.max_streams,
                                                .append_rows = round.max_streams * round.append_rows,
                                                .max_context = round.max_context},
                                               kernels, device));
  ASSIGN_OR_RETURN(round_, DraftRound::Create(round, *model_, kernels));
  const bool together = round.max_streams > 1;
  queue_ = std::make_unique<DraftQueue>(
      *round_, GatherRule{.patience = together ? kPatience : std::chrono::microseconds(0)},
      options.on_device_failure);
  return absl::OkStatus();
}

ContextCache DFlashProposer::NewCache(int64_t first_row) {
  const int64_t layers = static_cast<int64_t>(settings().layers.size());
  if (pool_ == nullptr) {
    return ContextCache(layers, settings().kv_width(), window_, settings().max_positions);
  }
  return ContextCache(layers, settings().kv_width(), window_, settings().max_positions, pool_->planes(),
                      first_row, model_->device());
}

absl::StatusOr<std::unique_ptr<DraftContext>> DFlashProposer::NewContext() {
  int64_t first_row = 0;
  if (pool_ != nullptr) {
    RETURN_IF_ERROR(queue_->InTurn([&] {
      ASSIGN_OR_RETURN(first_row, pool_->Take());
      return absl::OkStatus();
    }));
  }
  return std::make_unique<DFlashContext>(*this, first_row);
}

int DFlashProposer::max_depth() const { return std::min(settings().block - 1, kMaxTreeDepth); }

absl::Status DFlashProposer::WriteFeatures(int32_t first_position, int32_t rows,
                                           std::span<const BFloat16> features, ContextCache& cache) {
  const int64_t hidden = settings().hidden;
  for (int32_t done = 0; done < rows; done += kContextChunk) {
    const int32_t count = std::min(kContextChunk, rows - done);
    RETURN_IF_ERROR(queue_->InTurn([&] {
      return model_->AppendFeatures(first_position + done, count,
                                    features.subspan(done * hidden, count * hidden), cache);
    }));
  }
  return absl::OkStatus();
}

}  // namespace arborist::drafter
