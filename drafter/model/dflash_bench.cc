// What one draft costs on the CPU. Usage: dflash_bench DRAFTER_DIR TARGET_DIR [threads] [context]
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "common/base/status_macros.h"
#include "drafter/model/dflash_model.h"

namespace arborist::drafter {
namespace {

using Clock = std::chrono::steady_clock;

template <typename Work>
double MedianSeconds(const Work& work) {
  std::vector<double> seconds;
  for (int i = 0; i < 31; ++i) {
    const Clock::time_point begin = Clock::now();
    work();
    seconds.push_back(std::chrono::duration<double>(Clock::now() - begin).count());
  }
  std::nth_element(seconds.begin(), seconds.begin() + 15, seconds.end());
  return seconds[15];
}

absl::Status Run(const std::string& drafter, const std::string& target, int threads, int32_t context) {
  ASSIGN_OR_RETURN(const DFlashSettings settings, ReadDFlashConfig(drafter));
  ASSIGN_OR_RETURN(const Checkpoint own, Checkpoint::Open(drafter));
  ASSIGN_OR_RETURN(const Checkpoint lender, Checkpoint::Open(target));
  DFlashWeights weights;
  RETURN_IF_ERROR(LoadDrafterTensors(own, settings, weights));
  RETURN_IF_ERROR(LoadTargetTensors(lender, settings, weights));
  ThreadPool pool(threads);
  const std::unique_ptr<Device> device = OpenCpuDevice(pool);
  ASSIGN_OR_RETURN(const std::unique_ptr<DFlashModel> model,
                   DFlashModel::Create(settings, weights, {}, kernels::CpuKernels(), *device));
  ContextCache cache(static_cast<int64_t>(settings.layers.size()), settings.kv_width(), context, context);
  const std::vector<float> features(context * settings.hidden, 0.5f);
  const double append = MedianSeconds([&] {
    (void)model->AppendContext(0, {features.data(), context, settings.hidden, settings.hidden}, cache);
  });
  const double draft = MedianSeconds([&] {
    (void)model->DraftBlock({.bonus = TokenId{1},
                             .position = context,
                             .context = cache.View(0, context),
                             .depths = settings.block - 1});
  });
  std::printf("%d threads, context %d: block of %d in %.3f ms; context row %.1f us\n", threads, context,
              settings.block, draft * 1e3, append / context * 1e6);
  return absl::OkStatus();
}

}  // namespace
}  // namespace arborist::drafter

int main(int count, char** arguments) {
  if (count < 3) {
    std::fprintf(stderr, "usage: dflash_bench DRAFTER_DIR TARGET_DIR [threads] [context]\n");
    return 2;
  }
  const int threads = count > 3 ? std::atoi(arguments[3]) : 2;
  const int context = count > 4 ? std::atoi(arguments[4]) : 256;
  const absl::Status status = arborist::drafter::Run(arguments[1], arguments[2], threads, context);
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", std::string(status.message()).c_str());
    return 1;
  }
  return 0;
}
