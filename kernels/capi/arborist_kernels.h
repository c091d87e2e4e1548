/* Arborist's tree speculation kernels as a C library: for engines that keep their own scheduler, cache and
 * slot table. C99; README.md beside this file says how to install it, and has examples.
 *
 * One round of a batch of sequences, every step on the device:
 *   top_k_log_prob   draft logits                -> candidates of each depth
 *   tree_build       candidates                  -> best-first token trees
 *   tree_rows        trees, positions, slots     -> what attention reads of each row
 *   (your model: embeds the rows, writes their K/V to write_slot, calls attention in every layer)
 *   tree_attention_mla   queries, cache          -> attention under the tree's mask
 *   sample_target    target logits               -> the target's choice after each row
 *   tree_accept      trees, choices              -> accepted path and bonus token of each tree
 *   accepted_moves   paths, slots                -> which cache rows move where
 *   kv_compact       moves                       -> accepted rows in place, in every layer's plane
 *
 * Memory. Every pointer inside an args struct is device memory of the current device, owned by the caller,
 * row-major and dense unless a stride is named, aligned to its element and otherwise as its comment says.
 * An args struct itself is host memory, read during the call. Outputs overlap neither inputs nor one another.
 * Slots are rows of the cache: slot s begins at byte s * row_bytes. Positions are 0-based in prompt + output.
 *
 * Streams. `stream` is a cudaStream_t (NULL: the default stream) of the current device. Functions only
 * enqueue: no allocation, no synchronisation, no copy to the host, so they run inside graph capture. Sizes
 * are baked into a captured graph, everything behind a pointer is read when it runs. Call each function once
 * before the first capture, since that loads its code.
 *
 * Kernels of yours that are launched with programmatic stream serialization keep two rules beside ours: one
 * directly in front of a function waits itself (griddepcontrol.wait) in at least one block, since ours wait
 * for it alone; one behind reads nothing that any of ours wrote before its own wait, since ours let the next
 * kernel begin early. Ordinary launches and copies need nothing.
 *
 * Padding. A graph's batch is as large as its bucket. Rows that hold no token have write_slot -1, trees that
 * hold no sequence have budget 0 or no rows; they cost little and touch nothing.
 *
 * Threads. Any function may run on any thread at any time: there is no state but the message of
 * arborist_last_error. Two calls that share scratch must be ordered by their streams.
 *
 * Errors. 0 (ARBORIST_OK), or the code of what was wrong with the arguments or the launch; then nothing was
 * enqueued, and arborist_last_error names field, value and expectation. Contents of device arrays are never
 * read by the host: bad integers there end in an `error` output or as the comments say, never outside the
 * arrays. Faults while a kernel runs surface at your next synchronisation.
 *
 * Bits. Every result is a function of its own row, tree or sequence alone: not of its neighbours, the number
 * of rows, the GPU's size or the slots that rows lie in. */
#ifndef ARBORIST_KERNELS_H_
#define ARBORIST_KERNELS_H_

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* Rises with every change of a struct, a signature or a meaning. A caller compares the header's with the
 * library's before its first other call. */
#define ARBORIST_KERNELS_ABI_VERSION 1
uint32_t arborist_kernels_abi_version(void);

/* Values of the int that every function below returns. */
enum arborist_status {
  ARBORIST_OK = 0,
  ARBORIST_INVALID_ARGUMENT = 3,    /* a field of the args */
  ARBORIST_RESOURCE_EXHAUSTED = 8,  /* CUDA is out of memory */
  ARBORIST_FAILED_PRECONDITION = 9, /* no usable GPU or driver */
  ARBORIST_INTERNAL = 13            /* CUDA refused the launch: its own words are in the message */
};

/* Copies this thread's last message (empty after a call that succeeded) with its NUL into `buffer`, cut to
 * `bytes`; returns its full length without NUL. buffer may be NULL when bytes is 0. Never fails. */
size_t arborist_last_error(char* buffer, size_t bytes);

/* Types of cache rows and logits. */
enum arborist_dtype { ARBORIST_F32 = 0, ARBORIST_BF16 = 1 };

/* Limits. */
enum {
  ARBORIST_MAX_BUDGET = 255,    /* drafted nodes of a tree; its root comes on top */
  ARBORIST_MAX_DEPTH = 63,      /* of a node below its root */
  ARBORIST_MAX_CANDIDATES = 64, /* at a depth */
  ARBORIST_MAX_TAIL_KEYS = 127, /* columns of tail_slot */
  ARBORIST_MAX_PLANES = 256     /* of one compaction */
};

