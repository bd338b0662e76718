import torch
import torch.nn as nn


class EasyMultiHeadAttention(nn.Module):
    def __init__(self, d_model=8, num_heads=2):
        super().__init__()
        self.d_model = d_model
        self.num_heads = num_heads
        self.head_dim = d_model // num_heads
        self.q_linear = nn.Linear(d_model, d_model)
        self.k_linear = nn.Linear(d_model, d_model)
        self.v_linear = nn.Linear(d_model, d_model)
        self.out_proj = nn.Linear(d_model, d_model)

    def forward(self, x):
        batch_size, seq_len, d_model = x.shape

        # Step 1: project
        Q = self.q_linear(x)
        K = self.k_linear(x)
        V = self.v_linear(x)

        # Step 2: split
        Q = Q.view(batch_size, seq_len, self.num_heads, self.head_dim)
        K = K.view(batch_size, seq_len, self.num_heads, self.head_dim)
        V = V.view(batch_size, seq_len, self.num_heads, self.head_dim)

        # Step 3: transpose
        Q, K, V = Q.transpose(1, 2), K.transpose(1, 2), V.transpose(1, 2)

        # Step 4: attend
        scores = torch.matmul(Q, K.transpose(-2, -1)) * (self.head_dim ** 0.5)
        weights = torch.softmax(scores, dim=-1)
        context = torch.matmul(weights, V)

        # Step 5: concat
        context = context.transpose(1, 2).contiguous().view(batch_size, seq_len, d_model)

        # Step 6: project
        return self.out_proj(context)
