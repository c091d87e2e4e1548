#include "verifier/testing/exactness_checks.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <random>
#include <thread>
#include <utility>

#include "common/base/check.h"
#include "verifier/batch_builder.h"
#include "verifier/kv_cache.h"
#include "verifier/testing/drive.h"

namespace arborist::verifier {
namespace {

constexpr int kMaxRows = 600;
constexpr int kTreeNodes = 40;

TestVerifierOptions OptionsFor(const Subject& subject, int prefill_chunk) {
  TestVerifierOptions options;
  options.make_model = subject.make_model;
  options.fake.vocabulary = subject.vocabulary;
  options.projection = true;
  options.verifier.max_rows = kMaxRows;
  options.verifier.prefill_chunk = prefill_chunk;
  return options;
}

OpenArgs OpenFor(const Subject& subject, std::vector<TokenId> prompt, int max_tokens) {
  OpenArgs args = MakeOpen("request", std::move(prompt), max_tokens, 64);
  args.sampling = subject.sampling;
  return args;
}

std::vector<TokenId> Joined(std::vector<TokenId> first, std::span<const TokenId> second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

void ExpectSameBytes(const KvSpy& expected, const KvSpy& actual, int positions, const std::string& how) {
  ASSERT_GE(expected.positions(), positions) << how;
  ASSERT_GE(actual.positions(), positions) << how;
  for (int position = 0; position < positions; ++position) {
    ASSERT_EQ(expected.row(position), actual.row(position)) << how << ", position " << position;
  }
}

void ExpectSameText(const Decoded& expected, const Decoded& actual, const std::string& how) {
  EXPECT_EQ(expected.tokens, actual.tokens) << how;
  ASSERT_EQ(expected.log_probs.size(), actual.log_probs.size()) << how;
  EXPECT_EQ(std::memcmp(expected.log_probs.data(), actual.log_probs.data(),
                        expected.log_probs.size() * sizeof(float)),
            0)
      << how;
  EXPECT_EQ(expected.finish, actual.finish) << how;
  EXPECT_TRUE(actual.closed.ok()) << how << ": " << actual.closed;
}

}  // namespace

WrappedModel::Before KvSpy::hook() {
  return [this](StepBatch& batch, KvPlanes& planes) {
    const int committed = batch.position[0];
    const std::span<const int32_t> table(batch.page_table.data(), batch.pages_per_sequence);
    rows_.assign(static_cast<size_t>(committed), {});
    for (int position = 0; position < committed; ++position) {
      for (size_t plane = 0; plane < planes.plane_data().size(); ++plane) {
        const int64_t bytes = planes.plane_row_bytes()[plane];
        const auto* row =
            static_cast<const std::byte*>(planes.plane_data()[plane]) + SlotOf(table, position) * bytes;
        rows_[position].insert(rows_[position].end(), row, row + bytes);
      }
    }
    return absl::OkStatus();
  };
}

void CheckKvBytes(const Subject& subject) {
  const std::vector<TokenId> prompt = RandomTokens(70, subject.vocabulary, std::random_device{}());
  constexpr int kOutput = 130;
  constexpr int kCompared = 70 + kOutput - 2;  // a plain run's last root has no K/V yet

  KvSpy plain_spy;
  TestVerifierOptions options = OptionsFor(subject, 512);
  options.before = plain_spy.hook();
  const Decoded plain = DecodePlain(*TestVerifier(std::move(options)), OpenFor(subject, prompt, kOutput));
  ASSERT_EQ(plain.tokens.size(), static_cast<size_t>(kOutput)) << plain.closed;
  const std::vector<TokenId> text = Joined(prompt, plain.tokens);

  for (const int chunk : {1, 7, 64, 512}) {
    KvSpy spy;
    options = OptionsFor(subject, chunk);
    options.before = spy.hook();
    DecodePlain(*TestVerifier(std::move(options)), OpenFor(subject, text, 1));
    ExpectSameBytes(plain_spy, spy, kCompared, "prefill in chunks of " + std::to_string(chunk));
  }
  {
    KvSpy spy;
    options = OptionsFor(subject, 48);
    options.before = spy.hook();
    const Decoded trees = DecodeTrees(*TestVerifier(std::move(options)), OpenFor(subject, prompt, kOutput),
                                      ReplayDrafter(Joined(text, prompt), subject.vocabulary, 16, 5));
    ExpectSameText(plain, trees, "trees");
    EXPECT_GT(trees.compactions, 5);
    ExpectSameBytes(plain_spy, spy, std::min(kCompared, spy.positions()), "tree rounds with compaction");
    EXPECT_GT(spy.positions(), kCompared - 64);
  }
  {
    KvSpy spy;
    options = OptionsFor(subject, 48);
    options.before = spy.hook();
    OpenArgs args = OpenFor(subject, prompt, kOutput);
    args.output_so_far.assign(plain.tokens.begin(), plain.tokens.begin() + 57);
    DecodePlain(*TestVerifier(std::move(options)), std::move(args));
    ExpectSameBytes(plain_spy, spy, kCompared, "resumed from prompt + output");
  }
  {
    KvSpy spy;
    options = OptionsFor(subject, 48);
    options.before = spy.hook();
    TestVerifier verifier(std::move(options));
    RecordingSink old;
    std::vector<TokenId> other = text;
    other[100] = TokenId{(Raw(other[100]) + 1) % subject.vocabulary};
    ASSERT_TRUE(verifier->Open(OpenFor(subject, other, 30), &old).ok());
    old.WaitReady();
    OpenArgs args = OpenFor(subject, prompt, kOutput);
    args.epoch = 2;
    args.output_so_far.assign(plain.tokens.begin(), plain.tokens.begin() + 57);
    DecodePlain(*verifier, std::move(args));
    EXPECT_EQ(old.WaitClosed().code(), absl::StatusCode::kAborted);
    ExpectSameBytes(plain_spy, spy, kCompared, "takeover");
  }
}

void CheckTextIsTheSame(const Subject& subject, int tokens) {
  const std::vector<TokenId> prompt = RandomTokens(61, subject.vocabulary, std::random_device{}());
  TestVerifier verifier(OptionsFor(subject, 48));
  const Decoded plain = DecodePlain(*verifier, OpenFor(subject, prompt, tokens));
  ASSERT_EQ(plain.tokens.size(), static_cast<size_t>(tokens)) << plain.closed;
  const std::vector<TokenId> text = Joined(prompt, plain.tokens);

  int compactions = 0;
  for (const int nodes : {1, 3, 7, 16, 31, 64}) {
    const Decoded trees = DecodeTrees(*verifier, OpenFor(subject, prompt, tokens),
                                      ReplayDrafter(text, subject.vocabulary, nodes, std::random_device{}()));
    ExpectSameText(plain, trees, "trees of " + std::to_string(nodes));
    EXPECT_GT(trees.accepted_drafts, 0);
    EXPECT_GT(trees.verified_nodes, 0);
    compactions += trees.compactions;
  }
  EXPECT_GT(compactions, 0);

  TestVerifierOptions cutting = OptionsFor(subject, 48);
  cutting.verifier.cut_trees_seed = std::random_device{}();
  const Decoded cut = DecodeTrees(*TestVerifier(std::move(cutting)), OpenFor(subject, prompt, tokens),
                                  ReplayDrafter(text, subject.vocabulary, 31, 3));
  ExpectSameText(plain, cut, "cut trees");
  EXPECT_GT(cut.cut_nodes, 0);

  std::vector<std::thread> owners;
  for (int i = 0; i < 8; ++i) {
    owners.emplace_back([&, i] {
      OpenArgs args = OpenFor(subject, prompt, tokens);
      args.key.request_id += std::to_string(i);
      const int resumed = i * tokens / 16;
      args.output_so_far.assign(plain.tokens.begin(), plain.tokens.begin() + resumed);
      const Decoded mixed = i % 3 == 2 ? DecodePlain(*verifier, std::move(args))
                                       : DecodeTrees(*verifier, std::move(args),
                                                     ReplayDrafter(text, subject.vocabulary, 5 + 6 * i, i));
      Decoded rest = plain;
      rest.tokens.erase(rest.tokens.begin(), rest.tokens.begin() + resumed);
      rest.log_probs.erase(rest.log_probs.begin(), rest.log_probs.begin() + resumed);
      ExpectSameText(rest, mixed, "mixed and resumed, " + std::to_string(i));
    });
  }
  for (std::thread& owner : owners) {
    owner.join();
  }
  EXPECT_EQ(verifier->free_pages(), verifier->total_pages());
}

void CheckNodeEqualsRootOnlyStep(Model& model, int longest) {
  const int64_t vocabulary = model.config().vocab_size;
  const int pages = static_cast<int>(KvCache::PagesFor(longest + kTreeNodes + 1));
  KvCache cache(model.config().layers, pages, model.config().latent_row(), 0, 1, 1);
  SequencePages own = cache.pool().NewSequence();
  ASSERT_TRUE(own.Resize(pages));
  StepBatch batch;
  batch.Reserve(model.max_rows(), 1, pages);
  std::mt19937_64 random(std::random_device{}());
  const std::vector<TokenId> prefix = RandomTokens(longest, static_cast<int>(vocabulary), random());
  for (int first = 0; first < longest; first += model.max_rows()) {
    batch.Clear();
    const int rows = std::min(model.max_rows(), longest - first);
    AppendChunk(own.table(), first, std::span(prefix).subspan(first, rows), batch);
    ASSERT_TRUE(model.Forward(batch, cache.planes()).ok());
  }
  std::vector<int> roots;
  for (int boundary = 64; boundary < longest + 64; boundary += boundary < 256 ? 64 : 256) {
    for (const int root :
         {boundary - 64, boundary - 3, boundary - 2, boundary - 1, boundary + 62, boundary + 63}) {
      if (root < longest) {
        roots.push_back(root);
      }
    }
  }
  // From the longest down: a tree overwrites the rows after its root.
  std::sort(roots.rbegin(), roots.rend());
  const auto kv = [&](int logical) {
    std::vector<float> rows;
    for (int layer = 0; layer < model.config().layers; ++layer) {
      const float* row =
          cache.planes().latent(layer) + SlotOf(own.table(), logical) * cache.planes().latent_row();
      rows.insert(rows.end(), row, row + cache.planes().latent_row());
    }
    return rows;
  };
  for (const int root : roots) {
    const std::vector<TokenId> token = RandomTokens(kTreeNodes + 1, static_cast<int>(vocabulary), random());
    std::vector<int32_t> parent = {-1};
    for (int i = 1; i <= kTreeNodes; ++i) {
      parent.push_back(static_cast<int32_t>(i - 1 - static_cast<int>(random() % std::min(i, 4))));
    }
    batch.Clear();
    AppendTree(own.table(), root, token, parent, batch);
    auto forward = model.Forward(batch, cache.planes());
    ASSERT_TRUE(forward.ok()) << forward.status();
    std::vector<std::vector<float>> logits;
    std::vector<std::vector<float>> keys;
    for (int i = 0; i <= kTreeNodes; ++i) {
      logits.emplace_back(forward->logits.row(i), forward->logits.row(i) + vocabulary);
      keys.push_back(kv(root + i));
    }
    for (const int node : {0, 1, 2, 1 + static_cast<int>(random() % kTreeNodes), kTreeNodes}) {
      std::vector<TokenId> path;
      for (int ancestor = parent[node]; ancestor >= 0; ancestor = parent[ancestor]) {
        path.insert(path.begin(), token[ancestor]);
      }
      const int position = root + static_cast<int>(path.size());
      if (!path.empty()) {
        batch.Clear();
        AppendChunk(own.table(), root, path, batch);
        ASSERT_TRUE(model.Forward(batch, cache.planes()).ok());
      }
      const TokenId alone[] = {token[node]};
      const int32_t no_parent[] = {-1};
      batch.Clear();
      AppendTree(own.table(), position, alone, no_parent, batch);
      forward = model.Forward(batch, cache.planes());
      ASSERT_TRUE(forward.ok()) << forward.status();
      ASSERT_EQ(std::memcmp(forward->logits.row(0), logits[node].data(), vocabulary * sizeof(float)), 0)
          << "logits, root at " << root << ", node " << node << " at depth " << path.size();
      const std::vector<float> key = kv(position);
      ASSERT_EQ(std::memcmp(key.data(), keys[node].data(), key.size() * sizeof(float)), 0)
          << "K/V, root at " << root << ", node " << node;
    }
  }
}

}  // namespace arborist::verifier