/* --- top_k_log_prob ------------------------------------------------------------------------------------ */

/* One stream's wishes, 32 bytes, device memory. With temperature 0 candidates are the k largest logits; else
 * the k largest of (logits - max) / temperature + gumbel(seed, sample_index, first_position + d, v): the
 * noise that sample_target adds to the target's logits (drafts that share it are accepted more often). Ties:
 * lower id. */
typedef struct arborist_top_k_params {
  float temperature; /* 0, or > 0 */
  float beta;        /* > 0; 1 = the draft's own confidence: log_prob = log_softmax(beta * x) over all ids */
  uint64_t seed;
  uint32_t sample_index;
  int32_t first_position; /* position of the token that depth 1 proposes */
  int32_t depths;         /* 0..max_depths of the args; 0 = padding */
  int32_t k;              /* 0..max_k of the args */
} arborist_top_k_params;

typedef struct arborist_top_k_log_prob_args {
  const void* logits; /* [streams, max_depths, vocabulary], finite; fastest with rows aligned to 16 bytes */
  int32_t logits_dtype;
  int64_t streams;
  int64_t max_depths;                  /* 0..63 */
  int64_t vocabulary;                  /* 1..2^23 */
  int64_t logits_stride;               /* elements between rows, >= vocabulary */
  const arborist_top_k_params* params; /* [streams] */
  int64_t max_k;                       /* 1..64 */
  int32_t* token;                      /* out [streams, max_depths, max_k] */
  float* log_prob;                     /* out, the same shape; a row with a non-finite logit is NaN */
  void* scratch;                       /* 64-byte aligned */
  size_t scratch_bytes;
} arborist_top_k_log_prob_args;

/* Bytes of scratch that args of these sizes need; pointers are not looked at. So for all *_scratch_bytes. */
int arborist_top_k_log_prob_scratch_bytes(const arborist_top_k_log_prob_args* args, size_t* bytes);
int arborist_top_k_log_prob(const arborist_top_k_log_prob_args* args, void* stream);

/* --- tree_build ---------------------------------------------------------------------------------------- */

/* One stream's wishes, 16 bytes, device memory (tree_build_host: host memory). */
typedef struct arborist_tree_build_params {
  int32_t root;   /* token id of the root: the last committed token */
  int32_t depths; /* 0..max_depths */
  int32_t k;      /* 0..max_k candidates a depth; 1 = a chain */
  int32_t budget; /* 0..max_budget drafted nodes; 0 = the root alone */
} arborist_tree_build_params;

/* The `budget` most probable prefixes, best first (a prefix of the node list is a tree, too). A tree has
 * fewer nodes only when candidates run out. Equal scores: the lexicographically smaller rank path. Node 0 is
 * the root: parent -1, score 0; parent[i] < i; scores never increase. Entries past out_nodes are not written.
 */
typedef struct arborist_tree_build_args {
  int64_t streams;
  int64_t max_depths;                       /* 0..63 */
  int64_t max_k;                            /* 1..64 */
  int64_t max_budget;                       /* 0..255 */
  const arborist_tree_build_params* params; /* [streams] */
  const int32_t* token;                     /* [streams, max_depths, max_k], distinct at a depth */
  const float* log_prob;                    /* the same shape: finite, <= 0, non-increasing along k */
  int32_t* out_token;                       /* [streams, max_budget + 1] */
  int32_t* out_parent;                      /* [streams, max_budget + 1] index inside the tree */
  float* out_score;                         /* [streams, max_budget + 1] sum of log_prob along the path */
  int32_t* out_nodes;                       /* [streams] nodes written, root included */
  int32_t* error; /* [streams] 0, or 1: params or a log_prob was bad and the tree is the root alone */
} arborist_tree_build_args;

int arborist_tree_build(const arborist_tree_build_args* args, void* stream);
/* The same trees, bit for bit, on the CPU: every pointer is host memory, done on return. A bad stream is
 * ARBORIST_INVALID_ARGUMENT here. To check with, or to draft with before anything runs on the GPU. */
int arborist_tree_build_host(const arborist_tree_build_args* args);

/* --- tree_rows ----------------------------------------------------------------------------------------- */

