#include "verifier/testing/every_node_check.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <iterator>
#include <random>
#include <span>
#include <utility>

#include "common/base/check.h"
#include "kernels/testing/small_shapes.h"
#include "verifier/batch_builder.h"
#include "verifier/kv_cache.h"
#include "verifier/model/batch_forward.h"
#include "verifier/testing/drive.h"

namespace arborist::verifier {
namespace {

using kernels::testing::Small;
using kernels::testing::Thinned;

constexpr int kTreeRows = 25;
constexpr int kMostLead = 70;  // prefix rows of a chunk before the tree

// One sequence's pages under a bare model.
class Bench {
 public:
  Bench(Model& model, int rows, Device& device, DType kv_type)
      : model_(model),
        device_(device),
        pages_(static_cast<int>(KvCache::PagesFor(rows))),
        cache_(Must(KvPlanes::Create({.layers = model.config().layers,
                                      .pages = pages_,
                                      .latent_type = kv_type,
                                      .latent_row = model.config().latent_row()},
                                     device)),
               1, 1),
        own_(cache_.pool().NewSequence()),
        forward_(Must(BatchForward::Create({.max_rows = model.max_rows(),
                                            .max_logits_rows = kTreeRows,
                                            .max_sequences = 1,
                                            .max_pages_per_sequence = pages_},
                                           model, device))) {
    Check(own_.Resize(pages_), "the pool is the sequence's own");
    batch_.Reserve(model.max_rows(), 1, pages_);
  }

  void Chunk(int first_position, std::span<const TokenId> tokens) {
    for (size_t begin = 0; begin < tokens.size(); begin += static_cast<size_t>(model_.max_rows())) {
      const size_t rows = std::min(tokens.size() - begin, static_cast<size_t>(model_.max_rows()));
      batch_.Clear();
      AppendChunk(own_.table(), first_position + static_cast<int>(begin), tokens.subspan(begin, rows),
                  batch_);
      Must(forward_.Run(batch_, cache_.planes()));
    }
  }

  // Logits of every node.
  std::vector<std::vector<float>> Tree(int root_position, std::span<const TokenId> token,
                                       std::span<const int32_t> parent) {
    batch_.Clear();
    AppendTree(own_.table(), root_position, token, parent, batch_);
    const ForwardResult forward = Must(forward_.Run(batch_, cache_.planes()));
    std::vector<std::vector<float>> logits;
    for (size_t row = 0; row < token.size(); ++row) {
      logits.emplace_back(static_cast<size_t>(forward.logits.columns));
      Enqueue(forward.logits.row(static_cast<int64_t>(row)), logits.back().data(),
              logits.back().size() * sizeof(float));
    }
    Wait();
    return logits;
  }

  // All layers' K/V of a logical row.
  std::vector<std::byte> Keys(int logical_row) {
    const KvPlanes& planes = cache_.planes();
    const auto bytes = static_cast<size_t>(planes.plane_row_bytes()[0]);
    const auto slot = static_cast<size_t>(SlotOf(own_.table(), logical_row));
    std::vector<std::byte> keys(bytes * static_cast<size_t>(planes.layers()));
    for (int layer = 0; layer < planes.layers(); ++layer) {
      Enqueue(static_cast<const std::byte*>(planes.latent(layer)) + slot * bytes,
              keys.data() + static_cast<size_t>(layer) * bytes, bytes);
    }
    Wait();
    return keys;
  }

 private:
  template <typename T>
  static T Must(absl::StatusOr<T> value) {
    Check(value.ok(), value.status().ToString());
    return *std::move(value);
  }
  void Enqueue(const void* from, void* to, size_t bytes) {
    Check(device_.Copy(to, from, bytes).ok(), "the device can be read");
  }
  void Wait() { Check(device_.Synchronize().ok(), "the device can be read"); }

  Model& model_;
  Device& device_;
  int pages_;
  KvCache cache_;
  SequencePages own_;
  BatchForward forward_;
  StepBatch batch_;
};

// Root positions where a row's keys change hands, a tree's own rows among them: ends of pages and, 63
// positions later, of the blocks of the exact rule; from 256 on only where splits of the CPU (1024) and of
// CUDA (256, 512 from 33 blocks on) end.
std::vector<int> RootsAroundBoundaries(int longest) {
  std::vector<int> roots = {0, 1};
  for (int boundary = 64; boundary < longest; boundary += 64) {
    if (boundary > 256 && boundary % 256 != 0 && boundary != 33 * 64) {
      continue;
    }
    for (const int shift : {-5, 0, 57, 63}) {
      if (boundary + shift < longest) {
        roots.push_back(boundary + shift);
      }
    }
  }
  return roots;
}

bool SameBits(const std::vector<float>& a, const std::vector<float>& b) {
  return a.size() == b.size() && std::memcmp(a.data(), b.data(), a.size() * sizeof(float)) == 0;
}

// One random tree behind a prefix, and what its rows gave when they were verified together.
class TreeAt {
 public:
  TreeAt(int root, int nodes, std::span<const TokenId> prefix, int vocabulary, std::mt19937_64& random,
         Bench& bench)
      : root_(root), prefix_(prefix), random_(random), bench_(bench) {
    token_ = RandomTokens(nodes, vocabulary, random());
    parent_ = {-1};
    for (int i = 1; i < nodes; ++i) {
      parent_.push_back(i - 1 - static_cast<int32_t>(random() % static_cast<uint64_t>(std::min(i, 4))));
    }
    logits_ = bench.Tree(root, token_, parent_);
    for (int i = 0; i < nodes; ++i) {
      keys_.push_back(bench.Keys(root + i));
    }
  }

