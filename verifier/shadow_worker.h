#pragma once

#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>

#include "verifier/shadow_sample.h"

namespace arborist::verifier {

// A thread that compares one sample at a time, so that no step waits for an oracle. Its caller is one thread.
class ShadowWorker {
 public:
  explicit ShadowWorker(std::function<void(const ShadowSample&)> work);
  // Does first what is under way.
  ~ShadowWorker();

  bool busy();
  void WaitUntilIdle();
  // Only while not busy.
  void Start(std::unique_ptr<ShadowSample> sample);

 private:
  void Loop();

  const std::function<void(const ShadowSample&)> work_;
  std::mutex mutex_;
  std::condition_variable changed_;
  std::unique_ptr<ShadowSample> sample_;  // until it is compared
  bool stopping_ = false;
  std::thread thread_;
};

}  // namespace arborist::verifier