/* What attention asks of each row. Tree i has rows [tree_begin[i], tree_begin[i + 1]), of which the first
 * nodes[i] are its nodes (so trees as tree_build writes them lie at a stride of max_budget + 1). A node at
 * depth d has position root_position + d; it sees the committed positions before the root, its ancestors,
 * itself. A row that holds no node (past nodes, write_slot < 0, a bad parent, too deep, a bad table_row)
 * becomes padding: sequence 0, position 0, prefix_blocks 0, tail_count 0. */
typedef struct arborist_tree_rows_args {
  int64_t trees;
  int64_t rows;
  const int32_t* tree_begin;    /* [trees + 1] ascending */
  const int32_t* nodes;         /* [trees], or NULL: every row of the span */
  const int32_t* parent;        /* [rows] index inside the tree, -1 for its root */
  const int32_t* root_position; /* [trees] = number of committed positions before the root */
  const int32_t* table_row;     /* [trees] the sequence's row of page_table, or NULL: tree i has row i */
  const int32_t* page_table; /* [sequences, pages] page of positions [i * page_rows, (i + 1) * page_rows) */
  int64_t sequences;
  int64_t pages;
  int64_t page_table_stride; /* elements between rows, >= pages */
  int32_t page_rows;         /* slots of a page: 64, or 1 (a table of slots) */
  const int32_t* write_slot; /* [rows] slot of the row's own K/V; -1: padding */
  int32_t* sequence;         /* out [rows] */
  int32_t* position;         /* out [rows] */
  int32_t* prefix_blocks;    /* out [rows] */
  int32_t* tail_slot;        /* out [rows, 127] */
  int32_t* tail_count;       /* out [rows] */
} arborist_tree_rows_args;

int arborist_tree_rows(const arborist_tree_rows_args* args, void* stream);

/* --- tree_attention_mla -------------------------------------------------------------------------------- */

/* Absorbed multi-head latent attention: key and value share one cache row [latent | rope], the value is its
 * first `latent` elements.
 *   out[t, h, :] = sum_j softmax_j(scale * dot(query[t, h, :], cache[key j])) * cache[key j, 0:latent]
 * over the keys that tree_rows lists: 64 * prefix_blocks positions through the page table, then tail_count
 * slots. The K/V of the rows themselves must be in the cache before. bf16 caches: query and weights are
 * rounded to bf16, sums are fp32. A padding row gives zeros. Slots or pages outside the cache read slot 0; a
 * prefix longer than the table is cut. */
typedef struct arborist_tree_attention_mla_args {
  const float* query; /* [rows, heads, latent + rope], rope applied; 16-byte aligned */
  int64_t rows;
  int64_t heads;
  int64_t latent;
  int64_t rope;
  float scale;
  const void* cache; /* [slots, latent + rope] of one layer, 16-byte aligned */
  int32_t cache_dtype;
  int64_t slots;
  const int32_t* page_table; /* [sequences, pages]; scratch grows with pages, so give as many as are in use */
  int64_t sequences;
  int64_t pages;
  int64_t page_table_stride;
  int32_t page_rows;            /* 64 or 1 */
  const int32_t* sequence;      /* [rows]; rows of a sequence stand together */
  const int32_t* prefix_blocks; /* [rows] */
  const int32_t* tail_slot;     /* [rows, 127] */
  const int32_t* tail_count;    /* [rows] */
  float* out;                   /* [rows, heads, latent], 16-byte aligned */
  void* scratch;                /* 256-byte aligned */
  size_t scratch_bytes;
} arborist_tree_attention_mla_args;

int arborist_tree_attention_mla_scratch_bytes(const arborist_tree_attention_mla_args* args, size_t* bytes);
int arborist_tree_attention_mla(const arborist_tree_attention_mla_args* args, void* stream);

/* --- sample_target ------------------------------------------------------------------------------------- */

/* Sampling of one sequence, 32 bytes, device memory. Order: temperature, top-k, top-p, min-p, argmax with
 * noise; ties to the lowest id. */
typedef struct arborist_sampling_params {
  float temperature; /* 0 = greedy, the rest is ignored; else > 0 */
  int32_t top_k;     /* 0 = off */
  float top_p;       /* (0, 1]; 1 = off */
  float min_p;       /* [0, 1]; 0 = off */
  uint64_t seed;
  uint32_t sample_index; /* counts the answers to one prompt */
  uint32_t reserved;     /* 0 */
} arborist_sampling_params;

