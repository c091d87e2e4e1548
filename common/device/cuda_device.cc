#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "common/device/device.h"
#include "common/device/planted_cuda_fault.h"
#include "common/device/progress.h"
#include "common/device/progress_mark.h"
#include "common/device/small_copy.h"
#include "common/device/work_trace.h"

namespace arborist {
namespace {

absl::string_view Text(cudaError_t error) { return cudaGetErrorString(error); }

// Puts recorded work into a WorkTrace. Its two events are part of what is recorded, so the time to launch it
// is not counted.
class TracedWork {
 public:
  explicit TracedWork(WorkTrace trace) : trace_(std::move(trace)) {
    cudaEventCreate(&begin_);
    cudaEventCreate(&end_);
  }
  ~TracedWork() {
    cudaEventDestroy(begin_);
    cudaEventDestroy(end_);
  }
  TracedWork(const TracedWork&) = delete;
  TracedWork& operator=(const TracedWork&) = delete;

  // Before and after all else of a recording.
  cudaError_t RecordBegin(cudaStream_t stream) {
    return cudaEventRecordWithFlags(begin_, stream, cudaEventRecordExternal);
  }
  cudaError_t RecordEnd(cudaStream_t stream) {
    return cudaEventRecordWithFlags(end_, stream, cudaEventRecordExternal);
  }
  // `what` outlives the next Done.
  void Started(absl::string_view what) { what_ = what; }
  // The stream has just become idle.
  void Done() {
    const auto now = WorkTrace::Clock::now();
    float milliseconds = 0;
    if (!what_.empty() && cudaEventElapsedTime(&milliseconds, begin_, end_) == cudaSuccess) {
      trace_.Add(now, std::chrono::nanoseconds(static_cast<int64_t>(milliseconds * 1e6f)), what_);
    }
    what_ = {};
  }

 private:
  WorkTrace trace_;
  cudaEvent_t begin_ = nullptr, end_ = nullptr;
  absl::string_view what_;  // not empty: started and not yet done
};

// What a device and the work recorded on it share.
struct CudaWork {
  cudaStream_t stream = nullptr;
  std::unique_ptr<TracedWork> traced;  // null: nobody measures
  PlantedCudaFault fault;
  Progress progress;
  absl::Status failure;  // the first; the device's last word

  absl::Status Note(const absl::Status& status) {
    failure.Update(status);
    return status;
  }
};

class CudaGraph final : public RecordedWork {
 public:
  CudaGraph(cudaGraphExec_t graph, std::string what, uint32_t first_part, CudaWork& work)
      : graph_(graph), what_(std::move(what)), first_part_(first_part), work_(work) {}
  ~CudaGraph() override { cudaGraphExecDestroy(graph_); }
  absl::Status Start() override {
    RETURN_IF_ERROR(work_.Note(work_.fault.BeforeStart(work_.stream)));
    if (work_.traced != nullptr) {
      work_.traced->Started(what_);
    }
    work_.progress.Begun(first_part_);
    return work_.Note(CudaStatus(cudaGraphLaunch(graph_, work_.stream), what_));
  }

 private:
  cudaGraphExec_t graph_;
  std::string what_;
  const uint32_t first_part_;
  CudaWork& work_;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(const CudaDeviceOptions& options, size_t limit, size_t free, const cudaDeviceProp& properties,
             cudaStream_t stream, std::optional<WorkTrace> trace, DeviceMemory progress_word,
             DeviceFault fault)
      : index_(options.index),
        launch_by_launch_(options.launch_by_launch),
        left_(limit),
        used_before_(properties.totalGlobalMem - std::min(free, properties.totalGlobalMem)),
        total_(properties.totalGlobalMem),
        architecture_(absl::StrCat("sm_", properties.major, properties.minor)),
        name_(absl::StrCat(properties.name, " (", architecture_, ")")),
        work_{.stream = stream,
              .traced = trace.has_value() ? std::make_unique<TracedWork>(*std::move(trace)) : nullptr,
              .fault = PlantedCudaFault(std::move(fault)),
              .progress = Progress(std::move(progress_word)),
              .failure = absl::OkStatus()} {}
  ~CudaDevice() override { cudaStreamDestroy(work_.stream); }

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::string name() const override { return name_; }
  std::string architecture() const override { return architecture_; }
  size_t bytes_left() const override { return std::min(left_, Free()); }
  // Launches go to the device that is current on the calling thread.
  StreamView stream() const override {
    cudaSetDevice(index_);
    return {.threads = nullptr, .cuda_stream = work_.stream};
  }

