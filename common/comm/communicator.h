#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "absl/status/status.h"

namespace arborist {

// What the ranks of one model say to each other. Every rank calls the same functions in the same order with
// the same sizes; a call returns when this rank's result is there. Nothing allocates. After an error (a peer
// gave up) the communicator is of no more use.
class Communicator {
 public:
  virtual ~Communicator() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;

  // In place. The order is fixed: a balanced binary tree over the ranks, ((0+1)+(2+3))+((4+5)+(6+7)), the
  // upper part of the segment tree of kernels/linear.
  virtual absl::Status AllReduceSum(std::span<float> values) = 0;
  // all = the ranks' `mine` in rank order; all.size() == size() * mine.size().
  virtual absl::Status AllGather(std::span<const float> mine, std::span<float> all) = 0;
  // Everyone gets root's bytes.
  virtual absl::Status Broadcast(std::span<std::byte> bytes, int root) = 0;
};

}  // namespace arborist
