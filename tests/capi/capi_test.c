/* A C99 program that uses the library as another engine would, on a machine without a GPU: bad arguments are
 * named, good ones say that there is no GPU. With a GPU the second part is left to torch_test.py. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <arborist_kernels.h>

static int failures = 0;

/* Memory that looks as device addresses do; nothing reads it, as no launch is reached. */
static void* Address(void) {
  static char memory[4096];
  return memory + (256 - (size_t)memory % 256) % 256;
}

static void Expect(const char* what, int code, int expected_code, const char* expected_text) {
  char message[512] = "";
  arborist_last_error(message, sizeof(message));
  if (code != expected_code || strstr(message, expected_text) == NULL) {
    printf("FAILED %s: code %d, message \"%s\", expected code %d and \"%s\"\n", what, code, message,
           expected_code, expected_text);
    ++failures;
  }
}

static arborist_tree_build_args TreeBuildArgs(void) {
  arborist_tree_build_args args;
  memset(&args, 0, sizeof(args));
  args.streams = 1;
  args.max_depths = 2;
  args.max_k = 2;
  args.max_budget = 3;
  args.params = Address();
  args.token = Address();
  args.log_prob = Address();
  args.out_token = Address();
  args.out_parent = Address();
  args.out_score = Address();
  args.out_nodes = Address();
  args.error = Address();
  return args;
}

static void BadFieldsAreNamed(void) {
  arborist_tree_build_args build = TreeBuildArgs();
  build.max_budget = 256;
  Expect("budget", arborist_tree_build(&build, NULL), ARBORIST_INVALID_ARGUMENT,
         "arborist_tree_build: max_budget=256, expected 0..255");
  build = TreeBuildArgs();
  build.log_prob = NULL;
  Expect("null", arborist_tree_build(&build, NULL), ARBORIST_INVALID_ARGUMENT,
         "log_prob=NULL, expected an address of 4 elements");
  build = TreeBuildArgs();
  build.out_parent = (int32_t*)((char*)Address() + 2);
  Expect("alignment", arborist_tree_build(&build, NULL), ARBORIST_INVALID_ARGUMENT,
         "expected a multiple of 4 bytes");
  Expect("args", arborist_tree_build(NULL, NULL), ARBORIST_INVALID_ARGUMENT,
         "args=NULL, expected an address");

  arborist_tree_attention_mla_args attention;
  memset(&attention, 0, sizeof(attention));
  attention.heads = 8;
  attention.latent = 512;
  attention.rope = 64;
  attention.page_rows = 64;
  attention.cache_dtype = 7;
  Expect("dtype", arborist_tree_attention_mla(&attention, NULL), ARBORIST_INVALID_ARGUMENT,
         "cache_dtype=7, expected ARBORIST_F32=0 or ARBORIST_BF16=1");
  attention.cache_dtype = ARBORIST_BF16;
  attention.page_rows = 16;
  Expect("page_rows", arborist_tree_attention_mla(&attention, NULL), ARBORIST_INVALID_ARGUMENT,
         "page_rows=16, expected 64 or 1");
  attention.page_rows = 64;
  attention.rows = 33;
  attention.pages = 64;
  attention.page_table_stride = 64;
  size_t bytes = 0;
  Expect("scratch", arborist_tree_attention_mla_scratch_bytes(&attention, &bytes), ARBORIST_OK, "");
  if (bytes == 0) {
    printf("FAILED scratch: 0 bytes\n");
    ++failures;
  }

  const arborist_sampling_params params = {.temperature = 1, .top_k = 0, .top_p = 0, .min_p = 0};
  Expect("top_p", arborist_check_sampling_params(&params), ARBORIST_INVALID_ARGUMENT,
         "top_p=0, expected a value in (0, 1]");
}

/* A message longer than the buffer is cut and still ends with NUL. */
static void MessagesAreCut(void) {
  char shortened[8] = "xxxxxxx";
  arborist_tree_build(NULL, NULL);
  const size_t length = arborist_last_error(shortened, sizeof(shortened));
  if (strcmp(shortened, "arboris") != 0 || length < 30 || arborist_last_error(NULL, 0) != length) {
    printf("FAILED cut message: \"%s\", %zu\n", shortened, length);
    ++failures;
  }
}

