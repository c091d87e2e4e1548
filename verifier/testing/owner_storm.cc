#include "verifier/testing/owner_storm.h"

#include <gtest/gtest.h>

#include <thread>
#include <utility>
#include <vector>

namespace arborist::verifier {

void OwnerStorm(TestVerifier& verifier, int visits, const OwnerVisit& visit) {
  constexpr uint32_t kOwners = 6;
  std::vector<std::thread> owners;
  for (uint32_t owner = 0; owner < kOwners; ++owner) {
    owners.emplace_back([&visit, visits, owner] {
      std::mt19937 random(owner);
      for (int64_t i = 0; i < visits; ++i) {
        visit(random, 1 + i * kOwners + owner);
      }
    });
  }
  for (std::thread& owner : owners) {
    owner.join();
  }
  EXPECT_EQ(verifier->free_pages(), verifier->total_pages());
}

void OpenAndLeave(TestVerifier& verifier, OpenArgs args, RecordingSink& sink,
                  const std::function<Leave(SequenceHandle)>& stay) {
  const auto handle = verifier->Open(std::move(args), &sink);
  if (!handle.ok()) {
    return;
  }
  if (stay(*handle) == Leave::kCancel) {
    verifier->Cancel(*handle);
  } else {
    verifier->Finish(*handle);
  }
  (void)sink.WaitClosed();
}

}  // namespace arborist::verifier
