#include "verifier/create_verifier.h"

#include <unistd.h>

#include <utility>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/tree/token_tree.h"
#include "verifier/verifier_impl.h"

namespace arborist::verifier {
namespace {

absl::Status OptionError(absl::string_view field, int64_t value, absl::string_view expected) {
  return absl::InvalidArgumentError(absl::StrCat(field, "=", value, ", expected ", expected));
}

absl::Status CheckShadow(const ShadowOptions& shadow) {
  if (!(shadow.fraction >= 0 && shadow.fraction <= 1)) {
    return absl::InvalidArgumentError(
        absl::StrCat("shadow.fraction=", shadow.fraction, ", expected a value in [0, 1]"));
  }
  if (shadow.fraction > 0 && !(shadow.relative_limit > 0)) {
    return absl::InvalidArgumentError(
        absl::StrCat("shadow.relative_limit=", shadow.relative_limit, ", expected a value above 0"));
  }
  return shadow.rows < 1 ? OptionError("shadow.rows", shadow.rows, "at least 1") : absl::OkStatus();
}

absl::Status CheckOptions(const VerifierOptions& options, const Model& model, DeviceKind kind) {
  if (options.pages < 1) {
    return OptionError("pages", options.pages, "at least 1");
  }
  if (options.max_context < 2) {
    return OptionError("max_context", options.max_context, "at least 2");
  }
  if (options.max_tree_nodes < 0 || options.max_tree_nodes > kMaxTreeBudget) {
    return OptionError("max_tree_nodes", options.max_tree_nodes,
                       absl::StrCat("a value in [0, ", kMaxTreeBudget, "]"));
  }
  if (options.max_sequences < 1) {
    return OptionError("max_sequences", options.max_sequences, "at least 1");
  }
  if (options.max_queue < 1) {
    return OptionError("max_queue", options.max_queue, "at least 1: every sequence passes through it");
  }
  if (options.deliverers < 1) {
    return OptionError("deliverers", options.deliverers, "at least 1: the step thread");
  }
  if (options.max_rows <= options.max_tree_nodes + 1 || options.max_rows > model.max_rows()) {
    return OptionError("max_rows", options.max_rows,
                       absl::StrCat("a value in [", options.max_tree_nodes + 2, ", ", model.max_rows(),
                                    "]: the largest tree, one prompt row, and no more than the model's"));
  }
  if (options.max_logits_rows <= options.max_tree_nodes || options.max_logits_rows > options.max_rows) {
    return OptionError("max_logits_rows", options.max_logits_rows,
                       absl::StrCat("a value in [", options.max_tree_nodes + 1, ", ", options.max_rows, "]"));
  }
  if (options.kv_type != DType::kF32 && (options.kv_type != DType::kBF16 || kind == DeviceKind::kCpu)) {
    return absl::InvalidArgumentError(absl::StrCat("kv_type=", std::string(Name(options.kv_type)),
                                                   ", expected F32",
                                                   kind == DeviceKind::kCpu ? " on the CPU" : " or BF16"));
  }
  if (options.prefill_chunk < 1) {
    return OptionError("prefill_chunk", options.prefill_chunk, "at least 1");
  }
  return CheckShadow(options.shadow);
}

// A cache that no memory holds is refused here, not met as a failed allocation. (A GPU refuses by itself.)
absl::Status CheckCacheFits(const KvShape& shape) {
  const int64_t page_bytes = PageBytes(shape);
  const int64_t memory = int64_t{sysconf(_SC_PHYS_PAGES)} * sysconf(_SC_PAGESIZE);
  if (shape.pages > memory / page_bytes) {
    return OptionError("kv_pages", shape.pages,
                       absl::StrCat("at most ", memory / page_bytes, ": a page takes ", page_bytes,
                                    " bytes and this machine has ", memory >> 20, " MiB"));
  }
  return absl::OkStatus();
}

absl::Status CheckProjection(const Projection& projection, const ModelConfig& config) {
  const int64_t hidden = config.hidden_size;
  if (projection.hidden() != hidden || static_cast<int64_t>(projection.norm.size()) != hidden) {
    return OptionError("projection.fc.rows", projection.fc.rows,
                       absl::StrCat("the target's hidden_size ", hidden, " (norm has ",
                                    projection.norm.size(), " elements)"));
  }
  if (projection.fc.columns < hidden || projection.fc.columns % hidden != 0) {
    return OptionError("projection.fc.columns", projection.fc.columns,
                       absl::StrCat("a multiple of the target's hidden_size ", hidden));
  }
  if (projection.hash.empty()) {
    return absl::InvalidArgumentError("projection.hash is empty, expected the hash of its tensors");
  }
  return absl::OkStatus();
}

}  // namespace

StepCapacity CapacityOf(const VerifierOptions& options) {
  return {.max_rows = options.max_rows,
          .max_logits_rows = options.max_logits_rows,
          .max_sequences = options.max_sequences,
          .max_pages_per_sequence =
              static_cast<int>(KvCache::PagesFor(options.max_context - 1 + options.max_tree_nodes))};
}

KvShape CacheShape(const VerifierOptions& options, const ModelConfig& model, bool features) {
  return {.layers = model.layers,
          .pages = options.pages,
          .latent_type = options.kv_type,
          .latent_row = model.latent_row(),
          .feature_row = features ? model.hidden_size : 0};
}

absl::StatusOr<std::unique_ptr<Verifier>> CreateVerifier(const VerifierOptions& options,
                                                         std::unique_ptr<Model> model,
                                                         std::optional<Projection> projection,
                                                         const kernels::KernelSet& kernels, Device& device) {
  RETURN_IF_ERROR(CheckOptions(options, *model, device.kind()));
  if (device.kind() == DeviceKind::kCpu) {
    RETURN_IF_ERROR(CheckCacheFits(CacheShape(options, model->config(), projection.has_value())));
  }
  if (projection.has_value()) {
    RETURN_IF_ERROR(CheckProjection(*projection, model->config()));
  }
  ASSIGN_OR_RETURN(std::unique_ptr<VerifierImpl> verifier,
                   VerifierImpl::Create(options, std::move(model), std::move(projection), kernels, device));
  if (options.run_self_test) {
    RETURN_IF_ERROR(verifier->SelfTest());
  }
  if (options.measure_costs) {
    RETURN_IF_ERROR(verifier->MeasureCosts());
  }
  if (options.shadow.fraction > 0) {
    verifier->StartShadow();
  }
  verifier->Start();
  return verifier;
}

}  // namespace arborist::verifier
