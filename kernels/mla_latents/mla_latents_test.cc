#include "kernels/mla_latents/mla_latents.h"

#include <gtest/gtest.h>

#include "kernels/mla_latents/latents_case.h"
#include "kernels/testing/compare.h"

namespace arborist::kernels {
namespace {

using mla_latents::Case;
using mla_latents::RunOnHost;

TEST(MlaLatentsTest, EqualsNormsRotationAndAppendOfEveryRow) {
  testing::Random random;
  SCOPED_TRACE(random.seed());
  for (const mla_latents::Shape& shape : mla_latents::ManyShapes()) {
    const Case c(shape, random);
    ThreadPool pool(1);
    for (const RopePairing pairing : {RopePairing::kInterleaved, RopePairing::kHalfSplit}) {
      const auto want = RunOnHost(c, reference::MlaLatents, pairing, {.threads = &pool});
      testing::ForEveryIsaAndThreadCount([&](StreamView stream) {
        // A few roundings of the sum of squares, one for each step after it.
        ASSERT_TRUE(testing::Close(RunOnHost(c, cpu::MlaLatents, pairing, stream), want, 2e-6))
            << shape.latent;
      });
    }
  }
}

TEST(MlaLatentsTest, ShapesAreRefusedByFieldAndValue) {
  testing::Random random;
  const Case c({3, 8, 16, 4}, random);
  const auto message = [&](auto change) {
    std::vector<float> rows = c.compressed, plane(Case::kSlots * c.width());
    MlaLatentsArgs args =
        c.Args(rows.data(), c.query_norm.data(), c.key_norm.data(), c.cosine.data(), c.sine.data(),
               c.position.data(), c.slot.data(), plane.data(), DType::kF32, RopePairing::kInterleaved);
    change(args);
    return std::string(ValidateMlaLatents(args).message());
  };
  using Args = MlaLatentsArgs;
  EXPECT_EQ(message([](Args&) {}), "");
  EXPECT_EQ(message([](Args& a) { a.position.size = 2; }), "position.size=2, expected 3");
  EXPECT_EQ(message([](Args& a) { a.slot.size = 4; }), "slot.size=4, expected 3");
  EXPECT_EQ(message([](Args& a) { a.key.columns = 19; }), "key.columns=19, expected 20");
  EXPECT_EQ(message([](Args& a) { a.query.rows = 1; }), "query.rows=1, expected 3");
  EXPECT_EQ(message([](Args& a) { a.plane_dtype = DType::kF16; }), "plane_dtype=F16, expected F32 or BF16");
  EXPECT_NE(message([](Args& a) { a.plane = nullptr; }), "");
  EXPECT_NE(message([](Args& a) { a.epsilon = 0; }), "");
}

}  // namespace
}  // namespace arborist::kernels
