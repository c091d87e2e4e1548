#include "verifier/self_test.h"

#include <algorithm>
#include <array>
#include <optional>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tree/token_tree.h"
#include "verifier/batch_builder.h"
#include "verifier/model/batch_forward.h"

namespace arborist::verifier {
namespace {

// Of a step; and the largest there is.
constexpr std::array kRowCounts = {1, 2, 7, 64, 65, 512};
// Of a step of trees alone, all with logits; and the largest there is.
constexpr int kTreeRows = 65;
// Past the first whole block of the exact attention rule (position 127), so that both of its halves run.
constexpr int kProbePosition = 130;

enum class Neighbours { kPrompts, kTrees };

// Everything that one row leaves behind.
struct RowResult {
  std::vector<std::byte> cache;
  std::vector<std::byte> taps;
  std::vector<std::byte> logits;
};

class SelfTest {
 public:
  SelfTest(const StepCapacity& capacity, int max_context, uint64_t seed, Model& model, KvCache& cache,
           Device& device)
      : capacity_(capacity),
        max_context_(max_context),
        random_(seed),
        seed_(seed),
        model_(model),
        cache_(cache),
        device_(device) {
    // The probe's, and on either side neighbours as long as may be.
    const int sequences = capacity.max_rows / LongestNeighbour(Neighbours::kTrees) + 3;
    capacity_.max_sequences = std::max(capacity_.max_sequences, sequences);
    const int64_t most = std::min<int64_t>(max_context, cache.pool().free_pages() * kernels::kPageRows / 2);
    probe_ = static_cast<int>(std::clamp<int64_t>(most - 1, 0, kProbePosition));
    batch_.Reserve(capacity.max_rows, sequences, capacity.max_pages_per_sequence);
    own_ = RandomTokens(probe_ + 1);
  }

  absl::Status Run();

 private:
  std::vector<TokenId> RandomTokens(int count) {
    std::vector<TokenId> tokens(static_cast<size_t>(count));
    for (TokenId& token : tokens) {
      token = TokenId{static_cast<int32_t>(random_() % static_cast<uint64_t>(model_.config().vocab_size))};
    }
    return tokens;
  }
  // The positions before the probe, in steps as large as may be.
  absl::Status FillPrefix(std::span<const int32_t> table);
  // Rows that one neighbour can have.
  int LongestNeighbour(Neighbours kind) const;
  // Whether capacity and free pages hold a step of `rows` rows.
  bool Fits(Neighbours kind, int rows) const;
  // The probe as a root-only tree in a step of `rows` rows.
  absl::StatusOr<RowResult> AmongNeighbours(std::span<const int32_t> own, Neighbours kind, int rows);
  // Neighbours with so many rows together.
  absl::Status AppendNeighbours(Neighbours kind, int rows, std::vector<SequencePages>& pages);
  // The probe as the last of a chunk of `rows` rows; no logits.
  absl::StatusOr<RowResult> EndOfChunk(std::span<const int32_t> own, int rows);
  absl::StatusOr<RowResult> Forward(int row, int slot, std::optional<int> logits_row);
  absl::Status Compare(const RowResult& alone, const RowResult& other, const std::string& where) const;
  absl::Status CompareAmong(Neighbours kind, int rows, std::span<const int32_t> own, const RowResult& alone);

