#include "verifier/mask_maker.h"

namespace arborist::verifier {

MaskMaker::MaskMaker(Done done)
    : done_(std::move(done)), queue_([this](Job job) { MakeOneMore(std::move(job)); }) {}

void MaskMaker::Make(SequenceHandle sequence, std::shared_ptr<TreeMasks> masks) {
  queue_.Put({sequence, std::move(masks)});
}

void MaskMaker::MakeOneMore(Job job) {
  if (job.masks.use_count() == 1) {
    return;  // its sequence has gone
  }
  if (job.masks->MakeOneMore()) {
    done_(job.sequence, job.masks);
  } else {
    queue_.Put(std::move(job));
  }
}

}  // namespace arborist::verifier
