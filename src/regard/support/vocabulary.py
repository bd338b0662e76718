"""What other people call our words: one vocabulary for check, adopt, watch and the errors of our own layers.

A list in plain words holds names that mean the same wherever they stand, as an attribute of any module or as an
argument. A list that ends in _TOO holds names that mean it only among the arguments of an attention layer: a module's
`h` or `size` may be anything, and a wrong match is worse than a missed one. In each list the more usual name is first.
"""

from __future__ import annotations

import re
import unicodedata

HEADS = (
    *("num_heads", "n_heads", "n_head", "heads", "nhead", "num_attention_heads", "number_of_heads", "nheads"),
    *("num_head", "nb_heads", "head_num", "heads_num", "num_attn_heads", "n_attn_heads", "head_count"),
    *("attention_heads", "query_heads", "q_heads", "num_query_heads", "n_query_heads", "num_q_heads", "n_q_heads"),
    *("cabezas", "n_cabezas", "num_cabezas", "cabecas", "n_cabecas", "num_cabecas", "tetes", "n_tetes", "nb_tetes"),
    *("koepfe", "n_koepfe", "anzahl_koepfe", "kopf_anzahl", "teste", "n_teste", "num_teste", "toushu", "tou_shu"),
    *("tou_shuliang", "atama_kazu", "atama_suu", "heddo_suu"),
)
HEADS_TOO = ("h", "H", "nh")
KV_HEADS = ("num_kv_heads", "n_kv_heads", "num_key_value_heads", "kv_heads", "n_kv_head", "n_kv", "kv_groups")
KV_HEADS_TOO = ("num_groups", "n_groups", "num_kv_groups", "groups", "num_query_groups")
HEAD_DIM = ("head_dim", "head_size", "d_head", "dim_head", "head_width", "d_k", "d_v", "d_q", "dk", "dv", "d_key")
HEAD_DIM_TOO = (
    *("hs", "d_kv", "n_per_head", "dim_per_head", "size_per_head", "attention_head_size", "head_features"),
    *("kopf_dim", "kopf_breite", "d_cabeza", "dim_cabeza", "d_cabeca", "dim_cabeca", "dim_tete", "taille_tete"),
    *("dim_testa", "tou_weidu", "tou_wei_du", "atama_jigen"),
)

WIDTH_IN = (
    *("d_in", "in_dim", "input_dim", "in_features", "dim_in", "d_input", "input_size", "emb_in", "in_channels"),
    *("query_dim", "input_width", "n_in", "context_dim", "kdim", "vdim", "key_size", "query_size", "value_size"),
    *("q_dim", "k_dim", "v_dim", "kv_dim", "dim_context", "in_size", "input_features", "n_inputs"),
    *("entrada", "dim_entrada", "entree", "dim_entree", "eingabe", "eingabe_dim", "ingresso", "dim_ingresso"),
    *("shuru_weidu", "shuru_wei_du", "nyuuryoku_jigen"),
)
WIDTH_OUT = (
    *("d_out", "out_dim", "output_dim", "out_features", "dim_out", "d_output", "output_size", "d_attn", "n_out"),
    *("out_channels", "out_size", "attention_dim", "attn_dim", "att_dim", "attention_size", "n_outputs"),
    *("salida", "dim_salida", "saida", "dim_saida", "sortie", "dim_sortie", "ausgabe", "ausgabe_dim", "uscita"),
    *("dim_uscita", "shuchu_weidu", "shuchu_wei_du", "shutsuryoku_jigen"),
)
WIDTH = (
    *("d_model", "embed_dim", "emb_dim", "n_embd", "hidden_size", "dim", "embed_size", "d_embed", "model_dim", "n_dim"),
    *("embedding_dim", "hidden_dim", "n_embed", "emb_size", "embedding_size", "hid_dim", "model_size", "dmodel"),
    *("dim_model", "n_hidden", "n_model", "embed_dims", "num_hiddens", "n_feat", "ninp", "nhid", "emsize", "n_state"),
    *("feature_dim", "feature_size", "n_features", "num_features", "n_units", "d_token", "node_dim", "hidden_channels"),
    *("d_modelo", "dim_modelo", "dimension", "d_modele", "dim_modele", "taille_modele", "breite", "merkmale"),
    *("dim_modello", "weidu", "wei_du", "moxing_weidu", "moxing_wei_du", "jigen", "moderu_jigen"),
)
WIDTH_TOO = (
    *("width", "channels", "d", "E", "k", "emb", "features", "hidden", "units", "size", "C", "D", "e", "ni", "nx"),
    *("embed", "feat", "obs_dim", "embedding", "n_channels", "num_channels", "d_emb"),
)

