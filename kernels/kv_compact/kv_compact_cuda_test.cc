#include <algorithm>
#include <memory>
#include <numeric>
#include <vector>

#include "gtest/gtest.h"
#include "kernels/kv_compact/kv_compact.h"
#include "kernels/testing/cuda_test.h"
#include "kernels/testing/random_tensor.h"
#include "kernels/testing/small_shapes.h"

namespace arborist::kernels {
namespace {

using namespace testing;  // NOLINT: the test's vocabulary

struct Moves {
  std::vector<int32_t> from, to;
};

class KvCompactCudaTest : public CudaTest {
 protected:
  // Planes of these row widths, random bytes, moved on the device and by the oracle.
  void ExpectTheOracles(Random& random, int64_t slots, const std::vector<int64_t>& row_bytes,
                        const Moves& moves) {
    const auto planes = static_cast<int64_t>(row_bytes.size());
    const auto count = static_cast<int64_t>(moves.from.size());
    std::vector<std::vector<uint8_t>> want;
    std::vector<std::unique_ptr<DeviceArray<uint8_t>>> got;
    std::vector<void*> host_plane, device_plane;
    int64_t widest = 0;
    for (const int64_t width : row_bytes) {
      std::vector<uint8_t>& bytes = want.emplace_back(slots * width);
      for (uint8_t& byte : bytes) {
        byte = static_cast<uint8_t>(random.engine()());
      }
      got.push_back(std::make_unique<DeviceArray<uint8_t>>(bytes));
      device_plane.push_back(got.back()->data());
      widest = std::max(widest, width);
    }
    for (std::vector<uint8_t>& bytes : want) {
      host_plane.push_back(bytes.data());
    }
    std::vector<std::byte> scratch(KvCompactScratchBytes(count, widest, 1));
    KvCompactArgs args{.plane = {host_plane.data(), planes},
                       .row_bytes = {row_bytes.data(), planes},
                       .max_row_bytes = widest,
                       .slots = slots,
                       .from = {moves.from.data(), count},
                       .to = {moves.to.data(), count},
                       .scratch = {scratch.data(), static_cast<int64_t>(scratch.size())}};
    ASSERT_TRUE(reference::KvCompact(args, {}).ok());
    const DeviceArray<void*> plane(device_plane);
    const DeviceArray<int64_t> widths(row_bytes);
    const DeviceArray<int32_t> from(moves.from), to(moves.to);
    args.plane.data = plane.data();
    args.row_bytes.data = widths.data();
    args.from.data = from.data();
    args.to.data = to.data();
    args.scratch = {};
    ASSERT_TRUE(cuda::KvCompact(args, stream()).ok());
    for (int64_t p = 0; p < planes; ++p) {
      EXPECT_EQ(got[p]->Read(), want[p])
          << "plane " << p << " of " << row_bytes[p] << " bytes a row, " << count << " moves";
    }
  }
};

// `count` moves among `slots`: permutations with their chains, swaps and fixed points; a part does not
// happen.
Moves RandomMoves(Random& random, int64_t slots, int64_t count, bool padding) {
  Moves moves;
  moves.from.resize(slots);
  std::iota(moves.from.begin(), moves.from.end(), 0);
  moves.to = moves.from;
  std::shuffle(moves.from.begin(), moves.from.end(), random.engine());
  std::shuffle(moves.to.begin(), moves.to.end(), random.engine());
  moves.from.resize(count);
  moves.to.resize(count);
  for (int64_t i = 0; padding && i < count; ++i) {
    const int64_t kind = random.Uniform(0, 3);
    moves.from[i] = kind == 0 || kind == 1 ? -1 : moves.from[i];
    moves.to[i] = kind == 1 || kind == 2 ? -1 : moves.to[i];
  }
  return moves;
}

TEST_F(KvCompactCudaTest, AnyMovesAmongFewSlotsEqualReadsBeforeWrites) {
  Random random;
  SCOPED_TRACE(random.seed());
  const std::vector<int64_t> widths = {640, 8, 3, 1152, 16, 9000, 14336, 20, 1, 4100};
  for (const int64_t count : Thinned({0, 1, 2, 15, 63, 255, 256, 257, 512}, 5)) {
    for (const bool padding : {false, true}) {
      const int64_t slots = std::max<int64_t>(2, count + random.Uniform(0, 3));
      ExpectTheOracles(random, slots, widths, RandomMoves(random, slots, count, padding));
    }
  }
}

TEST_F(KvCompactCudaTest, SwapsChainsAndOneCycleOfAllSlots) {
  Random random;
  SCOPED_TRACE(random.seed());
  const std::vector<int64_t> widths = {1152, 36};
  ExpectTheOracles(random, 64, widths, {{12, 13}, {11, 12}});  // path 0,2,3 from row 10
  ExpectTheOracles(random, 64, widths, {{4, 9}, {9, 4}});
  for (const int shift : {1, 511}) {
    Moves cycle;
    for (int i = 0; i < 512; ++i) {
      cycle.from.push_back(i);
      cycle.to.push_back((i + shift) % 512);
    }
    ExpectTheOracles(random, 512, widths, cycle);
  }
}

// What a step of many sequences moves: each tree's path of any length inside its own page, in order or not,
// with moves between them that do not happen.
TEST_F(KvCompactCudaTest, PathsOfManyTreesOfAnyLength) {
  Random random;
  SCOPED_TRACE(random.seed());
  const std::vector<int64_t> widths = {1152, 640, 36, 3, 4100};
  for (const int longest : Thinned({2, 8, 30, 63}, 2)) {
    for (const bool in_order : {true, false}) {
      Moves moves;
      int32_t page = 0;
      for (; moves.from.size() < 480 && page < 64; ++page) {
        const auto length = static_cast<int>(
            std::min<int64_t>(random.Uniform(1, longest), 511 - static_cast<int64_t>(moves.from.size())));
        std::vector<int32_t> nodes(63);
        std::iota(nodes.begin(), nodes.end(), 1);
        std::shuffle(nodes.begin(), nodes.end(), random.engine());
        nodes.resize(length);
        std::sort(nodes.begin(), nodes.end());
        std::vector<int32_t> order(length);
        std::iota(order.begin(), order.end(), 0);
        if (!in_order) {
          std::shuffle(order.begin(), order.end(), random.engine());
        }
        for (const int32_t i : order) {
          moves.from.push_back(page * 64 + nodes[i]);
          moves.to.push_back(page * 64 + i + 1);
        }
        moves.from.push_back(-1);
        moves.to.push_back(random.Uniform(0, 1) == 0 ? -1 : page * 64);
      }
      moves.from.resize(std::min<size_t>(moves.from.size(), kMaxCompactMoves));
      moves.to.resize(moves.from.size());
      ExpectTheOracles(random, page * 64, widths, moves);
    }
  }
}

TEST_F(KvCompactCudaTest, AnyNumberOfPlanesUpToTheMaximum) {
  Random random;
  SCOPED_TRACE(random.seed());
  for (const int64_t planes : {1, 32, 33, 62, 256}) {
    std::vector<int64_t> widths;
    for (int64_t p = 0; p < planes; ++p) {
      widths.push_back(random.Uniform(1, 40) * (p % 3 == 0 ? 16 : p % 3 == 1 ? 4 : 1));
    }
    ExpectTheOracles(random, 40, widths, RandomMoves(random, 40, 33, true));
  }
}

TEST_F(KvCompactCudaTest, MovesToAndFromSlotsPastThePlanesAreSkipped) {
  const DeviceArray<uint8_t> bytes(std::vector<uint8_t>{0, 1, 2, 3});
  const DeviceArray<void*> plane({static_cast<void*>(bytes.data())});
  const DeviceArray<int64_t> width(std::vector<int64_t>{1});
  const DeviceArray<int32_t> from({4, 2, 1 << 30, 3}), to({0, 1, 2, 4});
  ASSERT_TRUE(cuda::KvCompact({.plane = {plane.data(), 1},
                               .row_bytes = width.const_view(),
                               .max_row_bytes = 1,
                               .slots = 4,
                               .from = from.const_view(),
                               .to = to.const_view(),
                               .scratch = {}},
                              stream())
                  .ok());
  EXPECT_EQ(bytes.Read(), (std::vector<uint8_t>{0, 2, 2, 3}));
}

}  // namespace
}  // namespace arborist::kernels
