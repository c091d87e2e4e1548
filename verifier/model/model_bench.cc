// Plain decoding of one sequence, batch 1: tokens/s against the time that reading the weights of one token
// takes at the read rate measured here.
//   model_bench --model DIR [--threads 2] [--tokens 256] [--rows 1]

#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "kernels/kernel_set.h"
#include "verifier/model/model.h"

namespace arborist::verifier {
namespace {

using Clock = std::chrono::steady_clock;

double Seconds(Clock::time_point since) {
  return std::chrono::duration<double>(Clock::now() - since).count();
}

struct Flags {
  std::string model;
  int threads = 2;
  int tokens = 256;
  int rows = 1;  // of a step: 1 is plain decoding, more is the cost of a chain of that length
};

Flags Parse(int argc, char** argv) {
  Flags flags;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string name = argv[i];
    if (name == "--model") flags.model = argv[i + 1];
    if (name == "--threads") flags.threads = std::atoi(argv[i + 1]);
    if (name == "--tokens") flags.tokens = std::atoi(argv[i + 1]);
    if (name == "--rows") flags.rows = std::atoi(argv[i + 1]);
  }
  return flags;
}

// Bytes of bf16 weights that one token reads.
double ActiveBytes(const ModelConfig& c) {
  double elements = static_cast<double>(c.vocab_size) * c.hidden_size;
  for (int layer = 0; layer < c.layers; ++layer) {
    const double query_inputs = c.q_lora_rank > 0 ? c.q_lora_rank : c.hidden_size;
    elements += static_cast<double>(c.q_lora_rank) * c.hidden_size +
                query_inputs * c.heads * (c.qk_nope_head_dim + c.qk_rope_head_dim) +
                static_cast<double>(c.latent_row()) * c.hidden_size +
                static_cast<double>(c.heads) * c.kv_lora_rank * (c.qk_nope_head_dim + c.v_head_dim) +
                static_cast<double>(c.heads) * c.v_head_dim * c.hidden_size;
    const double width =
        c.IsMoe(layer) ? static_cast<double>(c.experts_per_token * c.moe_intermediate_size + c.shared_width())
                       : static_cast<double>(c.intermediate_size);
    elements += 3 * width * c.hidden_size + (c.IsMoe(layer) ? c.routed_experts * c.hidden_size : 0);
  }
  return 2 * elements;
}

// Bytes a second that all threads read from a block of the model's size, warm.
double ReadRate(ThreadPool& threads, double bytes) {
  std::vector<uint64_t> block(static_cast<size_t>(bytes / 8) + 1, 1);
  std::vector<uint64_t> sums(static_cast<size_t>(threads.threads()) * 8);
  double best = 0;
  for (int repeat = 0; repeat < 20; ++repeat) {
    const Clock::time_point start = Clock::now();
    threads.ParallelFor(static_cast<int64_t>(block.size()), 1, [&](int64_t begin, int64_t end, int worker) {
      uint64_t sum = 0;
      for (int64_t i = begin; i < end; ++i) {
        sum += block[i];
      }
      sums[worker * 8] = sum;
    });
    best = std::max(best, static_cast<double>(block.size()) * 8 / Seconds(start));
  }
  return sums[0] > 0 ? best : 0;
}

void FillRows(StepBatch& batch, int first, int rows, int64_t vocabulary) {
  batch.Clear();
  batch.rows = rows;
  batch.sequences = 1;
  batch.first_row[1] = rows;
  for (int row = 0; row < rows; ++row) {
    const int position = first + row, blocks = kernels::PrefixBlocks(position);
    batch.token[row] = TokenId{static_cast<int32_t>(position * 7919 % vocabulary)};
    batch.position[row] = batch.write_slot[row] = position;
    batch.parent[row] = row - 1;
    batch.prefix_blocks[row] = blocks;
    batch.tail_count[row] = position + 1 - blocks * kernels::kPageRows;
    for (int i = 0; i < batch.tail_count[row]; ++i) {
      batch.tail_slot[row * kernels::kMaxTailKeys + i] = blocks * kernels::kPageRows + i;
    }
    batch.logits_row.push_back(row);
  }
  for (int page = 0; page < batch.pages_per_sequence; ++page) {
    batch.page_table[page] = page;
  }
}

int Main(const Flags& flags) {
  ThreadPool threads(flags.threads);
  const auto device = OpenCpuDevice(threads);
  const int context = flags.tokens * flags.rows;
  const absl::StatusOr<std::unique_ptr<Model>> model = Model::Load({.directory = flags.model,
                                                                    .max_rows = flags.rows,
                                                                    .max_logits_rows = flags.rows,
                                                                    .max_context = context,
                                                                    .tap_layers = {}},
                                                                   kernels::CpuKernels(), *device);
  if (!model.ok()) {
    std::fprintf(stderr, "%s\n", model.status().ToString().c_str());
    return 1;
  }
  const ModelConfig& config = (*model)->config();
  const int pages = (context + kernels::kPageRows - 1) / kernels::kPageRows;
  absl::StatusOr<KvPlanes> planes =
      KvPlanes::Create({.layers = config.layers, .pages = pages, .latent_row = config.latent_row()}, *device);
  if (!planes.ok()) {
    std::fprintf(stderr, "%s\n", planes.status().ToString().c_str());
    return 1;
  }
  StepBatch batch;
  batch.Reserve(flags.rows, 1, pages);
  double best = 1e30;
  for (int repeat = 0; repeat < 4; ++repeat) {  // the first one warms up
    double busy = 0;
    for (int step = 0; step < flags.tokens; ++step) {
      FillRows(batch, step * flags.rows, flags.rows, config.vocab_size);
      const Clock::time_point start = Clock::now();
      if (const auto result = (*model)->Forward(ViewOf(batch), *planes); !result.ok()) {
        std::fprintf(stderr, "%s\n", result.status().ToString().c_str());
        return 1;
      }
      busy += Seconds(start);
    }
    best = repeat == 0 ? best : std::min(best, busy / flags.tokens);
  }
  const double bytes = ActiveBytes(config);
  const double rate = ReadRate(threads, bytes);
  std::printf("threads %d, %d rows a step, context 0..%d: %.3f ms a step, %.0f tokens/s\n", flags.threads,
              flags.rows, context, best * 1e3, flags.rows / best);
  std::printf("floor: %.2f MB of weights a token at %.1f GB/s = %.3f ms; ratio %.1f\n", bytes / 1e6,
              rate / 1e9, bytes / rate * 1e3, best / (bytes / rate));
  return 0;
}

}  // namespace
}  // namespace arborist::verifier

int main(int argc, char** argv) { return arborist::verifier::Main(arborist::verifier::Parse(argc, argv)); }
