#include "kernels/bench/cublas_control.h"

#include <dlfcn.h>

#include "absl/strings/str_cat.h"

namespace arborist::kernels::bench {
namespace {

// As cublas_api.h and library_types.h have them; their values are part of the library's ABI.
constexpr int kTransposed = 1, kPlain = 0;  // cublasOperation_t
constexpr int kBFloat16 = 14;               // cudaDataType_t
constexpr int kComputeF32 = 68;             // cublasComputeType_t
constexpr int kDefaultAlgorithm = -1;       // cublasGemmAlgo_t
using Create = int (*)(void** handle);
using Destroy = int (*)(void* handle);
using SetStream = int (*)(void* handle, void* stream);
using GemmEx = int (*)(void* handle, int transpose_a, int transpose_b, int m, int n, int k, const void* alpha,
                       const void* a, int a_type, int a_stride, const void* b, int b_type, int b_stride,
                       const void* beta, void* c, int c_type, int c_stride, int compute_type, int algorithm);

void* OpenLibrary() {
  for (const char* name :
       {"libcublas.so.13", "libcublas.so.12", "libcublas.so", "/usr/local/cuda/lib64/libcublas.so"}) {
    if (void* library = dlopen(name, RTLD_NOW); library != nullptr) {
      return library;
    }
  }
  return nullptr;
}

class Loaded : public CublasControl {
 public:
  Loaded(void* handle, Destroy destroy, GemmEx gemm) : handle_(handle), destroy_(destroy), gemm_(gemm) {}
  ~Loaded() override { destroy_(handle_); }

  absl::Status Product(const void* x, const void* weight, void* out, int64_t rows, int64_t outputs,
                       int64_t inputs) override {
    // cuBLAS counts by columns: our row-major [rows, outputs] is its [outputs, rows].
    const float one = 1.0f, zero = 0.0f;
    const int m = static_cast<int>(outputs), n = static_cast<int>(rows), k = static_cast<int>(inputs);
    const int status = gemm_(handle_, kTransposed, kPlain, m, n, k, &one, weight, kBFloat16, k, x, kBFloat16,
                             k, &zero, out, kBFloat16, m, kComputeF32, kDefaultAlgorithm);
    return status == 0 ? absl::OkStatus()
                       : absl::InternalError(absl::StrCat("cublasGemmEx: status ", status));
  }

 private:
  void* handle_;
  Destroy destroy_;
  GemmEx gemm_;
};

}  // namespace

std::unique_ptr<CublasControl> CublasControl::Open(void* cuda_stream) {
  void* library = OpenLibrary();  // stays open until the program ends
  if (library == nullptr) {
    return nullptr;
  }
  const auto create = reinterpret_cast<Create>(dlsym(library, "cublasCreate_v2"));
  const auto destroy = reinterpret_cast<Destroy>(dlsym(library, "cublasDestroy_v2"));
  const auto set_stream = reinterpret_cast<SetStream>(dlsym(library, "cublasSetStream_v2"));
  const auto gemm = reinterpret_cast<GemmEx>(dlsym(library, "cublasGemmEx"));
  void* handle = nullptr;
  if (create == nullptr || destroy == nullptr || set_stream == nullptr || gemm == nullptr ||
      create(&handle) != 0) {
    return nullptr;
  }
  auto control = std::make_unique<Loaded>(handle, destroy, gemm);
  return set_stream(handle, cuda_stream) == 0 ? std::move(control) : nullptr;
}

}  // namespace arborist::kernels::bench
