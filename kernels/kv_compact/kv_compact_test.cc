#include "kernels/kv_compact/kv_compact.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

namespace arborist::kernels {
namespace {

using Compact = absl::Status (*)(const KvCompactArgs&, StreamView);

struct Moves {
  std::vector<int32_t> from;
  std::vector<int32_t> to;
};

// Planes of different row widths with fresh random bytes.
struct Planes {
  int64_t slots;
  std::vector<int64_t> row_bytes;
  std::vector<std::vector<std::byte>> bytes;

  Planes(int64_t slots, std::vector<int64_t> widths) : slots(slots), row_bytes(std::move(widths)) {
    std::mt19937 random(std::random_device{}());
    for (int64_t width : row_bytes) {
      bytes.emplace_back(slots * width);
      for (std::byte& byte : bytes.back()) {
        byte = static_cast<std::byte>(random());
      }
    }
  }
};

absl::Status RunCompact(Compact compact, Planes& planes, const Moves& moves, ThreadPool& pool,
                        int scratch_threads) {
  std::vector<void*> plane;
  for (auto& bytes : planes.bytes) {
    plane.push_back(bytes.data());
  }
  const int64_t widest = *std::max_element(planes.row_bytes.begin(), planes.row_bytes.end());
  const auto count = static_cast<int64_t>(moves.from.size());
  std::vector<std::byte> scratch(KvCompactScratchBytes(count, widest, scratch_threads));
  return compact({.plane = {plane.data(), static_cast<int64_t>(plane.size())},
                  .row_bytes = {planes.row_bytes.data(), static_cast<int64_t>(plane.size())},
                  .max_row_bytes = widest,
                  .slots = planes.slots,
                  .from = {moves.from.data(), count},
                  .to = {moves.to.data(), static_cast<int64_t>(moves.to.size())},
                  .scratch = {scratch.data(), static_cast<int64_t>(scratch.size())}},
                 {.threads = &pool});
}

// The mistake this kernel exists to avoid: each row is moved in place, here from the last move to the first.
absl::Status CompactInPlace(const KvCompactArgs& args, StreamView /*stream*/) {
  for (int64_t p = 0; p < args.plane.size; ++p) {
    auto* plane = static_cast<std::byte*>(args.plane[p]);
    for (int64_t move = args.from.size - 1; move >= 0; --move) {
      std::memmove(plane + args.to[move] * args.row_bytes[p], plane + args.from[move] * args.row_bytes[p],
                   args.row_bytes[p]);
    }
  }
  return absl::OkStatus();
}

// Whether `compact` left every plane as "all reads, then all writes" does.
bool MovesAsIfAllReadsCameFirst(Compact compact, const Moves& moves, ThreadPool& pool, int scratch_threads) {
  const Planes before(64, {640, 8, 3, 2048, 8192, 16, 9000});
  Planes after = before;
  EXPECT_TRUE(RunCompact(compact, after, moves, pool, scratch_threads).ok());
  for (size_t p = 0; p < before.bytes.size(); ++p) {
    std::vector<std::byte> expected = before.bytes[p];
    const int64_t width = before.row_bytes[p];
    for (size_t move = 0; move < moves.from.size(); ++move) {
      if (moves.from[move] < 0 || moves.to[move] < 0) {
        continue;
      }
      std::copy_n(before.bytes[p].begin() + moves.from[move] * width, width,
                  expected.begin() + moves.to[move] * width);
    }
    if (after.bytes[p] != expected) {
      return false;
    }
  }
  return true;
}

TEST(KvCompactTest, ThePathZeroTwoThreeKeepsItsRowsInOrder) {
  ThreadPool pool(2);
  const Moves path = {.from = {12, 13}, .to = {11, 12}};  // start = 10: nodes 2 and 3 become depths 1 and 2
  for (Compact compact : {reference::KvCompact, cpu::KvCompact}) {
    EXPECT_TRUE(MovesAsIfAllReadsCameFirst(compact, path, pool, 2));
  }
}

TEST(KvCompactTest, AMoveInPlaceIsCaughtOnThatPath) {
  ThreadPool pool(1);
  EXPECT_FALSE(MovesAsIfAllReadsCameFirst(CompactInPlace, {.from = {12, 13}, .to = {11, 12}}, pool, 1));
}

TEST(KvCompactTest, RandomMovesIncludingCyclesEqualReadsBeforeWritesForAnyThreadsAndScratch) {
  std::mt19937 random(std::random_device{}());
  for (int threads : {1, 2, 5}) {
    ThreadPool pool(threads);
    for (int round = 0; round < 30; ++round) {
      Moves moves;
      moves.from.resize(64);
      std::iota(moves.from.begin(), moves.from.end(), 0);
      moves.to = moves.from;
      std::shuffle(moves.from.begin(), moves.from.end(), random);
      std::shuffle(moves.to.begin(), moves.to.end(), random);
      const size_t count = random() % 65;
      moves.from.resize(count);
      moves.to.resize(count);
      for (size_t i = 0; i < count; ++i) {  // padding rows: one side or both say so
        const auto padding = random() % 8;
        moves.from[i] = padding == 0 || padding == 1 ? -1 : moves.from[i];
        moves.to[i] = padding == 1 || padding == 2 ? -1 : moves.to[i];
      }
      for (Compact compact : {reference::KvCompact, cpu::KvCompact}) {
        EXPECT_TRUE(
            MovesAsIfAllReadsCameFirst(compact, moves, pool, 1 + static_cast<int>(random() % threads)));
      }
    }
  }
}

TEST(KvCompactTest, BadMovesAreRefusedByIndexAndValueAndChangeNothing) {
  ThreadPool pool(1);
  const auto message = [&](const Moves& moves) {
    const Planes before(64, {16});
    Planes after = before;
    std::string text;
    for (Compact compact : {reference::KvCompact, cpu::KvCompact}) {
      const absl::Status status = RunCompact(compact, after, moves, pool, 1);
      EXPECT_EQ(status.code(), absl::StatusCode::kInvalidArgument);
      text = std::string(status.message());
    }
    EXPECT_EQ(after.bytes, before.bytes);
    return text;
  };
  EXPECT_THAT(message({{1, 64}, {2, 3}}), testing::HasSubstr("from[1]=64, expected a slot below 64"));
  EXPECT_THAT(message({{1, 2}, {99, 3}}), testing::HasSubstr("to[0]=99, expected a slot below 64"));
  EXPECT_THAT(message({{1, 2}, {5, 5}}), testing::HasSubstr("to[1]=5, expected distinct slots"));
  EXPECT_THAT(message({{7, 7}, {5, 6}}), testing::HasSubstr("from[1]=7, expected distinct slots"));
  EXPECT_THAT(message({{1, 2}, {5}}), testing::HasSubstr("from.size=2, expected to.size=1"));
}

TEST(KvCompactTest, TooLittleScratchIsRefusedWithTheNeededSize) {
  ThreadPool pool(1);
  Planes planes(64, {16});
  const absl::Status status = RunCompact(cpu::KvCompact, planes, {{1, 2}, {5, 6}}, pool, 0);
  EXPECT_EQ(std::string(status.message()), "scratch.size=0, expected at least moves * max_row_bytes=32");
}

TEST(KvCompactTest, SlotsOfMovesThatDoNotHappenMayRepeat) {
  ThreadPool pool(1);
  for (Compact compact : {reference::KvCompact, cpu::KvCompact}) {
    EXPECT_TRUE(MovesAsIfAllReadsCameFirst(compact, {.from = {7, 7, -1}, .to = {5, -1, 5}}, pool, 1));
  }
}

TEST(KvCompactTest, AWrongWidestRowAndTooManyMovesAreNamed) {
  std::vector<std::byte> bytes(64 * 16);
  void* const plane = bytes.data();
  const std::vector<int64_t> row_bytes = {16};
  const std::vector<int32_t> slot(513, -1);
  KvCompactArgs args;
  args.plane = {&plane, 1};
  args.row_bytes = {row_bytes.data(), 1};
  args.slots = 64;
  args.max_row_bytes = 8;
  EXPECT_EQ(ValidateKvCompact(args).message(), "max_row_bytes=8, expected the largest of row_bytes, 16");
  args.max_row_bytes = 0;
  EXPECT_EQ(ValidateKvCompact(args).message(), "max_row_bytes=0, expected > 0");
  args.max_row_bytes = 16;
  args.from = args.to = {slot.data(), 513};
  EXPECT_EQ(ValidateKvCompact(args).message(), "from.size=513, expected at most 512 moves");
}

}  // namespace
}  // namespace arborist::kernels
