#pragma once

#include <cstddef>
#include <memory>
#include <string>
#include <unordered_set>
#include <vector>

#include "absl/status/statusor.h"
#include "common/tensor/view.h"
#include "common/weights/checkpoint.h"
#include "verifier/model/shard_plan.h"

namespace arborist::verifier {

// Takes matrices and vectors out of a checkpoint, by name below a prefix, after checking type, shape and that
// every value is finite. What can be used where it lies stays mapped; the rest is copied into blocks that
// this object owns. Views live as long as the reader.
class TensorReader {
 public:
  TensorReader(Checkpoint checkpoint, std::string prefix, bool check_finite)
      : checkpoint_(std::move(checkpoint)), prefix_(std::move(prefix)), check_finite_(check_finite) {}

  const Checkpoint& checkpoint() const { return checkpoint_; }
  // Whether it has been asked for, by its whole name.
  bool Used(const std::string& tensor) const { return used_.contains(tensor); }

  // The whole matrix, in place.
  absl::StatusOr<WeightView> Matrix(const std::string& name, int64_t rows, int64_t columns);
  // A range of its rows, in place, or of its columns, copied unless it is all of them.
  absl::StatusOr<WeightView> Rows(const std::string& name, int64_t rows, int64_t columns,
                                  ShardPlan::Range range);
  absl::StatusOr<WeightView> Columns(const std::string& name, int64_t rows, int64_t columns,
                                     ShardPlan::Range range);
  // Widened to fp32.
  absl::StatusOr<View1<const float>> Vector(const std::string& name, int64_t size);

  // An owned, 64-byte aligned block; to be filled by the caller.
  std::byte* Allocate(size_t bytes);
  size_t owned_bytes() const { return owned_bytes_; }

 private:
  struct Free {
    void operator()(std::byte* block) const;
  };

  absl::StatusOr<TensorView> Find(const std::string& name, const std::vector<int64_t>& shape);

  Checkpoint checkpoint_;
  std::string prefix_;
  bool check_finite_;
  std::unordered_set<std::string> used_;
  std::vector<std::unique_ptr<std::byte, Free>> owned_;
  size_t owned_bytes_ = 0;
};

// Row r of a matrix.
const std::byte* RowOf(const WeightView& matrix, int64_t row);

}  // namespace arborist::verifier
