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
    previous = torch.cat([one.previous[0].nanmean(-1) for one in seen])
    first = torch.cat([one.sink[0].mean(-1) for one in seen])  # 48 heads
    return divmod(int(previous.argmax()), 8), divmod(int(first.argmax()), 8)


if __name__ == "__main__":
    text = "My uncle had bought this little house before I was born."
    print(watch(text))
    print(reading_heads(text))
