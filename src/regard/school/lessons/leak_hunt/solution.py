import torch


def causal(x):
    return torch.ones(len(x), len(x), dtype=torch.bool).tril()


def A(x):
    return (x @ x.T).masked_fill(~causal(x), -torch.inf).softmax(-1) @ x


def B(x):
    return ((x @ x.T).softmax(-1) * causal(x)) @ x


def C(x):
    return A(x - x.mean(dim=0))


def D(x):
    return A(x / x.norm(dim=1, keepdim=True))


def E(x):
    return A(x.flip(0)).flip(0)


LAYERS = {"A": A, "B": B, "C": C, "D": D, "E": E}


def sensitivity(letter, x):  # x is (T, width)
    x = x.clone().requires_grad_()
    out = LAYERS[letter](x)
    grads = [torch.autograd.grad(o.sum(), x, retain_graph=True)[0] for o in out]
    rows = [grad.norm(dim=-1) for grad in grads]
    return torch.stack(rows)  # (T, T)


def leaking():
    return ["B", "C", "E"]  # such as ["A", "E"]


if __name__ == "__main__":
    torch.set_printoptions(precision=2, sci_mode=False)
    for letter in LAYERS:
        print(letter, sensitivity(letter, torch.randn(4, 3)).detach())
