import torch


def causal_weights(scores):  # (T, T), in float16, bfloat16 or float32; so are the weights
    future = torch.ones_like(scores, dtype=torch.bool).triu(1)
    scores = scores.masked_fill(future, -torch.inf)
    return scores.softmax(dim=-1)


if __name__ == "__main__":
    print(causal_weights(torch.zeros(3, 3, dtype=torch.float16)))
