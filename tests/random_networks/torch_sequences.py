"""Layers of sequences in PyTorch, computed from their documented formulas, step by step. x: rows x
steps x channels, with zeros after the ends of sequences; results have them, too."""

import torch
from torch.nn import functional


def valid(x, lengths):
    """rows x steps x 1: whether a step is one of the sequence."""
    return (torch.arange(x.shape[1])[None, :] < lengths[:, None])[:, :, None]


def packed(x, lengths, compute):
    """What `compute` makes of the valid steps as observations, one after another."""
    rows = valid(x, lengths)[:, :, 0]
    if not bool(rows.any()):
        return torch.zeros_like(x)
    return torch.zeros_like(x).index_put((rows,), compute(x[rows]))


def cut(y, lengths):
    return torch.where(valid(y, lengths), y, torch.zeros_like(y)) if y.dim() == 3 else y


def turned(x, lengths):
    """Each sequence from its last step to the first."""
    t = torch.arange(x.shape[1])[None, :].repeat(x.shape[0], 1)
    at = torch.where(t < lengths[:, None], lengths[:, None] - 1 - t, t)
    return x.gather(1, at[:, :, None].expand(x.shape))


def cell(layer, x, h, c, p):
    """The states after a step. p(name): a parameter."""
    w, u, b = p("weights"), p("recurrent_weights"), p("bias")
    if layer["type"] == "rnn":
        y = functional.linear(x, w, b) + functional.linear(h, u)
        return (torch.relu(y) if layer["activation"] == "relu" else torch.tanh(y)), c
    if layer["type"] == "lstm":
        i, f, g, o = (functional.linear(x, w, b) + functional.linear(h, u)).chunk(4, 1)
        c = torch.sigmoid(f) * c + torch.sigmoid(i) * torch.tanh(g)
        return torch.sigmoid(o) * torch.tanh(c), c
    units, d = layer["units"], p("recurrent_bias")
    ours = functional.linear(x, w, b)
    first = functional.linear(h, u[:2 * units], d[:2 * units])
    r, z = torch.sigmoid(ours[:, :2 * units] + first).chunk(2, 1)
    last_u, last_d = u[2 * units:], d[2 * units:]
    if layer["reset_after"]:
        product = r * functional.linear(h, last_u, last_d)
    else:
        product = functional.linear(r * h, last_u, last_d)
    n = torch.tanh(ours[:, 2 * units:] + product)
    return (1 - z) * n + z * h, c


def one_direction(layer, x, lengths, p):
    h = c = x.new_zeros(x.shape[0], layer["units"])
    steps = []
    for t in range(x.shape[1]):
        runs = (t < lengths)[:, None]
        new_h, new_c = cell(layer, x[:, t], h, c, p)
        h, c = torch.where(runs, new_h, h), torch.where(runs, new_c, c)
        steps.append(h)
    return torch.stack(steps, 1), h


def recurrent(layer, x, lengths, p):
    y, last = one_direction(layer, x, lengths, p)
    if layer["bidirectional"]:
        back, last_back = one_direction(layer, turned(x, lengths), lengths,
                                        lambda name: p("reverse_" + name))
        y = torch.cat([y, turned(back, lengths)], 2)
        last = torch.cat([last, last_back], 1)
    return last if layer["output"] == "last" else y


def attention(layer, x, lengths, p, prefix=""):
    q, k, v = functional.linear(x, p(prefix + "in_weights"), p(prefix + "in_bias")).chunk(3, 2)
    heads, rows = layer["heads"], []
    for row, length in enumerate(lengths.tolist()):
        one = x.new_zeros(x.shape[1], x.shape[2])
        if length > 0:
            parts = [m[row, :length].reshape(length, heads, -1).transpose(0, 1) for m in (q, k, v)]
            scores = parts[0] @ parts[1].transpose(1, 2) / parts[0].shape[2] ** 0.5
            if layer["causal"]:
                later = torch.ones(length, length, dtype=torch.bool).triu(1)
                scores = scores.masked_fill(later, -float("inf"))
            # Divided after the product, as kernels that go key by key do: where one key has all
            # the weight, gradients of its score are differences of equal numbers.
            weights = torch.exp(scores - scores.detach().amax(2, keepdim=True))
            y = (weights @ parts[2]) / weights.sum(2, keepdim=True)
            y = y.transpose(0, 1).reshape(length, -1)
            one = torch.cat([y, one[length:]])
        rows.append(one)
    return functional.linear(torch.stack(rows), p(prefix + "out_weights"), p(prefix + "out_bias"))


def transformer(layer, x, lengths, p):
    def normalized(name, x):
        return functional.layer_norm(x, x.shape[2:], p(name + "_scale"), p(name + "_shift"),
                                     layer["epsilon"])

    x = x + attention(layer, normalized("attention_norm", x), lengths, p, "attention_")
    y = functional.linear(normalized("feed_forward_norm", x), p("expand_weights"), p("expand_bias"))
    return x + functional.linear(functional.gelu(y), p("contract_weights"), p("contract_bias"))


def convolution(layer, x, p):
    span = layer["dilation"] * (layer["kernel"] - 1)
    before = span if layer["causal"] else span // 2
    padded = functional.pad(x.transpose(1, 2), (before, span - before))
    return functional.conv1d(padded, p("weights"), p("bias"),
                             dilation=layer["dilation"]).transpose(1, 2)


def of_sequences(layer, inputs, lengths, p):
    """The result of a layer that takes sequences, or None for one that is applied to each step as
    to a vector."""
    kind, x = layer["type"], inputs[0]
    if kind == "embedding":
        return functional.embedding(x.long(), p("weights"))
    if x.dim() != 3:
        return None
    if kind in ("lstm", "gru", "rnn"):
        return recurrent(layer, x, lengths, p)
    if kind == "self_attention":
        return attention(layer, x, lengths, p)
    if kind == "transformer_block":
        return transformer(layer, x, lengths, p)
    if kind == "convolution1d":
        return convolution(layer, x, p)
    if kind == "position_embedding":
        return x + p("weights")[:x.shape[1]]
    if kind == "layer_scale":
        return x * p("scale")
    if kind == "rms_normalization":
        return x / torch.sqrt((x * x).mean(2, keepdim=True) + layer["epsilon"]) * p("scale")
    if kind in ("layer_normalization", "channel_normalization"):
        return functional.layer_norm(x, x.shape[2:], p("scale"), p("shift"), layer["epsilon"])
    if kind == "fully_connected":
        return functional.linear(x, p("weights"), p("bias"))
    if kind == "softmax":
        return torch.softmax(x, 2)
    if kind == "concatenation":
        return torch.cat(inputs, 2)
    if kind == "last_step":
        last = x.gather(1, (lengths - 1).clamp(min=0)[:, None, None].expand(-1, 1, x.shape[2]))
        return torch.where((lengths > 0)[:, None], last[:, 0], torch.zeros_like(last[:, 0]))
    if kind == "global_average_pooling1d":
        return x.sum(1) / lengths.clamp(min=1)[:, None].to(x.dtype)
    return None
