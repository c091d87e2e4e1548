#include "verifier/model/device_weights.h"

#include <map>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/base/math.h"
#include "common/base/status_macros.h"

namespace arborist::verifier {
namespace {

constexpr int64_t kAlignment = 256;  // what copies and tensor cores read fastest

// Where each tensor goes in the block. Placed first, then copied.
class Plan {
 public:
  void Place(const WeightView& matrix) {
    Place(matrix.data, matrix.rows * matrix.columns * static_cast<int64_t>(ByteSize(matrix.dtype)));
  }
  void Place(const View1<const float>& vector) {
    Place(vector.data, vector.size * static_cast<int64_t>(sizeof(float)));
  }
  void Place(const void* from, int64_t bytes) {
    if (bytes > 0 && place_.try_emplace({from, bytes}, end_).second) {
      end_ = RoundUp(end_ + bytes, kAlignment);
    }
  }
  int64_t bytes() const { return end_; }

  absl::Status CopyAll(std::byte* block, Device& device) {
    block_ = block;
    for (const auto& [tensor, offset] : place_) {
      RETURN_IF_ERROR(device.Copy(block + offset, tensor.first, static_cast<size_t>(tensor.second)));
    }
    return absl::OkStatus();
  }
  void Move(WeightView& matrix) const {
    matrix.data =
        At(matrix.data, matrix.rows * matrix.columns * static_cast<int64_t>(ByteSize(matrix.dtype)));
  }
  void Move(View1<const float>& vector) const {
    vector.data =
        static_cast<const float*>(At(vector.data, vector.size * static_cast<int64_t>(sizeof(float))));
  }

 private:
  const void* At(const void* from, int64_t bytes) const {
    return bytes > 0 ? block_ + place_.at({from, bytes}) : nullptr;
  }

  std::map<std::pair<const void*, int64_t>, int64_t> place_;
  int64_t end_ = 0;
  const std::byte* block_ = nullptr;
};

// Calls visit(tensor) for every matrix and vector of the model.
template <typename Visit>
void ForEachTensor(ModelWeights& weights, const Visit& visit) {
  const auto mlp = [&visit](kernels::ExpertWeights& expert) {
    visit(expert.gate);
    visit(expert.up);
    visit(expert.down);
  };
  visit(weights.embedding);
  visit(weights.head);
  visit(weights.norm);
  for (LayerWeights& layer : weights.layers) {
    AttentionWeights& attention = layer.attention;
    for (WeightView* matrix : {&attention.q_a, &attention.kv_a, &attention.q_nope, &attention.q_pe,
                               &attention.w_uk, &attention.w_uv, &attention.o, &layer.router}) {
      visit(*matrix);
    }
    for (View1<const float>* vector : {&layer.input_norm, &layer.post_attention_norm, &attention.kv_a_norm,
                                       &attention.q_a_norm, &layer.router_bias}) {
      visit(*vector);
    }
    mlp(layer.dense);
    mlp(layer.shared);
    for (kernels::ExpertWeights& expert : layer.experts) {
      mlp(expert);
    }
  }
}

// Matrices that were placed one after the other are one matrix, so one product, if there is no gap between
// them; else rows 0.
WeightView Joined(const WeightView& first, const WeightView& second) {
  const auto bytes = static_cast<size_t>(first.rows * first.columns) * ByteSize(first.dtype);
  const bool together = first.rows > 0 && first.dtype == second.dtype && first.columns == second.columns &&
                        static_cast<const std::byte*>(first.data) + bytes == second.data;
  return together ? WeightView{first.data, first.dtype, first.rows + second.rows, first.columns}
                  : WeightView{};
}

absl::Status MoveExpertTables(ModelWeights& weights, Device& device) {
  size_t experts = 0;
  for (const LayerWeights& layer : weights.layers) {
    experts += layer.experts.size();
  }
  ASSIGN_OR_RETURN(weights.expert_tables,
                   device.Allocate(experts * sizeof(kernels::ExpertWeights), "tables of experts"));
  auto* table = weights.expert_tables.As<kernels::ExpertWeights>();
  for (LayerWeights& layer : weights.layers) {
    const size_t count = layer.experts.size();
    RETURN_IF_ERROR(device.Copy(table, layer.experts.data(), count * sizeof(kernels::ExpertWeights)));
    layer.expert_table = {table, static_cast<int64_t>(count)};
    table += count;
  }
  return absl::OkStatus();
}

}  // namespace

absl::Status MoveToDevice(ModelWeights& weights, Device& device) {
  if (device.kind() == DeviceKind::kCpu) {
    return absl::OkStatus();
  }
  Plan plan;
  ForEachTensor(weights, [&plan](const auto& tensor) { plan.Place(tensor); });
  ASSIGN_OR_RETURN(weights.memory, device.Allocate(static_cast<size_t>(plan.bytes()), "target weights"));
  RETURN_IF_ERROR(plan.CopyAll(weights.memory.As<std::byte>(), device));
  ForEachTensor(weights, [&plan](auto& tensor) { plan.Move(tensor); });
  for (LayerWeights& layer : weights.layers) {
    AttentionWeights& attention = layer.attention;
    attention.q_and_kv_a = Joined(attention.q_a, attention.kv_a);
    attention.q_b = Joined(attention.q_nope, attention.q_pe);
  }
  RETURN_IF_ERROR(MoveExpertTables(weights, device));
  RETURN_IF_ERROR(device.Synchronize());
  weights.reader.reset();
  return absl::OkStatus();
}

}  // namespace arborist::verifier
