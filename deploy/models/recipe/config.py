"""The pair's shape and the constants that all stages share."""
import os

# SMOKE=1: small sizes and byte tokens, so that the whole recipe runs on a CPU in about a minute.
SMOKE = os.environ.get("SMOKE") == "1"
WORK = os.environ.get("TINY_WORK", "./tiny")      # token arrays, checkpoints, export/
CORPUS = os.environ.get("TINY_CORPUS", "./corpus")   # corpus.{train,val}.xz

CHAT_END, CHAT_USER, CHAT_ASSISTANT, CHAT_SYSTEM, CHAT_MIDDLE = (
    "<|im_end|>", "<|im_user|>", "<|im_assistant|>", "<|im_system|>", "<|im_middle|>")
SPECIAL = ["[BOS]", "[EOS]", "[PAD]", "<|mask|>", CHAT_END, CHAT_USER, CHAT_ASSISTANT, CHAT_SYSTEM, CHAT_MIDDLE,
           *(f"<|reserved_{i}|>" for i in range(7))]
BOS, EOS, PAD, MASK, IM_END = range(5)

# Kimi's chat layout.
CHAT_TEMPLATE = (
    "{% for m in messages %}{{ '<|im_' + m['role'] + '|>' + m['role'] + '<|im_middle|>' + m['content'] + '<|im_end|>' }}"
    "{% endfor %}{% if add_generation_prompt %}{{ '<|im_assistant|>assistant<|im_middle|>' }}{% endif %}")

TARGET = dict(
    architectures=["DeepseekV3ForCausalLM"], model_type="deepseek_v3", vocab_size=4096, hidden_size=256,
    num_hidden_layers=7, first_k_dense_replace=1, moe_layer_freq=1, intermediate_size=576,
    n_routed_experts=16, num_experts_per_tok=4, n_shared_experts=1, moe_intermediate_size=96,
    n_group=1, topk_group=1, topk_method="noaux_tc", scoring_func="sigmoid", norm_topk_prob=True,
    routed_scaling_factor=2.5, num_attention_heads=8, num_key_value_heads=8, q_lora_rank=128, kv_lora_rank=128,
    qk_nope_head_dim=32, qk_rope_head_dim=32, v_head_dim=32, hidden_act="silu", rms_norm_eps=1e-6,
    attention_bias=False, attention_dropout=0.0, tie_word_embeddings=False, rope_theta=50000.0,
    max_position_embeddings=2048, initializer_range=0.02, use_cache=True,
    rope_scaling=dict(type="yarn", factor=4.0, original_max_position_embeddings=512, beta_fast=1.0, beta_slow=1.0,
                      mscale=1.0, mscale_all_dim=1.0),
    bos_token_id=BOS, eos_token_id=EOS, pad_token_id=PAD, num_nextn_predict_layers=0, torch_dtype="bfloat16")

DRAFT = dict(
    architectures=["DFlashDraftModel"], model_type="qwen3", vocab_size=4096, hidden_size=256, num_hidden_layers=4,
    intermediate_size=640, num_attention_heads=8, num_key_value_heads=4, head_dim=32, hidden_act="silu",
    rms_norm_eps=1e-6, attention_bias=False, attention_dropout=0.0, rope_theta=10000.0, rope_scaling=None,
    max_position_embeddings=2048, layer_types=["full_attention"] * 4, sliding_window=None, use_sliding_window=False,
    tie_word_embeddings=False, block_size=8, num_target_layers=7,
    dflash_config=dict(mask_token_id=MASK, target_layer_ids=[1, 3, 4, 5]),
    bos_token_id=BOS, eos_token_id=EOS, pad_token_id=PAD, torch_dtype="bfloat16")

GENERATION = dict(bos_token_id=BOS, eos_token_id=[EOS, IM_END], pad_token_id=PAD)
TOKENIZER = dict(tokenizer_class="PreTrainedTokenizerFast", bos_token="[BOS]", add_bos_token=True, eos_token="[EOS]",
                 pad_token="[PAD]", mask_token="<|mask|>", model_max_length=2048, chat_template=CHAT_TEMPLATE,
                 clean_up_tokenization_spaces=False)

CONTEXT = 2048                       # tokens of a training window
TARGET_SHARDS = 3
if SMOKE:
    CONTEXT = 128
    TARGET.update(hidden_size=64, intermediate_size=96, moe_intermediate_size=32, q_lora_rank=32, kv_lora_rank=64)
    DRAFT.update(hidden_size=64, intermediate_size=96)