CONTEXT = (
    *("context_length", "block_size", "max_seq_len", "max_position_embeddings", "n_positions", "n_ctx", "max_len"),
    *("context_size", "ctx_len", "context_window", "max_length", "max_seq_length", "max_tokens", "context_len"),
    *("max_context_length", "max_seqlen"),
)
CONTEXT_TOO = (
    *("seq_len", "seq_length", "window", "T", "num_tokens", "ctx", "length", "max_steps", "max_positions", "max_pos"),
    *("max_laenge", "tam_max", "max_longitud", "longitud_max", "longueur_max", "max_longueur", "lunghezza_max"),
    *("max_changdu", "zuida_changdu", "saidai_nagasa"),
)

ATTENTION_DROPOUT = (  # of the attention weights, which a module may have beside another
    *("attn_dropout", "attention_dropout", "attn_drop", "attn_pdrop", "attention_probs_dropout_prob"),
    "attn_drop_rate",
)
DROPOUT = (
    *("dropout", "dropout_p", "drop_rate", "dropout_rate", "p_drop", *ATTENTION_DROPOUT, "resid_pdrop", "proj_drop"),
    *("resid_dropout", "embd_pdrop", "drop_p", "dropout_prob", "drop_prob", "pdrop"),
    *("p_dropout", "dropout_ratio", "hidden_dropout", "hidden_dropout_prob", "attention_dropout_rate", "p_drop_attn"),
    *("abandono", "taux_dropout", "dropout_ritsu", "diuqi"),
)
DROPOUT_TOO = ("p", "drop")
KEPT = (  # the share that dropout keeps
    *("keep_prob", "keep_probability", "keep_rate", "keep_ratio", "keep_p", "p_keep", "prob_keep", "keepprob", "keep"),
    *("attn_keep_prob", "attention_keep_prob", "dropout_keep_prob", "keep_prob_attn", "retain_prob", "retain_rate"),
)
BIAS = ("qkv_bias", "bias", "use_bias", "attention_bias", "attn_bias", "proj_bias", "out_bias", "sesgo", "biais")
CAUSAL = ("causal", "is_causal", "masked", "use_causal_mask", "use_mask", "is_decoder", "kausal", "causale")
CAUSAL_TOO = ("mask",)
ROTARY_BASE = ("rope_theta", "rope_base", "rotary_base", "rotary_emb_base", "rope_freq_base", "theta", "base")
VOCABULARY = ("vocab_size", "n_vocab", "vocabulary_size", "num_tokens_in_vocabulary")
LAYERS = ("num_layers", "n_layers", "n_layer", "num_hidden_layers", "depth", "layers", "N")
INNER_WIDTH = ("d_ff", "ff_dim", "mlp_dim", "dim_feedforward", "hidden_features", "d_hidden")

