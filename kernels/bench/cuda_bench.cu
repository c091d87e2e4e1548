#include <cuda_runtime.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "absl/strings/match.h"
#include "absl/strings/str_split.h"
#include "common/device/cuda_status.h"
#include "kernels/bench/cuda_bench.h"

namespace arborist::kernels::bench {
namespace {

constexpr double kColdBytes = 200e6;
constexpr int kMinReplays = 50;

void Must(const absl::Status& status) {
  if (!status.ok()) {
    std::fprintf(stderr, "%s\n", status.ToString().c_str());
    std::exit(1);
  }
}
void Must(cudaError_t error) { Must(CudaStatus(error, "bench")); }

__global__ void Nothing() {}

// About unit normal: the sum of four uniform values, as bf16.
__global__ void FillRandom(uint16_t* out, size_t count, uint32_t seed) {
  for (size_t i = blockIdx.x * size_t{blockDim.x} + threadIdx.x; i < count;
       i += size_t{gridDim.x} * blockDim.x) {
    uint32_t state = static_cast<uint32_t>(i) * 2654435761u + seed;
    float sum = 0;
    for (int j = 0; j < 4; ++j) {
      state = (state ^ (state >> 16)) * 0x45d9f3bu + 0x9e3779b9u;
      sum += static_cast<float>(state >> 8) * 0x1p-24f;
    }
    out[i] = static_cast<uint16_t>(__float_as_uint((sum - 2.0f) * 1.7f) >> 16);
  }
}

// Median of 11, outside a graph: a captured copy of this size takes a slower way (2.7 instead of 4.2 TB/s on
// one H200).
template <typename Work>
double MedianSeconds(cudaStream_t stream, const Work& work) {
  cudaEvent_t begin, end;
  Must(cudaEventCreate(&begin));
  Must(cudaEventCreate(&end));
  std::vector<float> milliseconds(11);
  for (float& elapsed : milliseconds) {
    Must(cudaEventRecord(begin, stream));
    work();
    Must(cudaEventRecord(end, stream));
    Must(cudaEventSynchronize(end));
    Must(cudaEventElapsedTime(&elapsed, begin, end));
  }
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  std::nth_element(milliseconds.begin(), milliseconds.begin() + 5, milliseconds.end());
  return milliseconds[5] / 1e3;
}

}  // namespace

CudaBench::CudaBench(int argc, char** argv) {
  for (int i = 1; i < argc; ++i) {
    if (std::strncmp(argv[i], "--json=", 7) == 0) {
      json_ = argv[i] + 7;
    } else if (std::strncmp(argv[i], "--filter=", 9) == 0) {
      filter_ = argv[i] + 9;
    } else {
      std::fprintf(stderr, "usage: %s [--json=FILE] [--filter=TEXT|TEXT...]\n", argv[0]);
      std::exit(2);
    }
  }
  int count = 0;
  if (cudaGetDeviceCount(&count) != cudaSuccess || count == 0) {
    std::printf("skipped: no CUDA device\n");
    return;
  }
  cudaDeviceProp properties;
  Must(cudaGetDeviceProperties(&properties, 0));
  device_ = properties.name;
  cudaStream_t stream;
  Must(cudaStreamCreateWithFlags(&stream, cudaStreamNonBlocking));
  stream_ = stream;
  constexpr size_t kCopy = size_t{1} << 30;
  void *from, *to;
  Must(cudaMalloc(&from, kCopy));
  Must(cudaMalloc(&to, kCopy));
  FillRandom<<<1024, 256, 0, stream>>>(static_cast<uint16_t*>(from), kCopy / 2, 1);
  copy_ = 2.0 * kCopy / MedianSeconds(stream, [&] {
            Must(cudaMemcpyAsync(to, from, kCopy, cudaMemcpyDeviceToDevice, stream));
          });
  cublas_ = CublasControl::Open(stream);
  if (cublas_ != nullptr) {
    constexpr int64_t kSide = 8192;
    const auto* weight = static_cast<const uint16_t*>(from) + kSide * kSide;
    cublas_flops_ = 2.0 * kSide * kSide * kSide / MedianSeconds(stream, [&] {
                      Must(cublas_->Product(from, weight, to, kSide, kSide, kSide));
                    });
  }
  empty_ = MedianMicroseconds(256, [&](int) {
    Nothing<<<1, 32, 0, stream>>>();
    return LaunchStatus("nothing");
  });
  cudaFree(from);
  cudaFree(to);
  std::printf(
      "%s: copy %.2f TB/s, cuBLAS %.0f TFLOP/s, empty launch in a graph %.2f us; floors at %.2f TB/s\n",
      device_.c_str(), copy_ / 1e12, cublas_flops_ / 1e12, empty_, kFloorBandwidth / 1e12);
  std::printf("%-28s %-44s %10s %10s %7s %10s\n", "kernel", "shape", "us", "floor us", "ratio", "goal us");
}

CudaBench::~CudaBench() {
  if (json_.empty() || !has_device()) {
    return;
  }
  FILE* file = std::fopen(json_.c_str(), "w");
  if (file == nullptr) {
    std::perror(json_.c_str());
    std::exit(1);
  }
  std::fprintf(file,
               "{\"device\": \"%s\", \"copy_bytes_per_second\": %.4g, \"cublas_flops\": %.4g, "
               "\"empty_launch_microseconds\": %.3f,\n \"figures\": [",
               device_.c_str(), copy_, cublas_flops_, empty_);
  for (size_t i = 0; i < figures_.size(); ++i) {
    const CudaFigure& f = figures_[i];
    std::fprintf(
        file,
        "%s\n  {\"kernel\": \"%s\", \"shape\": \"%s\", \"microseconds\": %.3f, \"floor_microseconds\": %.3f, "
        "\"goal_microseconds\": %.3f}",
        i == 0 ? "" : ",", f.kernel.c_str(), f.shape.c_str(), f.microseconds, f.floor_microseconds,
        f.goal_microseconds);
  }
  std::fprintf(file, "\n]}\n");
  std::fclose(file);
}

bool CudaBench::Wanted(const std::string& kernel) const {
  const auto contains = [&](absl::string_view text) { return absl::StrContains(kernel, text); };
  const std::vector<absl::string_view> texts = absl::StrSplit(filter_, '|');
  return has_device() && std::any_of(texts.begin(), texts.end(), contains);
}

int CudaBench::SetsFor(double bytes) { return std::clamp(static_cast<int>(kColdBytes / bytes) + 1, 1, 512); }

double CudaBench::MedianMicroseconds(int sets, const std::function<absl::Status(int)>& launch) {
  auto* stream = static_cast<cudaStream_t>(stream_);
  Must(launch(0));  // module load and attributes stay outside the graph
  Must(cudaStreamSynchronize(stream));
  cudaGraph_t graph;
  cudaGraphExec_t executable;
  Must(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal));
  for (int i = 0; i < sets; ++i) {
    Must(launch(i));
  }
  Must(cudaStreamEndCapture(stream, &graph));
  Must(cudaGraphInstantiate(&executable, graph, 0));
  cudaEvent_t begin, end;
  Must(cudaEventCreate(&begin));
  Must(cudaEventCreate(&end));
  std::vector<float> milliseconds;
  for (int i = -3; i < kMinReplays; ++i) {
    Must(cudaEventRecord(begin, stream));
    Must(cudaGraphLaunch(executable, stream));
    Must(cudaEventRecord(end, stream));
    Must(cudaEventSynchronize(end));
    float elapsed;
    Must(cudaEventElapsedTime(&elapsed, begin, end));
    if (i >= 0) {
      milliseconds.push_back(elapsed);
    }
  }
  std::nth_element(milliseconds.begin(), milliseconds.begin() + milliseconds.size() / 2, milliseconds.end());
  cudaEventDestroy(begin);
  cudaEventDestroy(end);
  cudaGraphExecDestroy(executable);
  cudaGraphDestroy(graph);
  return milliseconds[milliseconds.size() / 2] * 1000.0 / sets;
}