  // Root-only steps, depth first: a node's ancestors are committed rows when its turn comes.
  void CheckSteps(int node = 0, int depth = 0) {
    CheckStep(node, depth, "steps");
    for (int child = node + 1; child < nodes(); ++child) {
      if (parent_[child] == node && !testing::Test::HasFatalFailure()) {
        CheckSteps(child, depth + 1);
      }
    }
  }

  // Every path as a prompt: in one chunk that begins before the tree, or in chunks of 1, 2, 3, 7 and 13 rows.
  void CheckChunks() {
    for (int leaf = 0; leaf < nodes() && !testing::Test::HasFatalFailure(); ++leaf) {
      if (std::find(parent_.begin(), parent_.end(), leaf) != parent_.end()) {
        continue;
      }
      const std::vector<int> path = Path(leaf);
      std::vector<TokenId> tokens;
      const bool whole = random_() % 2 == 0;
      const int lead =
          whole ? static_cast<int>(random_() % static_cast<uint64_t>(std::min(root_, kMostLead) + 1)) : 0;
      tokens.assign(prefix_.begin() + root_ - lead, prefix_.begin() + root_);
      for (const int node : path) {
        tokens.push_back(token_[node]);
      }
      for (size_t begin = 0; begin < tokens.size();) {
        static constexpr size_t kLengths[] = {1, 2, 3, 7, 13};
        const size_t rows = whole
                                ? tokens.size()
                                : std::min(kLengths[random_() % std::size(kLengths)], tokens.size() - begin);
        bench_.Chunk(root_ - lead + static_cast<int>(begin), {tokens.data() + begin, rows});
        begin += rows;
      }
      for (size_t depth = 0; depth < path.size(); ++depth) {
        ASSERT_EQ(bench_.Keys(root_ + static_cast<int>(depth)), keys_[path[depth]])
            << "K/V of a chunk, root at " << root_ << ", node " << path[depth];
      }
      CheckStep(leaf, static_cast<int>(path.size()) - 1, "chunks");
    }
  }

 private:
  int nodes() const { return static_cast<int>(token_.size()); }

  std::vector<int> Path(int node) const {
    std::vector<int> path;
    for (; node >= 0; node = parent_[node]) {
      path.insert(path.begin(), node);
    }
    return path;
  }

  void CheckStep(int node, int depth, const char* how) {
    const TokenId alone[] = {token_[node]};
    const int32_t no_parent[] = {-1};
    ASSERT_TRUE(SameBits(bench_.Tree(root_ + depth, alone, no_parent)[0], logits_[node]))
        << "logits after " << how << ", root at " << root_ << ", node " << node << " at depth " << depth;
    ASSERT_EQ(bench_.Keys(root_ + depth), keys_[node])
        << "K/V after " << how << ", root at " << root_ << ", node " << node << " at depth " << depth;
  }

  int root_;
  std::span<const TokenId> prefix_;
  std::mt19937_64& random_;
  Bench& bench_;
  std::vector<TokenId> token_;
  std::vector<int32_t> parent_;
  std::vector<std::vector<float>> logits_;
  std::vector<std::vector<std::byte>> keys_;
};

}  // namespace

void CheckEveryNode(Model& model, int longest, Device& device, DType kv_type) {
  const auto vocabulary = static_cast<int>(model.config().vocab_size);
  std::mt19937_64 random(std::random_device{}());
  Bench bench(model, longest + kTreeRows, device, kv_type);
  const std::vector<TokenId> prefix = RandomTokens(longest, vocabulary, random());
  bench.Chunk(0, prefix);
  std::vector<int> roots = RootsAroundBoundaries(longest);
  // From the longest down: a tree overwrites the rows after its root.
  std::sort(roots.rbegin(), roots.rend());
  for (const int root : Thinned(roots, 2)) {
    TreeAt tree(root, Small(kTreeRows, 3), prefix, vocabulary, random, bench);
    tree.CheckSteps();
    tree.CheckChunks();
    if (testing::Test::HasFatalFailure()) {
      return;
    }
  }
}

}  // namespace arborist::verifier