# Arguments of a call.
_EDGES = ("adj", "adjacency", "adj_matrix", "adjacency_matrix", "adj_mask")
MASK = ("mask", "attn_mask", "attention_mask", "causal_mask", "src_mask", "att_mask", "masks")
MASK_TOO = ("m", "attn_bias", "mascara", "masque", "maske", "maschera", "yanma", "yan_ma", "masuku", "hide", *_EDGES)
KEY_PADDING_OF_MODEL = ("src_key_padding_mask", "tgt_key_padding_mask")  # True = hidden, as in torch.nn
KEY_PADDING = "key_padding_mask"
IDS = ("input_ids", "ids", "idx", "tokens")
CACHES = (
    *("past_key_values", "past_key_value", "layer_past", "cache", "kv_cache", "past", "past_kv", "past_kvs"),
    *("past_keys_values", "prev_kv"),
)
STARTS = ("start_pos", "start", "start_index", "cache_position", "past_length", "offset", "pos_offset")
CACHES_TOO = ("kv", "memory_kv")
ENCODER_STATES = "encoder_hidden_states"
KEYS_AND_VALUES = ("k", "v", "key", "value", "keys", "values")
WEIGHTS_FLAGS = (
    *("need_weights", "return_weights", "return_attn", "return_attention", "output_attentions", "return_attn_weights"),
    *("return_attention_weights", "need_attn", "with_weights", "return_att", "return_probs"),
)
# Patterns of names, in lower case.
CONTEXT_ARGUMENT = (
    r"context[eo]?|contesto|kontext|ctx|mem|memor(y|ia)|memoire|enc|enc_\w+|encod\w+|src|source|kv|"
    r"kv_(input|states|x)|key_value\w*|x_?kv|cross_states"
)
CONTEXT_ARGUMENT_TOO = r"cond\w*|other|y|data|image\w*"  # where it is required
PADDING_ARGUMENT = r"pad|valid|^(seq_?|src_?|text_?)?len(gth)?s$|^(token|key)s?_mask$"
PADDING_OF_CONTEXT = r"^(context|ctx|memory|mem|enc\w*|data|src|source|cond\w*|image|kv)_\w*mask$"
LENGTHS_ARGUMENT = r"len(gth)?s?$"
KEY_SOURCES = (ENCODER_STATES, "key_value_states", "context")  # arguments that make it cross-attention

# Projections, in lower case; three names for queries, keys and values, or one for all three, and one for the output.
_WORDS = (
    *(("query", "key", "value"), ("queries", "keys", "values"), ("q", "k", "v"), ("vraag", "sleutel", "waarde")),
    *(("consulta", "clave", "valor"), ("consulta", "chave", "valor"), ("requete", "cle", "valeur")),
    *(("anfrage", "schluessel", "wert"), ("abfrage", "schluessel", "wert"), ("domanda", "chiave", "valore")),
    *(("zapytanie", "klucz", "wartosc"), ("zapros", "klyuch", "znachenie"), ("sorgu", "anahtar", "deger")),
)
_FORMS = (
    *("w_{}", "w{}", "{}", "{}_proj", "to_{}", "{}_linear", "{}_lin", "lin_{}", "linear_{}", "{}_layer", "fc_{}"),
    *("proj_{}", "w_{}s", "{}_weight", "weight_{}", "{}_w", "{}_projection", "{}_transform", "{}proj", "{}_mat"),
    *("{}_fc", "{}_weights", "weights_{}", "{}s", "to{}", "{}_matrix", "fc{}", "{}_map", "{}_net"),
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

# Words in the names of classes and functions that are attention, in several languages, in lower case without accents.
_ATTENTION = (
    *("attention", "attn", "attend", "mha", "mhsa", "sdp", "qkv", "gqa", "mqa", "atencion", "atencao", "atencio"),
    *("attenzione", "atentie", "aufmerksamkeit", "aandacht", "uppmarksamhet", "oppmerksomhet", "huomio", "uwaga"),
    *("pozornost", "figyelem", "dikkat", "perhatian", "chuy", "zhuyi", "внимание", "внимания", "увага", "προσοχη"),
    *("注意", "주의", "어텐션", "アテンション", "انتباه", "توجه", "ध्यान"),
)
_HEAD = (
    "head",
    "cabez",
    "cabeca",
    "kopf",
    "koepf",
    "tete",
    "testa",
    "glowa",
    "golov",
    "hoofd",
    "голов",
    "头",
    "頭",
    "헤드",
    "ヘッド",
)


def is_named_attention(name: str) -> bool:
    """Does the name of a class or function say that it is attention?

    >>> is_named_attention("MultiHeadAttention"), is_named_attention("CapaAtención"), is_named_attention("FeedForward")
    (True, True, False)
    """
    is_short = re.search(r"(?<![a-z])att(?![a-z])|Att(?![a-z])", name) is not None  # SelfAtt, and not Attribute
    return is_short or any(word in _plain(name) for word in map(_plain, _ATTENTION))


def is_named_head(name: str) -> bool:
    """Does the name speak of a head? That may be one of attention, or the last layer of a model."""
    return any(word in _plain(name) for word in map(_plain, _HEAD))


def _plain(name: str) -> str:
    """In lower case, without accents."""
    letters = unicodedata.normalize("NFKD", name.casefold())
    return "".join(letter for letter in letters if not unicodedata.combining(letter))
