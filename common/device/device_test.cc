#include "common/device/device.h"

#include <unistd.h>

#include <cstdint>
#include <cstdio>
#include <cstring>
#include <fstream>
#include <memory>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"

namespace arborist {
namespace {

using ::testing::AnyOf;
using ::testing::HasSubstr;

TEST(DeviceTest, CpuMemoryIsAlignedZeroFilledAndCounted) {
  ThreadPool threads(1);
  const auto device = OpenCpuDevice(threads);
  const auto memory = device->Allocate(1000, "rows");
  ASSERT_TRUE(memory.ok());
  EXPECT_EQ(reinterpret_cast<uintptr_t>(memory->data()) % 256, 0u);
  for (size_t i = 0; i < memory->bytes(); ++i) {
    ASSERT_EQ(memory->As<char>()[i], 0);
  }
  ASSERT_EQ(device->allocations().size(), 1u);
  EXPECT_EQ(device->allocations()[0].what, "rows");
  EXPECT_EQ(device->allocations()[0].bytes, 1000u);
}

TEST(DeviceTest, MemoryTableAddsUpLinesOfTheSameName) {
  ThreadPool threads(1);
  const auto device = OpenDevice({}, threads);
  ASSERT_TRUE(device.ok());
  const auto a = (*device)->Allocate(1 << 20, "weights"), b = (*device)->Allocate(1 << 19, "scratch"),
             c = (*device)->Allocate(1 << 20, "weights");
  const std::string table = MemoryTable(**device);
  EXPECT_THAT(table, HasSubstr("memory on CPU:\n"));
  EXPECT_THAT(table, HasSubstr("2.000 MiB\n"));
  EXPECT_THAT(table, HasSubstr("0.500 MiB\n"));
  EXPECT_THAT(table, HasSubstr("2.500 MiB\n"));
}

TEST(DeviceTest, MovedMemoryHasOneOwner) {
  ThreadPool threads(1);
  const auto device = OpenCpuDevice(threads);
  DeviceMemory first = *device->Allocate(16, "a");
  void* data = first.data();
  DeviceMemory second = std::move(first);
  EXPECT_EQ(second.data(), data);
  EXPECT_EQ(first.data(), nullptr);  // NOLINT: moved from, on purpose
}

TEST(DeviceTest, WithoutAGpuOneLineSaysSo) {
  const auto device = OpenCudaDevice({});
  if (device.ok()) {
    GTEST_SKIP() << "skipped: this machine has a CUDA device";
  }
  EXPECT_EQ(device.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(device.status().message()),
              AnyOf(HasSubstr("no CUDA device ("), HasSubstr("built without CUDA")));
  EXPECT_EQ(device.status().message().find('\n'), absl::string_view::npos);
}

TEST(CudaDeviceTest, RecordedWorkRunsAgainWithNewInput) {
  const auto device = OpenCudaDevice({});
  if (!device.ok()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  const auto host = (*device)->AllocateHost(64, "host");
  const auto memory = (*device)->Allocate(64, "device");
  const auto back = (*device)->AllocateHost(64, "back");
  ASSERT_TRUE(host.ok() && memory.ok() && back.ok());
  const auto work = (*device)->Record(
      [&]() -> absl::Status {
        absl::Status status = (*device)->Copy(memory->data(), host->data(), 64);
        return status.ok() ? (*device)->Copy(back->data(), memory->data(), 64) : status;
      },
      "there and back");
  ASSERT_TRUE(work.ok()) << work.status().ToString();
  for (const char value : {'a', 'b'}) {
    host->As<char>()[63] = value;
    ASSERT_TRUE((*work)->Start().ok());
    ASSERT_TRUE((*device)->Synchronize().ok());
    EXPECT_EQ(back->As<char>()[63], value);
  }
}

TEST(CudaDeviceTest, ARecordingThatFailsIsAnErrorAndTheNextOneWorks) {
  const auto device = OpenCudaDevice({});
  if (!device.ok()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  const auto host = (*device)->AllocateHost(64, "host");
  const auto memory = (*device)->Allocate(64, "device");
  ASSERT_TRUE(host.ok() && memory.ok());
  bool fails = true;
  const auto record = [&] {
    return (*device)->Record(
        [&]() -> absl::Status {
          const absl::Status status = (*device)->Copy(memory->data(), host->data(), 64);
          return fails ? absl::InternalError("injected") : status;
        },
        "a copy");
  };
  EXPECT_EQ(record().status(), absl::InternalError("injected"));
  fails = false;
  const auto work = record();
  ASSERT_TRUE(work.ok()) << work.status().ToString();
  EXPECT_TRUE((*work)->Start().ok());
  EXPECT_TRUE((*device)->Synchronize().ok());
}

TEST(CudaDeviceTest, RecordedCopiesOfEverySizeMoveTheirBytesAndNoOthers) {
  const auto device = OpenCudaDevice({});
  if (!device.ok()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  constexpr size_t kBytes = 1 << 17;
  const auto host = (*device)->AllocateHost(kBytes, "host");
  const auto memory = (*device)->Allocate(kBytes, "device");
  const auto back = (*device)->AllocateHost(kBytes, "back");
  ASSERT_TRUE(host.ok() && memory.ok() && back.ok());
  for (size_t i = 0; i < kBytes; ++i) {
    host->As<unsigned char>()[i] = static_cast<unsigned char>(i * 7 + i / 256);
  }
  for (const size_t offset : {0, 16, 3}) {
    for (const size_t bytes : {1, 15, 16, 17, 784, 4096, 4097, 65536, 100000}) {
      const auto work = (*device)->Record(
          [&]() -> absl::Status {
            absl::Status status =
                (*device)->Copy(memory->As<char>() + offset, host->As<char>() + offset, bytes);
            return status.ok()
                       ? (*device)->Copy(back->As<char>() + offset, memory->As<char>() + offset, bytes)
                       : status;
          },
          "there and back");
      ASSERT_TRUE(work.ok()) << work.status().ToString();
      std::memset(back->data(), 0xee, kBytes);
      ASSERT_TRUE((*work)->Start().ok());
      ASSERT_TRUE((*device)->Synchronize().ok());
      for (size_t i = 0; i < kBytes; ++i) {
        const bool copied = i >= offset && i < offset + bytes;
        ASSERT_EQ(back->As<unsigned char>()[i], copied ? host->As<unsigned char>()[i] : 0xee)
            << bytes << " bytes at " << offset << ", byte " << i;
      }
    }
  }
}

TEST(CudaDeviceTest, MoreThanTheShareIsRefusedByName) {
  const auto device = OpenCudaDevice({.index = 0, .memory_limit = 1 << 20});
  if (!device.ok()) {
    GTEST_SKIP() << "skipped: no CUDA device";
  }
  EXPECT_TRUE((*device)->Allocate(1 << 19, "half").ok());
  const auto more = (*device)->Allocate((1 << 19) + 1, "weights");
  EXPECT_EQ(more.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(more.status().message(),
            "weights: 524289 bytes wanted, 524288 left of this process's share of the GPU's memory");
}

TEST(DeviceTest, APlantedFaultOnTheCpuHappensOnceAndIsTheLastWord) {
  ThreadPool threads(1);
  const auto full = OpenCpuDevice(threads, {.kind = DeviceFault::Kind::kOutOfMemory, .allocation = 2});
  EXPECT_TRUE(full->Allocate(16, "weights").ok());
  const auto refused = full->Allocate(16, "KV cache");
  EXPECT_EQ(refused.status().code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("KV cache: 16 bytes"));
  EXPECT_TRUE(full->Allocate(16, "scratch").ok());

  const std::string trigger = ::testing::TempDir() + "/device_test_trigger" + std::to_string(getpid());
  const auto failing =
      OpenCpuDevice(threads, {.kind = DeviceFault::Kind::kLaunchError, .trigger_path = trigger});
  EXPECT_TRUE(failing->Synchronize().ok());
  std::ofstream(trigger) << "now\n";
  const absl::Status failed = failing->Synchronize();
  EXPECT_EQ(failed.code(), absl::StatusCode::kInternal);
  std::remove(trigger.c_str());
  EXPECT_EQ(failing->Synchronize(), failed);
}

TEST(DeviceTest, AnIllegalAccessToMemoryThatWasNeverAllocatedIsToldByName) {
  ThreadPool threads(1);
  const std::string trigger = ::testing::TempDir() + "/device_test_memory" + std::to_string(getpid());
  std::ofstream(trigger) << "now\n";
  for (const std::string name : {"rows", "rowz"}) {
    const auto device = OpenCpuDevice(
        threads, {.kind = DeviceFault::Kind::kIllegalAccess, .trigger_path = trigger, .memory = name});
    ASSERT_TRUE(device->Allocate(16, "rows").ok());
    EXPECT_THAT(std::string(device->Synchronize().message()),
                HasSubstr(name == "rows" ? "a planted illegal access to rows"
                                         : "gpu.fault.memory=rowz, expected a name of the memory table"));
  }
  std::remove(trigger.c_str());
}

}  // namespace
}  // namespace arborist
