"""The models of `planted_models`, for PyTorch: the loss as a function of the input and the weights."""

from __future__ import annotations

from functools import partial
from importlib import import_module


def torch_models():
    """Return the models by name; each takes a plant, the labels, and then the tensors that move."""
    torch = import_module("torch")

    class Scaled(torch.autograd.Function):
        """An identity that multiplies one element of its gradient by 1 + size."""

        @staticmethod
        def forward(ctx, x, plant):
            ctx.plant = plant
            return x.clone()

        @staticmethod
        def backward(ctx, upstream):
            if ctx.plant is None:
                return upstream, None
            spoilt = upstream.clone()
            spoilt[tuple(ctx.plant["element"])] *= 1 + ctx.plant["size"]
            return spoilt, None

    def mlp(plant, labels, x, first, a, middle, b, last):  # noqa: PLR0913, PLR0917 (the weights)
        h = torch.tanh(x @ first + a)
        h = torch.tanh(h @ Scaled.apply(middle, plant) + b)
        return torch.nn.functional.cross_entropy(h @ last, labels)

    def lstm(plant, labels, x, kernel, recurrent, bias, last):  # noqa: PLR0913, PLR0917 (the weights)
        h = c = x.new_zeros(x.shape[0], recurrent.shape[0])
        recurrent = Scaled.apply(recurrent, plant)
        for step in range(x.shape[1]):
            into, forget, new, out = (x[:, step] @ kernel + h @ recurrent + bias).chunk(4, dim=-1)
            c = torch.sigmoid(forget) * c + torch.sigmoid(into) * torch.tanh(new)
            h = torch.sigmoid(out) * torch.tanh(c)
        return torch.nn.functional.cross_entropy(h @ last, labels)

    def transformer(plant, labels, x, query, key, value, output, up, down, last):  # noqa: PLR0913, PLR0917 (the weights)
        length = x.shape[1]
        mask = -1e9 * (1.0 - torch.tril(x.new_ones(length, length)))
        scores = (x @ Scaled.apply(query, plant)) @ (x @ key).transpose(-1, -2) / 4.0
        h = x + (torch.softmax(scores + mask, -1) @ (x @ value)) @ output
        h = h + torch.nn.functional.gelu(h @ up) @ down
        return torch.nn.functional.cross_entropy(h.mean(dim=1) @ last, labels)

    return {model.__name__: model for model in (mlp, lstm, transformer)}


def bound(models, torch, name, values, plant):
    """Return a model's loss as a function of its tensors, and these; the last values are the labels."""
    *moving, labels = values
    function = partial(models[name], plant, torch.tensor(labels, dtype=torch.int64))
    return function, [torch.tensor(value, dtype=torch.float64, requires_grad=True) for value in moving]