/* ARBORIST_INVALID_ARGUMENT for values out of range. `params` is host memory: call it where a request enters,
 * since sample_target does not see bad values. */
int arborist_check_sampling_params(const arborist_sampling_params* params);

/* chosen[i] = argmax_v((logits[i, v] - max) / temperature + gumbel(seed, sample_index, position[i], v)) over
 * the ids that the cuts leave: the token of a position is a function of logits, parameters and seed, so a
 * tree commits the tokens that one-by-one decoding would. */
typedef struct arborist_sample_target_args {
  const float* logits; /* [rows, vocabulary]; rows aligned to 16 bytes are read fastest */
  int64_t rows;
  int64_t vocabulary;                     /* 1..2^23 */
  int64_t logits_stride;                  /* elements between rows, >= vocabulary */
  const int32_t* position;                /* [rows] of the token being chosen: the row's own position + 1 */
  const int32_t* params_index;            /* [rows] into params */
  const arborist_sampling_params* params; /* [params_count] */
  int64_t params_count;
  int32_t* chosen; /* out [rows] */
  float* log_prob; /* out [rows] log-softmax of the raw logits at chosen, or NULL */
  int32_t* error;  /* out [rows] 0, or 1: a logit was not finite or params_index out of range; chosen is 0 */
  void* scratch;   /* 64-byte aligned */
  size_t scratch_bytes;
} arborist_sample_target_args;

int arborist_sample_target_scratch_bytes(const arborist_sample_target_args* args, size_t* bytes);
int arborist_sample_target(const arborist_sample_target_args* args, void* stream);

/* --- tree_accept --------------------------------------------------------------------------------------- */

/* From the root down, as long as a child carries the token that was chosen at its parent. */
typedef struct arborist_tree_accept_args {
  int64_t trees;
  int64_t rows;
  const int32_t* tree_begin; /* [trees + 1] as tree_rows takes it */
  const int32_t* nodes;      /* [trees], or NULL */
  const int32_t* token;      /* [rows] */
  const int32_t* parent;     /* [rows] */
  const int32_t* chosen;     /* [rows] */
  int32_t* path;        /* out [rows]: from tree_begin[i], path_length[i] indices inside the tree, 0 first */
  int32_t* path_length; /* out [trees] accepted rows, root included; 0 on error */
  int32_t* bonus;       /* out [trees] the choice at the last accepted row: the next root; -1 on error */
  int32_t* error;       /* out [trees] 0, or 1: a parent was out of range, the tree empty or above 256 rows */
} arborist_tree_accept_args;

int arborist_tree_accept(const arborist_tree_accept_args* args, void* stream);

/* --- accepted_moves, kv_compact ------------------------------------------------------------------------ */

/* The j-th accepted row of a tree belongs into the slot of the tree's row j. Rows behind the last tree (a
 * prompt's) are kept where they are. */
typedef struct arborist_accepted_moves_args {
  int64_t trees;
  int64_t rows;
  const int32_t* tree_begin;  /* [trees + 1] */
  const int32_t* path;        /* [rows] of tree_accept */
  const int32_t* path_length; /* [trees] of tree_accept */
  const int32_t* write_slot;  /* [rows] */
  int32_t* from;              /* out [rows] slot to move, or -1: no move */
  int32_t* to;                /* out [rows] where to, or -1 */
  int32_t* kept_slot;         /* out [rows] slot in which the row's token ends up, -1: it was not accepted */
} arborist_accepted_moves_args;

int arborist_accepted_moves(const arborist_accepted_moves_args* args, void* stream);

/* plane[to[i]] = old plane[from[i]] for every move and plane: all reads before all writes for each 512 moves
 * in turn, which is the same as for all of them at once when they come from accepted_moves. Negative or too
 * large slots: no move. Slots of `to` are distinct among the moves, so are those of `from`. */
typedef struct arborist_kv_compact_args {
  void* const* plane; /* [planes] device memory that holds device addresses, each [slots, row_bytes[i]] */
  const int64_t* row_bytes; /* [planes] */
  int64_t planes;           /* 0..256 */
  int64_t max_row_bytes;    /* the largest of row_bytes */
  int64_t slots;
  const int32_t* from; /* [moves] */
  const int32_t* to;   /* [moves] */
  int64_t moves;
} arborist_kv_compact_args;

int arborist_kv_compact(const arborist_kv_compact_args* args, void* stream);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* ARBORIST_KERNELS_H_ */
