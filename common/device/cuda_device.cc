#include <cuda_runtime_api.h>

#include <algorithm>
#include <chrono>
#include <memory>
#include <optional>

#include "absl/strings/str_cat.h"
#include "common/base/status_macros.h"
#include "common/device/cuda_status.h"
#include "common/device/device.h"
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

class CudaGraph final : public RecordedWork {
 public:
  // `traced` may be null.
  CudaGraph(cudaGraphExec_t graph, cudaStream_t stream, std::string what, TracedWork* traced)
      : graph_(graph), stream_(stream), what_(std::move(what)), traced_(traced) {}
  ~CudaGraph() override { cudaGraphExecDestroy(graph_); }
  absl::Status Start() override {
    if (traced_ != nullptr) {
      traced_->Started(what_);
    }
    return CudaStatus(cudaGraphLaunch(graph_, stream_), what_);
  }

 private:
  cudaGraphExec_t graph_;
  cudaStream_t stream_;
  std::string what_;
  TracedWork* traced_;
};

class CudaDevice final : public Device {
 public:
  CudaDevice(int index, size_t limit, const cudaDeviceProp& properties, cudaStream_t stream,
             std::optional<WorkTrace> trace)
      : index_(index),
        left_(limit),
        architecture_(absl::StrCat("sm_", properties.major, properties.minor)),
        name_(absl::StrCat(properties.name, " (", architecture_, ")")),
        stream_(stream),
        traced_(trace.has_value() ? std::make_unique<TracedWork>(*std::move(trace)) : nullptr) {}
  ~CudaDevice() override { cudaStreamDestroy(stream_); }

  DeviceKind kind() const override { return DeviceKind::kCuda; }
  std::string name() const override { return name_; }
  std::string architecture() const override { return architecture_; }
  size_t bytes_left() const override {
    size_t free = 0, total = 0;
    return cudaMemGetInfo(&free, &total) == cudaSuccess ? std::min(left_, free) : 0;
  }
  // Launches go to the device that is current on the calling thread.
  StreamView stream() const override {
    cudaSetDevice(index_);
    return {.threads = nullptr, .cuda_stream = stream_};
  }

  absl::StatusOr<DeviceMemory> Allocate(size_t bytes, absl::string_view what) override {
    RETURN_IF_ERROR(Use());
    if (bytes > left_) {
      return absl::ResourceExhaustedError(absl::StrCat(what, ": ", bytes, " bytes wanted, ", left_,
                                                       " left of this process's share of the GPU's memory"));
    }
    void* data = nullptr;
    RETURN_IF_ERROR(
        CudaStatus(cudaMalloc(&data, bytes + (bytes == 0)), absl::StrCat(what, ", ", bytes, " bytes")));
    DeviceMemory memory(data, bytes, [](void* block) { cudaFree(block); });
    RETURN_IF_ERROR(CudaStatus(cudaMemsetAsync(data, 0, bytes, stream_), what));
    left_ -= bytes;
    allocations_.push_back({std::string(what), bytes});
    return memory;
  }

  absl::StatusOr<DeviceMemory> AllocateHost(size_t bytes, absl::string_view what) override {
    RETURN_IF_ERROR(Use());
    void* data = nullptr;
    RETURN_IF_ERROR(CudaStatus(cudaMallocHost(&data, bytes + (bytes == 0)),
                               absl::StrCat(what, ", ", bytes, " bytes of page-locked memory")));
    return DeviceMemory(data, bytes, [](void* block) { cudaFreeHost(block); });
  }

  absl::Status Copy(void* to, const void* from, size_t bytes) override {
    if (recording_ && SuitsKernel(to, from, bytes)) {
      return CudaStatus(CopyByKernel(to, from, bytes, stream_), "copy");
    }
    return CudaStatus(cudaMemcpyAsync(to, from, bytes, cudaMemcpyDefault, stream_), "copy");
  }

  absl::Status Synchronize() override {
    const cudaError_t error = cudaStreamSynchronize(stream_);
    if (traced_ != nullptr) {
      traced_->Done();
    }
    return CudaStatus(error, "device work");
  }

  absl::StatusOr<std::unique_ptr<RecordedWork>> Record(absl::FunctionRef<absl::Status()> work,
                                                       absl::string_view what) override {
    RETURN_IF_ERROR(Use());
    RETURN_IF_ERROR(CudaStatus(LoadCopyKernel(), what));  // not possible in between
    RETURN_IF_ERROR(CudaStatus(cudaStreamBeginCapture(stream_, cudaStreamCaptureModeThreadLocal), what));
    recording_ = true;
    const absl::Status enqueued = traced_ == nullptr ? work() : Traced(work);
    recording_ = false;
    cudaGraph_t graph = nullptr;
    const cudaError_t ended = cudaStreamEndCapture(stream_, &graph);
    RETURN_IF_ERROR(enqueued);
    RETURN_IF_ERROR(CudaStatus(ended, what));
    cudaGraphExec_t executable = nullptr;
    const cudaError_t instantiated = cudaGraphInstantiate(&executable, graph, 0);
    cudaGraphDestroy(graph);
    RETURN_IF_ERROR(CudaStatus(instantiated, what));
    return std::make_unique<CudaGraph>(executable, stream_, std::string(what), traced_.get());
  }

 private:
  absl::Status Traced(absl::FunctionRef<absl::Status()> work) {
    RETURN_IF_ERROR(CudaStatus(traced_->RecordBegin(stream_), "trace"));
    RETURN_IF_ERROR(work());
    return CudaStatus(traced_->RecordEnd(stream_), "trace");
  }

  // The caller's thread may have another device current.
  absl::Status Use() { return CudaStatus(cudaSetDevice(index_), "cudaSetDevice"); }

  int index_;
  size_t left_;
  std::string architecture_;
  std::string name_;
  cudaStream_t stream_;
  bool recording_ = false;
  std::unique_ptr<TracedWork> traced_;  // null: nobody measures
};

}  // namespace

absl::StatusOr<std::unique_ptr<Device>> OpenCudaDevice(const CudaDeviceOptions& options) {
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
    return absl::ResourceExhaustedError(absl::StrCat("memory_limit=", limit, ", expected at most ", free,
                                                     ": the bytes free on GPU ", options.index, " (",
                                                     properties.name, ")"));
  }
  std::optional<WorkTrace> trace;
  if (!options.trace_path.empty()) {
    ASSIGN_OR_RETURN(trace, WorkTrace::Open(options.trace_path));
  }
  cudaStream_t stream = nullptr;
  RETURN_IF_ERROR(CudaStatus(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking), "cudaStreamCreate"));
  return std::make_unique<CudaDevice>(options.index, limit, properties, stream, std::move(trace));
}

}  // namespace arborist
