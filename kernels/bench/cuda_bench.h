#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "common/threads/thread_pool.h"
#include "kernels/bench/cublas_control.h"

namespace arborist::kernels::bench {

// Bandwidth that floors are stated with (bytes a second), whatever this card copies today.
inline constexpr double kFloorBandwidth = 4.25e12;

// One line of a bench: what, on which shape, how long, against which floor.
struct CudaFigure {
  std::string kernel;
  std::string shape;
  double microseconds = 0;
  double floor_microseconds = 0;  // 0: none
  double goal_microseconds = 0;   // 0: none
};

// Times launches on the first GPU. Each figure is the median over at least 50 replays of a graph that holds
// one launch for every input set, divided by their number: launch gaps are inside. Give enough sets that
// their bytes exceed 200 MB, so that the second cache is cold. Prints a table; --json=FILE writes the same as
// JSON. Without a GPU the program prints "skipped: no CUDA device" and ends with 0.
class CudaBench {
 public:
  // Reads --json=FILE and --filter=TEXT|TEXT... (kernels whose name contains one of them).
  CudaBench(int argc, char** argv);
  ~CudaBench();  // writes the file

  bool has_device() const { return stream_ != nullptr; }
  bool Wanted(const std::string& kernel) const;
  StreamView stream() const { return {.threads = nullptr, .cuda_stream = stream_}; }

  // How many input sets of `bytes` make 200 MB, within [1, 512].
  static int SetsFor(double bytes);
  // launch(i) enqueues one launch on stream() with input set i. Ends the program on an error.
  double MedianMicroseconds(int sets, const std::function<absl::Status(int)>& launch);
  void Report(const CudaFigure& figure);

  // Device memory that lives until the program ends, filled with random bf16 values of about unit size (or
  // with `fill` repeated where that is >= 0).
  void* Memory(size_t bytes, int fill = -1);
  // What the device has left.
  static size_t FreeBytes();
  template <typename T>
  T* Upload(const std::vector<T>& values) {
    return static_cast<T*>(UploadBytes(values.data(), values.size() * sizeof(T)));
  }

  // Controls, measured once: a large device-to-device copy (read + write), an empty kernel in a graph, and
  // cuBLAS on a square bf16 product (0 without cuBLAS).
  double copy_bytes_per_second() const { return copy_; }
  double empty_launch_microseconds() const { return empty_; }
  double cublas_flops() const { return cublas_flops_; }
  // Null where the machine has none, and without a GPU.
  CublasControl* cublas() const { return cublas_.get(); }

 private:
  void* UploadBytes(const void* data, size_t bytes);

  std::string json_;
  std::string filter_;
  void* stream_ = nullptr;
  double copy_ = 0;
  double empty_ = 0;
  double cublas_flops_ = 0;
  std::unique_ptr<CublasControl> cublas_;
  std::string device_;
  std::vector<CudaFigure> figures_;
};

}  // namespace arborist::kernels::bench
