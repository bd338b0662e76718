# named: masked after the softmax
import torch


def causal_weights(scores):  # (T, T), in float16, bfloat16 or float32
    future = torch.ones_like(scores, dtype=torch.bool).triu(1)
    return scores.softmax(dim=-1).masked_fill(future, 0.0)


if __name__ == "__main__":
    print(causal_weights(torch.zeros(3, 3, dtype=torch.float16)))
