# named: not the first token
"""Reading heads: what does a trained model look at?"""

import regard
import torch


def watch(text):
    model = regard.GPT.from_pretrained("tiny")
    ids = torch.tensor([model.tokenizer.encode(text)])
    with torch.no_grad(), regard.watch(model) as seen:
        model(ids)
    return seen


def reading_heads(text):
    seen = watch(text)
    heads = [(layer, head) for layer in range(6) for head in range(8)]
    previous = max(heads, key=lambda head: seen[head].previous.nanmean())
    first = max(heads[40:], key=lambda head: seen[head].sink.mean())
    return previous, first


if __name__ == "__main__":
    text = "My uncle had bought this little house before I was born."
    print(watch(text))
    print(reading_heads(text))