  absl::StatusOr<DeviceMemory> Allocate(size_t bytes, absl::string_view what) override {
    RETURN_IF_ERROR(Use());
    if (bytes > left_) {
      return absl::ResourceExhaustedError(absl::StrCat(what, ": ", bytes, " bytes wanted, ", left_,
                                                       " left of this process's share of the GPU's memory"));
    }
    void* data = nullptr;
    const size_t asked = work_.fault.BytesToAllocate(bytes, what);
    if (const cudaError_t error = cudaMalloc(&data, asked + (asked == 0)); error != cudaSuccess) {
      return CudaStatus(error,
                        absl::StrCat(what, ": ", bytes, " bytes wanted, ", Free(), " free on the GPU"));
    }
    work_.fault.Allocated(data, what);
    DeviceMemory memory(data, bytes, [](void* block) { cudaFree(block); });
    RETURN_IF_ERROR(CudaStatus(cudaMemsetAsync(data, 0, bytes, work_.stream), what));
    left_ -= bytes;
    allocations_.push_back({std::string(what), bytes});
    return memory;
  }

  absl::StatusOr<DeviceMemory> AllocateHost(size_t bytes, absl::string_view what) override {
    RETURN_IF_ERROR(Use());
    void* data = nullptr;
    if (const cudaError_t error = cudaMallocHost(&data, bytes + (bytes == 0)); error != cudaSuccess) {
      return CudaStatus(error, absl::StrCat(what, ": ", bytes, " bytes of page-locked memory wanted"));
    }
    return DeviceMemory(data, bytes, [](void* block) { cudaFreeHost(block); });
  }

  absl::Status Copy(void* to, const void* from, size_t bytes) override {
    if (launch_by_launch_) {  // nothing is ever started
      RETURN_IF_ERROR(work_.Note(work_.fault.BeforeStart(work_.stream)));
    }
    if (recording_ && SuitsKernel(to, from, bytes)) {
      return CudaStatus(CopyByKernel(to, from, bytes, work_.stream), "small_copy");
    }
    return work_.Note(CudaStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, work_.stream), "copy"));
  }

  absl::Status Synchronize() override {
    const cudaError_t error = cudaStreamSynchronize(work_.stream);
    if (work_.traced != nullptr) {
      work_.traced->Done();
    }
    work_.failure.Update(error == cudaSuccess
                             ? absl::OkStatus()
                             : CudaStatus(error, absl::StrCat("device work", work_.progress.Where())));
    work_.progress.Begun(0);
    return work_.failure;
  }

  bool launch_by_launch() const override { return launch_by_launch_; }

  absl::Status Mark(absl::string_view part) override {
    if (!recording_) {
      return absl::OkStatus();
    }
    return CudaStatus(EnqueueMark(work_.progress.word(), work_.progress.AddPart(part), work_.stream), "mark");
  }

  absl::Status Measure(absl::FunctionRef<absl::Status()> work, absl::string_view what) override {
    const size_t free_before = Free(), left_before = left_;
    RETURN_IF_ERROR(work());
    const size_t allocated = left_before - left_, free_after = Free();
    const size_t gone = free_before - std::min(free_before, free_after);
    const size_t bytes = gone - std::min(gone, allocated);
    // Not refused: another process may have taken it meanwhile.
    left_ -= std::min(bytes, left_);
    allocations_.push_back({absl::StrCat(what, ", measured"), bytes});
    return absl::OkStatus();
  }
  std::string MemoryNote() const override {
    const auto mib = [](size_t bytes) { return static_cast<double>(bytes) / (1 << 20); };
    return absl::StrFormat("  %-36s %12.3f MiB\n  %-36s %12.3f MiB, of %.3f\n",
                           "CUDA context and other processes, before", mib(used_before_),
                           "free on the GPU now", mib(Free()), mib(total_));
  }

