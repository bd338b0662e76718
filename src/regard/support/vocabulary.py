"""What other people call our words: one vocabulary for check, adopt, watch and the errors of our own layers.

A list in plain words holds names that mean the same wherever they stand, as an attribute of any module or as an
argument. A list that ends in _TOO holds names that mean it only among the arguments of an attention layer: a module's
`h` or `size` may be anything, and a wrong match is worse than a missed one. In each list the more usual name is first.
"""

from __future__ import annotations

HEADS = (
    *("num_heads", "n_heads", "n_head", "heads", "nhead", "num_attention_heads", "number_of_heads", "nheads"),
    *("num_head", "nb_heads", "head_num", "heads_num", "num_attn_heads", "n_attn_heads", "head_count"),
    "attention_heads",
)
HEADS_TOO = ("h", "H")
KV_HEADS = ("num_kv_heads", "n_kv_heads", "num_key_value_heads", "kv_heads", "n_kv_head", "n_kv")
KV_HEADS_TOO = ("num_groups", "n_groups", "num_kv_groups", "groups", "num_query_groups")
HEAD_DIM = ("head_dim", "head_size", "d_head", "dim_head", "head_width", "d_k", "d_v", "d_q", "dk", "dv", "d_key")

WIDTH_IN = (
    *("d_in", "in_dim", "input_dim", "in_features", "dim_in", "d_input", "input_size", "emb_in", "in_channels"),
    *("query_dim", "input_width", "n_in", "context_dim", "kdim", "vdim", "key_size", "query_size", "value_size"),
)
WIDTH_OUT = ("d_out", "out_dim", "output_dim", "out_features", "dim_out", "d_output", "output_size", "d_attn", "n_out")
WIDTH = (
    *("d_model", "embed_dim", "emb_dim", "n_embd", "hidden_size", "dim", "embed_size", "d_embed", "model_dim", "n_dim"),
    *("embedding_dim", "hidden_dim", "n_embed", "emb_size", "embedding_size", "hid_dim", "model_size", "dmodel"),
    *("dim_model", "n_hidden", "n_model", "embed_dims"),
)
WIDTH_TOO = ("width", "channels", "d", "E", "k", "emb", "features", "hidden", "units", "size")

CONTEXT = (
    *("context_length", "block_size", "max_seq_len", "max_position_embeddings", "n_positions", "n_ctx", "max_len"),
    *("context_size", "ctx_len", "context_window", "max_length", "max_seq_length", "max_tokens", "context_len"),
    *("max_context_length", "max_seqlen"),
)
CONTEXT_TOO = ("seq_len", "seq_length", "window", "T", "num_tokens")

ATTENTION_DROPOUT = (  # of the attention weights, which a module may have beside another
    *("attn_dropout", "attention_dropout", "attn_drop", "attn_pdrop", "attention_probs_dropout_prob"),
    "attn_drop_rate",
)
DROPOUT = (
    *("dropout", "dropout_p", "drop_rate", "dropout_rate", "p_drop", *ATTENTION_DROPOUT, "resid_pdrop", "proj_drop"),
    *("resid_dropout", "embd_pdrop", "drop_p", "dropout_prob", "drop_prob", "pdrop"),
)
DROPOUT_TOO = ("p", "drop")
BIAS = ("qkv_bias", "bias", "use_bias", "attention_bias", "attn_bias", "proj_bias", "out_bias")
CAUSAL = ("causal", "is_causal", "masked", "use_causal_mask", "use_mask", "is_decoder")
CAUSAL_TOO = ("mask",)
VOCABULARY = ("vocab_size", "n_vocab", "vocabulary_size", "num_tokens_in_vocabulary")
LAYERS = ("num_layers", "n_layers", "n_layer", "num_hidden_layers", "depth", "layers", "N")
INNER_WIDTH = ("d_ff", "ff_dim", "mlp_dim", "dim_feedforward", "hidden_features", "d_hidden")

# Arguments of a call.
MASK = ("mask", "attn_mask", "attention_mask", "causal_mask", "src_mask", "att_mask", "masks")
MASK_TOO = ("m", "attn_bias")
KEY_PADDING_OF_MODEL = ("src_key_padding_mask", "tgt_key_padding_mask")  # True = hidden, as in torch.nn
KEY_PADDING = "key_padding_mask"
IDS = ("input_ids", "ids", "idx", "tokens")
CACHES = (
    *("past_key_values", "past_key_value", "layer_past", "cache", "kv_cache", "past", "past_kv", "past_kvs"),
    *("past_keys_values", "prev_kv"),
)
CACHES_TOO = ("kv", "memory_kv")
ENCODER_STATES = "encoder_hidden_states"
KEY_SOURCES = (ENCODER_STATES, "key_value_states", "context")  # arguments that make it cross-attention

# Projections, in lower case; three names for queries, keys and values, or one for all three, and one for the output.
_WORDS = (("query", "key", "value"), ("queries", "keys", "values"), ("q", "k", "v"))
_FORMS = (
    *("w_{}", "w{}", "{}", "{}_proj", "to_{}", "{}_linear", "{}_lin", "lin_{}", "linear_{}", "{}_layer", "fc_{}"),
    *("proj_{}", "w_{}s", "{}_weight", "weight_{}", "{}_w", "{}_projection", "{}_transform", "{}proj", "{}_mat"),
    *("{}_fc", "{}_weights", "weights_{}", "{}s", "{}_matrix", "fc{}", "{}_map", "{}_net"),
)
PROJECTIONS = tuple(tuple(form.format(word) for word in words) for form in _FORMS for words in _WORDS)
PACKED_PROJECTIONS = (
    *("qkv_proj", "qkv", "in_proj", "c_attn", "to_qkv", "w_qkv", "wqkv", "query_key_value", "attn_proj", "qkv_linear"),
    *("qkv_layer", "qkv_projection", "proj_qkv", "linear_qkv", "fc_qkv"),
)
PACKED_PROJECTIONS_TOO = ("kqv", "w_kqv", "attn", "attention")  # in another order, or the whole of a layer
OUT_PROJECTIONS = (
    *("out_proj", "o_proj", "w_o", "to_out", "to_out.0", "c_proj", "proj", "wo", "output_proj", "out", "fc_out"),
    *("o_linear", "out_linear", "w_out", "wout", "fc_o", "lin_out", "projection", "proj_out", "out_projection"),
    *("output_projection", "linear_out", "output_linear", "unifyheads", "w_0"),
)
OUT_PROJECTIONS_TOO = ("fc", "output", "dense", "linear", "final", "unify", "o")
