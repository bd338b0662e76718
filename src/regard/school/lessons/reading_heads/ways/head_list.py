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
    previous = seen.heads(by="previous")[0]
    first = seen.heads(by="sink")[0]
    return (previous.layer, previous.head), (first.layer, first.head)


if __name__ == "__main__":
    text = "My uncle had bought this little house before I was born."
    print(watch(text))
    print(reading_heads(text))