  absl::StatusOr<std::unique_ptr<RecordedWork>> Record(absl::FunctionRef<absl::Status()> work,
                                                       absl::string_view what) override {
    RETURN_IF_ERROR(Use());
    if (launch_by_launch_) {
      return absl::UnimplementedError(absl::StrCat(what, ": nothing is recorded with launch_by_launch"));
    }
    RETURN_IF_ERROR(CudaStatus(LoadCopyKernel(), what));  // not possible in between
    RETURN_IF_ERROR(CudaStatus(LoadMarkKernel(), what));
    const uint32_t first_part = work_.progress.AddPart("its beginning");
    RETURN_IF_ERROR(CudaStatus(cudaStreamBeginCapture(work_.stream, cudaStreamCaptureModeThreadLocal), what));
    recording_ = true;
    absl::Status status = Heard(work);
    recording_ = false;
    cudaGraph_t graph = nullptr;
    status.Update(CudaStatus(cudaStreamEndCapture(work_.stream, &graph), what));
    cudaGraphExec_t executable = nullptr;
    if (status.ok()) {
      status = CudaStatus(cudaGraphInstantiate(&executable, graph, 0), what);
    }
    if (graph != nullptr) {
      cudaGraphDestroy(graph);
    }
    RETURN_IF_ERROR(status);
    auto recorded = std::make_unique<CudaGraph>(executable, std::string(what), first_part, work_);
    // Now, so that the first start takes no memory.
    RETURN_IF_ERROR(CudaStatus(cudaGraphUpload(executable, work_.stream), what));
    return recorded;
  }

 private:
  absl::Status Heard(absl::FunctionRef<absl::Status()> work) {
    const auto add = [this](absl::string_view what) { work_.progress.AddKernel(what); };
    const LaunchListener listener(add);
    return work_.traced == nullptr ? work() : Traced(work);
  }

  absl::Status Traced(absl::FunctionRef<absl::Status()> work) {
    RETURN_IF_ERROR(CudaStatus(work_.traced->RecordBegin(work_.stream), "trace"));
    RETURN_IF_ERROR(work());
    return CudaStatus(work_.traced->RecordEnd(work_.stream), "trace");
  }

  static size_t Free() {
    size_t free = 0, total = 0;
    return cudaMemGetInfo(&free, &total) == cudaSuccess ? free : 0;
  }

  // The caller's thread may have another device current.
  absl::Status Use() { return CudaStatus(cudaSetDevice(index_), "cudaSetDevice"); }

  int index_;
  const bool launch_by_launch_;
  size_t left_;
  const size_t used_before_;
  const size_t total_;
  std::string architecture_;
  std::string name_;
  bool recording_ = false;
  CudaWork work_;
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(const CudaDeviceOptions& options, DeviceFault fault) {
  int count = 0;
  const cudaError_t counted = cudaGetDeviceCount(&count);
  if (counted != cudaSuccess || count == 0) {
    return absl::FailedPreconditionError(
        absl::StrCat("device=CUDA, expected CPU: no CUDA device (",
                     counted == cudaSuccess ? "none is installed" : Text(counted), ")"));
  }
  if (options.index < 0 || options.index >= count) {
    return absl::InvalidArgumentError(
        absl::StrCat("cuda_device=", options.index, ", expected an index in [0, ", count, ")"));
  }
  cudaDeviceProp properties;
  RETURN_IF_ERROR(CudaStatus(cudaGetDeviceProperties(&properties, options.index), "cudaGetDeviceProperties"));
  RETURN_IF_ERROR(CudaStatus(cudaSetDevice(options.index), "cudaSetDevice"));
  size_t free = 0, total = 0;
  RETURN_IF_ERROR(CudaStatus(cudaMemGetInfo(&free, &total), "cudaMemGetInfo"));
  size_t limit = free;
  if (options.memory_limit > 0) {
    limit = options.memory_limit;
  } else if (options.memory_fraction > 0) {
    limit = static_cast<size_t>(options.memory_fraction * static_cast<double>(total));
  }
  if (limit > free) {
    const std::string asked = options.memory_limit > 0
                                  ? absl::StrCat("memory_limit=", limit)
                                  : absl::StrCat("memory_fraction=", options.memory_fraction, " is ", limit);
    return absl::ResourceExhaustedError(absl::StrCat(asked, ", expected at most ", free,
                                                     ": the bytes free on GPU ", options.index, " (",
                                                     properties.name, ")"));
  }
  std::optional<WorkTrace> trace;
  if (!options.trace_path.empty()) {
    ASSIGN_OR_RETURN(trace, WorkTrace::Open(options.trace_path));
  }
  cudaStream_t stream = nullptr;
  RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate"));
  void* word = nullptr;
  RETURN_IF_ERROR(CudaStatus(cudaMallocHost(&word, sizeof(uint32_t)), "cudaMallocHost"));
  DeviceMemory progress(word, sizeof(uint32_t), [](void* block) { cudaFreeHost(block); });
  if (options.launch_by_launch) {
    WaitForEveryLaunch();
  }
  return std::make_unique<CudaDevice>(options, limit, free, properties, stream, std::move(trace),
                                      std::move(progress), std::move(fault));
}

}  // namespace arborist