/* depth 1: tokens 7 (-0.5), 8 (-1); depth 2: 9 (-0.25), 10 (-2). */
static void TreesAreBuiltOnTheHost(void) {
  const arborist_tree_build_params params = {.root = 5, .depths = 2, .k = 2, .budget = 3};
  const int32_t token[] = {7, 8, 9, 10};
  const float log_prob[] = {-0.5f, -1, -0.25f, -2};
  int32_t out_token[4], out_parent[4], nodes = 0, error = -1;
  float out_score[4];
  arborist_tree_build_args args = TreeBuildArgs();
  args.params = &params;
  args.token = token;
  args.log_prob = log_prob;
  args.out_token = out_token;
  args.out_parent = out_parent;
  args.out_score = out_score;
  args.out_nodes = &nodes;
  args.error = &error;
  Expect("host build", arborist_tree_build_host(&args), ARBORIST_OK, "");
  const int32_t want_token[] = {5, 7, 9, 8}, want_parent[] = {-1, 0, 1, 0};
  if (nodes != 4 || memcmp(out_token, want_token, sizeof(want_token)) != 0 ||
      memcmp(out_parent, want_parent, sizeof(want_parent)) != 0 || out_score[2] != -0.75f) {
    printf("FAILED host build: %d nodes\n", nodes);
    ++failures;
  }
}

static void GoodCallsSayThatThereIsNoGpu(void) {
  const arborist_tree_build_args build = TreeBuildArgs();
  const int code = arborist_tree_build(&build, NULL);
  if (code != ARBORIST_FAILED_PRECONDITION) {
    printf("a GPU is here: calls on it are torch_test.py's\n");
    return;
  }
  const char* none = "no usable CUDA device";
  Expect("build", code, ARBORIST_FAILED_PRECONDITION, none);
  arborist_top_k_log_prob_args top_k;
  memset(&top_k, 0, sizeof(top_k));
  top_k.vocabulary = top_k.logits_stride = 100;
  top_k.max_k = 4;
  Expect("top k", arborist_top_k_log_prob(&top_k, NULL), ARBORIST_FAILED_PRECONDITION, none);
  arborist_tree_rows_args rows;
  memset(&rows, 0, sizeof(rows));
  rows.tree_begin = Address();
  rows.page_rows = 1;
  Expect("rows", arborist_tree_rows(&rows, NULL), ARBORIST_FAILED_PRECONDITION, none);
  arborist_tree_attention_mla_args attention;
  memset(&attention, 0, sizeof(attention));
  attention.heads = attention.latent = attention.page_rows = 1;
  attention.scratch_bytes = (size_t)1 << 20;
  Expect("attention", arborist_tree_attention_mla(&attention, NULL), ARBORIST_FAILED_PRECONDITION, none);
  arborist_sample_target_args sample;
  memset(&sample, 0, sizeof(sample));
  sample.vocabulary = sample.logits_stride = 100;
  sample.scratch_bytes = (size_t)1 << 20;
  Expect("sample", arborist_sample_target(&sample, NULL), ARBORIST_FAILED_PRECONDITION, none);
  arborist_tree_accept_args accept;
  memset(&accept, 0, sizeof(accept));
  accept.tree_begin = Address();
  Expect("accept", arborist_tree_accept(&accept, NULL), ARBORIST_FAILED_PRECONDITION, none);
  arborist_accepted_moves_args moves;
  memset(&moves, 0, sizeof(moves));
  moves.tree_begin = Address();
  Expect("moves", arborist_accepted_moves(&moves, NULL), ARBORIST_FAILED_PRECONDITION, none);
  arborist_kv_compact_args compact;
  memset(&compact, 0, sizeof(compact));
  Expect("compact", arborist_kv_compact(&compact, NULL), ARBORIST_FAILED_PRECONDITION, none);
}

int main(void) {
  if (arborist_kernels_abi_version() != ARBORIST_KERNELS_ABI_VERSION) {
    printf("FAILED version: library %u, header %u\n", (unsigned)arborist_kernels_abi_version(),
           (unsigned)ARBORIST_KERNELS_ABI_VERSION);
    return 1;
  }
  BadFieldsAreNamed();
  MessagesAreCut();
  TreesAreBuiltOnTheHost();
  GoodCallsSayThatThereIsNoGpu();
  printf("capi: %d failures\n", failures);
  return failures == 0 ? 0 : 1;
}
