#pragma once

#include "absl/status/status.h"
#include "kernels/moe_route/moe_route.h"
#include "kernels/tree_attention_mla/tree_attention_mla.h"

namespace arborist::verifier {

// Sees what chosen kernels of a forward pass were given and gave. Called right after the kernel, with its
// arguments, which lie in the device's memory: on a GPU it has only been enqueued, and whatever an observer
// copies must be enqueued behind it, before the next kernel reuses the buffers.
class ForwardObserver {
 public:
  virtual ~ForwardObserver() = default;
  virtual absl::Status Attended(int layer, const kernels::TreeAttentionMlaArgs& args) = 0;
  virtual absl::Status Routed(int layer, const kernels::MoeRouteArgs& args) = 0;
};

}  // namespace arborist::verifier