void CudaBench::Report(const CudaFigure& figure) {
  figures_.push_back(figure);
  std::printf(
      "%-28s %-44s %10.2f %10.2f %7.2f %10.2f%s\n", figure.kernel.c_str(), figure.shape.c_str(),
      figure.microseconds, figure.floor_microseconds,
      figure.floor_microseconds > 0 ? figure.microseconds / figure.floor_microseconds : 0.0,
      figure.goal_microseconds,
      figure.goal_microseconds > 0 && !(figure.microseconds <= figure.goal_microseconds) ? "  missed" : "");
  std::fflush(stdout);
}

size_t CudaBench::FreeBytes() {
  size_t left = 0, all = 0;
  Must(cudaMemGetInfo(&left, &all));
  return left;
}

void* CudaBench::Memory(size_t bytes, int fill) {
  void* data;
  Must(cudaMalloc(&data, bytes + 2));
  if (fill >= 0) {
    Must(cudaMemset(data, fill, bytes));
  } else {
    static uint32_t seed = 1;
    FillRandom<<<1024, 256>>>(static_cast<uint16_t*>(data), (bytes + 1) / 2, seed++);
  }
  Must(cudaDeviceSynchronize());
  return data;
}

void* CudaBench::UploadBytes(const void* data, size_t bytes) {
  void* memory;
  Must(cudaMalloc(&memory, bytes));
  Must(cudaMemcpy(memory, data, bytes, cudaMemcpyHostToDevice));
  return memory;
}

}  // namespace arborist::kernels::bench