  StepCapacity capacity_;
  int max_context_;
  std::mt19937_64 random_;
  uint64_t seed_;
  Model& model_;
  KvCache& cache_;
  Device& device_;
  int probe_ = 0;
  std::vector<TokenId> own_;
  StepBatch batch_;
  std::optional<BatchForward> forward_;
};

absl::Status SelfTest::FillPrefix(std::span<const int32_t> table) {
  for (int first = 0; first < probe_; first += capacity_.max_rows) {
    const int rows = std::min(capacity_.max_rows, probe_ - first);
    batch_.Clear();
    AppendChunk(table, first, std::span(own_).subspan(first, rows), batch_);
    RETURN_IF_ERROR(forward_->Run(batch_, cache_.planes()).status());
  }
  return absl::OkStatus();
}

absl::StatusOr<RowResult> SelfTest::Forward(int row, int slot, std::optional<int> logits_row) {
  ASSIGN_OR_RETURN(const ForwardResult forward, forward_->Run(batch_, cache_.planes()));
  RowResult result;
  const auto read = [this](const void* data, int64_t bytes, std::byte* out) {
    return device_.Copy(out, data, static_cast<size_t>(bytes));
  };
  const KvPlanes& planes = cache_.planes();
  const int64_t key_bytes = planes.plane_row_bytes()[0];
  result.cache.resize(static_cast<size_t>(planes.layers() * key_bytes));
  for (int layer = 0; layer < planes.layers(); ++layer) {
    const auto* plane = static_cast<const std::byte*>(planes.latent(layer));
    RETURN_IF_ERROR(read(plane + slot * key_bytes, key_bytes, result.cache.data() + layer * key_bytes));
  }
  result.taps.resize(static_cast<size_t>(forward.taps.columns) * sizeof(float));
  if (forward.taps.columns > 0) {
    RETURN_IF_ERROR(
        read(forward.taps.row(row), static_cast<int64_t>(result.taps.size()), result.taps.data()));
  }
  if (logits_row.has_value()) {
    result.logits.resize(static_cast<size_t>(forward.logits.columns) * sizeof(float));
    RETURN_IF_ERROR(read(forward.logits.row(*logits_row), static_cast<int64_t>(result.logits.size()),
                         result.logits.data()));
  }
  RETURN_IF_ERROR(device_.Synchronize());
  return result;
}

int SelfTest::LongestNeighbour(Neighbours kind) const {
  const int context = std::min(max_context_, capacity_.max_pages_per_sequence * kernels::kPageRows);
  return kind == Neighbours::kTrees ? std::min(context, kMaxTreeBudget + 1) : context;
}

bool SelfTest::Fits(Neighbours kind, int rows) const {
  const int most = kind == Neighbours::kTrees ? capacity_.max_logits_rows : capacity_.max_rows;
  const int longest = LongestNeighbour(kind);
  // One page more where the probe divides what would fill it.
  const int64_t pages = rows / longest * KvCache::PagesFor(longest) + KvCache::PagesFor(rows % longest) + 1;
  return rows <= most && pages <= cache_.pool().free_pages();
}

absl::Status SelfTest::AppendNeighbours(Neighbours kind, int rows, std::vector<SequencePages>& pages) {
  for (int left = rows; left > 0;) {
    const int count = std::min(left, LongestNeighbour(kind));
    left -= count;
    pages.push_back(cache_.pool().NewSequence());
    if (!pages.back().Resize(KvCache::PagesFor(count))) {
      return absl::InternalError("self-test: pages were counted");
    }
    const std::vector<TokenId> tokens = RandomTokens(count);
    if (kind == Neighbours::kPrompts) {
      AppendChunk(pages.back().table(), 0, tokens, batch_);
      continue;
    }
    std::vector<int32_t> parent = {-1};
    for (int node = 1; node < count; ++node) {  // so that trees are wide: of 255 nodes some 15 deep
      parent.push_back(static_cast<int32_t>(random_() % static_cast<uint64_t>(node)));
    }
    AppendTree(pages.back().table(), 0, tokens, parent, batch_);
  }
  return absl::OkStatus();
}

absl::StatusOr<RowResult> SelfTest::AmongNeighbours(std::span<const int32_t> own, Neighbours kind, int rows) {
  const int before = rows > 1 ? static_cast<int>(random_() % static_cast<uint64_t>(rows)) : 0;
  std::vector<SequencePages> pages;
  batch_.Clear();
  RETURN_IF_ERROR(AppendNeighbours(kind, before, pages));
  const TokenId root[] = {own_[probe_]};
  const int32_t parent[] = {-1};
  AppendTree(own, probe_, root, parent, batch_);
  RETURN_IF_ERROR(AppendNeighbours(kind, rows - 1 - before, pages));
  return Forward(before, SlotOf(own, probe_), kind == Neighbours::kTrees ? before : 0);
}

absl::StatusOr<RowResult> SelfTest::EndOfChunk(std::span<const int32_t> own, int rows) {
  batch_.Clear();
  AppendChunk(own, probe_ + 1 - rows, std::span(own_).last(rows), batch_);
  return Forward(rows - 1, SlotOf(own, probe_), std::nullopt);
}

absl::Status SelfTest::Compare(const RowResult& alone, const RowResult& other,
                               const std::string& where) const {
  const char* what = alone.cache != other.cache                              ? "K/V"
                     : alone.taps != other.taps                              ? "taps"
                     : !other.logits.empty() && alone.logits != other.logits ? "logits"
                                                                             : nullptr;
  if (what == nullptr) {
    return absl::OkStatus();
  }
  return absl::FailedPreconditionError(absl::StrCat("self-test: ", what, " of position ", probe_, " changed ",
                                                    where, " (seed=", seed_,
                                                    "), expected the same bits as alone"));
}

absl::Status SelfTest::CompareAmong(Neighbours kind, int rows, std::span<const int32_t> own,
                                    const RowResult& alone) {
  if (!Fits(kind, rows)) {
    return absl::OkStatus();
  }
  ASSIGN_OR_RETURN(const RowResult mixed, AmongNeighbours(own, kind, rows));
  const char* step = kind == Neighbours::kTrees ? "in a step of trees of " : "in a step of ";
  return Compare(alone, mixed, absl::StrCat(step, rows, " rows"));
}

absl::Status SelfTest::Run() {
  ASSIGN_OR_RETURN(forward_, BatchForward::Create(capacity_, model_, device_));
  SequencePages own = cache_.pool().NewSequence();
  if (!own.Resize(KvCache::PagesFor(probe_ + 1))) {
    return absl::InternalError("self-test: pages were counted");
  }
  RETURN_IF_ERROR(FillPrefix(own.table()));
  ASSIGN_OR_RETURN(const RowResult alone, AmongNeighbours(own.table(), Neighbours::kPrompts, 1));
  for (const int rows : kRowCounts) {
    RETURN_IF_ERROR(CompareAmong(Neighbours::kPrompts, rows, own.table(), alone));
    if (rows <= capacity_.max_rows && rows <= probe_ + 1) {
      ASSIGN_OR_RETURN(const RowResult chunk, EndOfChunk(own.table(), rows));
      RETURN_IF_ERROR(Compare(alone, chunk, absl::StrCat("at the end of a chunk of ", rows, " rows")));
    }
  }
  if (capacity_.max_rows > kRowCounts.back()) {
    RETURN_IF_ERROR(CompareAmong(Neighbours::kPrompts, capacity_.max_rows, own.table(), alone));
  }
  RETURN_IF_ERROR(CompareAmong(Neighbours::kTrees, kTreeRows, own.table(), alone));
  return CompareAmong(Neighbours::kTrees, capacity_.max_logits_rows, own.table(), alone);
}

}  // namespace

absl::Status RunSelfTest(const StepCapacity& capacity, int max_context, uint64_t seed, Model& model,
                         KvCache& cache, Device& device) {
  return SelfTest(capacity, max_context, seed, model, cache, device).Run();
}

}  // namespace arborist::verifier
