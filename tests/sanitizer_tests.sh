# Which tests each sanitizer build runs (test names are target names). Sourced by run.sh.
# Address and undefined behaviour: everything that reads files or messages from outside, or writes memory by hand.
asan_ubsan_tests=(
  json_test weights_test projection_test tokenizer_test rpc_test thread_pool_test log_test
  linear_test moe_experts_test moe_route_test tree_attention_mla_test block_attention_gqa_test kv_compact_test
  top_k_log_prob_test tree_build_test sample_target_test tree_accept_test
  logit_controls_test token_log_prob_test grammar_test
  verifier_parts_test verifier_lifecycle_test shadow_test verifier_codec_test verifier_service_test
  model_config_test model_weights_test dflash_config_test ngram_proposer_test drafter_service_test
  request_flow_test request_codec_test coordinator_service_test
)
# Threads: what several threads share. Tests with a gRPC server of their own are not here: hand-overs inside the
# distribution's uninstrumented gRPC are invisible to the sanitizer, so it reports races between a call's last operation and
# the server's end that cannot happen. The flows, the step thread, the pool and the ranks have the same threads without gRPC.
tsan_tests=(
  thread_pool_test comm_test verifier_lifecycle_test shadow_test request_flow_test
)
