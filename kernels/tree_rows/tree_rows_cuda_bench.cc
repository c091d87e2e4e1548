#include <random>
#include <string>
#include <vector>

#include "common/base/check.h"
#include "kernels/bench/cuda_bench.h"
#include "kernels/bench/output_check.h"
#include "kernels/tree_rows/tree_rows_case.h"

// Floor: the bytes of its outputs; the walk from node to root bounds it.
int main(int argc, char** argv) {
  using namespace arborist::kernels;  // NOLINT: a program of this room
  bench::CudaBench bench(argc, argv);
  if (!bench.Wanted("tree_rows")) {
    return 0;
  }
  std::mt19937_64 engine(1);
  for (const testing::TreeRowsShape& shape :
       {testing::TreeRowsShape{1, 33, 64, 4096, 0, true}, testing::TreeRowsShape{64, 65, 64, 4096, 0, true},
        testing::TreeRowsShape{64, 65, 1, 4096, 0, true}}) {
    const testing::TreeRowsCase c(shape, engine);
    TreeRowsArgs args = c.Args();
    args.tree_begin.data = bench.Upload(c.tree_begin);
    args.nodes.data = bench.Upload(c.nodes);
    args.parent.data = bench.Upload(c.parent);
    args.root_position.data = bench.Upload(c.root_position);
    args.table_row.data = bench.Upload(c.table_row);
    args.page_table.data = bench.Upload(c.page_table);
    args.write_slot.data = bench.Upload(c.write_slot);
    const auto out = [&](int64_t count) { return static_cast<int32_t*>(bench.Memory(count * 4, 0xff)); };
    args.sequence = {out(c.rows()), c.rows()};
    args.position = {out(c.rows()), c.rows()};
    args.prefix_blocks = {out(c.rows()), c.rows()};
    args.tail_slot = {out(c.rows() * kMaxTailKeys), c.rows(), kMaxTailKeys, kMaxTailKeys};
    args.tail_count = {out(c.rows()), c.rows()};
    const double bytes = static_cast<double>(c.rows()) * (kMaxTailKeys + 4) * 4;
    bench.Report({"tree_rows",
                  std::to_string(shape.trees) + " trees, " + std::to_string(c.rows()) + " rows, pages of " +
                      std::to_string(shape.page_rows),
                  bench.MedianMicroseconds(64, [&](int) { return cuda::TreeRows(args, bench.stream()); }),
                  bytes / bench::kFloorBandwidth * 1e6});
    TreeRowsArgs host = c.Args();
    std::vector<int32_t> position(c.rows()), sequence(c.rows()), prefix_blocks(c.rows()),
        tail_count(c.rows());
    std::vector<int32_t> tail_slot(c.rows() * kMaxTailKeys);
    host.sequence = {sequence.data(), c.rows()};
    host.position = {position.data(), c.rows()};
    host.prefix_blocks = {prefix_blocks.data(), c.rows()};
    host.tail_slot = {tail_slot.data(), c.rows(), kMaxTailKeys, kMaxTailKeys};
    host.tail_count = {tail_count.data(), c.rows()};
    arborist::Check(reference::TreeRows(host, {}).ok(), "the oracle runs");
    bench::ExpectEqual("tree_rows", bench::Download(args.position.data, c.rows()), position);
    bench::ExpectEqual("tree_rows", bench::Download(args.tail_slot.data, c.rows() * kMaxTailKeys), tail_slot);
    bench::ExpectEqual("tree_rows", bench::Download(args.tail_count.data, c.rows()), tail_count);
  }
  return 0;
}
