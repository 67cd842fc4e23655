"""Prefix sharing: rows with a common prefix become a tree of tokens, so the common prefix is
computed only once.

Trees are stored in preorder: the descendants of a token follow the token without gaps. For each
token, the index of its last descendant, plus 1, is stored. The attention mask is computed from
these indices. The position of a token is its depth in the tree. The outputs are copied back to the
original rows, so the loss is computed on the same rows as without prefix sharing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Any, Self

import numpy as np
import torch
from torch import Tensor
from transformers import PreTrainedConfig

SMALL = 2048
"""For trees with at most this number of tokens, `build_trees` ignores the cost of attention."""


@dataclass(frozen=True)
class Tree:
    """A tree of rows with a common prefix.

    `rows` has the indices of the rows. For each row, `branches` has the indices of the row's tokens
    in the tree. If the rows 4 and 7 have the tokens [1, 87, 4, 2] and [1, 87, 5], the tree is
    `Tree((4, 7), ([0, 1, 2, 3], [0, 1, 4]))`.
    """

    rows: tuple[int, ...]
    branches: tuple[np.ndarray, ...]

    @property
    def size(self) -> int:
        """The number of tokens in the tree."""
        return int(self.branches[-1][-1]) + 1


@dataclass(frozen=True)
class PrefixTrees:
    """Trees of tokens in preorder.

    N is the size of the largest tree, and T the length of the longest row. Smaller trees and
    shorter rows are padded on the right.

    The two rows [1, 87, 4, 2] and [1, 87, 5] form one tree:

    tokens  [[1, 87, 4, 2, 5]]            int64 [trees, N]
    depths  [[0, 1, 2, 3, 2]]             int64 [trees, N], the position of a token in its rows
    ends    [[5, 5, 4, 4, 5]]             int64 [trees, N], the index of a token's last descendant,
                                          plus 1
    places  [[0, 1, 2, 3], [0, 1, 4, 0]]  int64 [rows, T], for each token of a row, its index in the
                                          flattened `tokens`
    """

    tokens: Tensor
    depths: Tensor
    ends: Tensor
    places: Tensor

    @property
    def attends(self) -> Tensor:
        """The attention mask, bool [trees, N, N]: a token attends to itself and its ancestors."""
        # in preorder, the descendants of a token are exactly the later tokens with an index below
        # the token's entry in `ends`
        node = torch.arange(self.tokens.shape[1], device=self.tokens.device)
        return (node <= node.unsqueeze(1)) & (node.unsqueeze(1) < self.ends.unsqueeze(1))

    def within(self, window: int) -> Tensor:
        """Return the attention mask for a sliding window, bool [trees, N, N].

        A token attends to itself and to its nearest `window` - 1 ancestors.
        """
        # depths are compared and not indices, because tokens of other branches may be between a
        # token and its ancestors
        distance = self.depths.unsqueeze(2) - self.depths.unsqueeze(1)
        return self.attends & (distance < window)

    def inputs(self, config: PreTrainedConfig, dtype: torch.dtype) -> dict[str, Any]:
        """Return the arguments for calling a causal language model on the trees.

        `config` is the model's config. The argument `attention_mask` is usually a single mask. If
        `config.layer_types` contains "sliding_attention", `attention_mask` is a dict with one mask
        for "full_attention" and one mask for "sliding_attention".
        """
        # in models without `layer_types`, a sliding window applies to every layer
        window = getattr(config, "sliding_window", None)
        kinds = set(getattr(config, "layer_types", None) or ())
        masks: Any = _additive(self.attends if kinds or not window else self.within(window), dtype)
        if "sliding_attention" in kinds:
            assert window
            masks = {
                "full_attention": masks,
                "sliding_attention": _additive(self.within(window), dtype),
            }
        return {"input_ids": self.tokens, "position_ids": self.depths, "attention_mask": masks}

    def to(self, device: torch.device | str) -> Self:
        """Return a copy of the trees on a device."""
        return type(self)(*(getattr(self, one.name).to(device) for one in fields(self)))


def _additive(attends: Tensor, dtype: torch.dtype) -> Tensor:
    """Convert a boolean mask to an additive mask [trees, 1, N, N].

    The entry for two tokens is 0 if the first token attends to the second token. Otherwise it is
    the smallest number of the dtype.
    """
    # not -inf, because the softmax of a row with only -inf is nan
    mask = torch.zeros((), dtype=dtype, device=attends.device).expand(attends.shape)
    return mask.masked_fill(~attends, torch.finfo(dtype).min).unsqueeze(1)


def build_trees(tokens: Tensor, lengths: Tensor, limit: int) -> list[Tree]:
    """Build trees from rows of tokens [rows, T], which are padded on the right.

    A row is added to a tree if all three conditions are true:

    - At least half of the row's tokens are a prefix that the tree contains.
    - The tree with the row has at most `limit` tokens.
    - The tree with the row is small (at most `SMALL` tokens), or attention over it is not more
      expensive than attention over the tree and the row separately.

    A row that is added to no tree begins a new tree, whatever its length.
    """
    rows = [row[:length] for row, length in zip(tokens.tolist(), lengths.tolist(), strict=True)]
    trees: list[Tree] = []
    before: list[int] = []
    # in sorted order, a row has its longest common prefix with the last branch of the last tree
    for index in sorted(range(len(rows)), key=rows.__getitem__):
        row, size = rows[index], trees[-1].size if trees else 0
        pairs = enumerate(zip(before, row, strict=False))
        shorter = min(len(before), len(row))
        common = next((place for place, (one, other) in pairs if one != other), shorter)
        before, added = row, len(row) - common
        # masked attention over a tree costs (size + added)^2, separate rows cost the sum of their
        # squares
        cheap = size + added <= SMALL or (size + added) ** 2 <= size**2 + len(row) ** 2
        # if a row adds more tokens than it has in common with the tree, a tree saves little work,
        # but needs an attention mask
        if common >= added and size + added <= limit and cheap:
            branch = np.concatenate(
                [trees[-1].branches[-1][:common], np.arange(size, size + added)]
            )
            trees[-1] = Tree((*trees[-1].rows, index), (*trees[-1].branches, branch))
        else:
            trees.append(Tree((index,), (np.arange(len(row)),)))
    return trees


def flatten(tokens: Tensor, trees: Sequence[Tree]) -> PrefixTrees:
    """Convert trees to tensors.

    `tokens` [rows, T] has the tokens of each row: first the rows of the first tree, then the rows
    of the second tree, and so on.
    """
    width = max(tree.size for tree in trees)
    rows = tokens.numpy()
    merged, depths = np.zeros((2, len(trees), width), np.int64)
    # padding attends to itself, because a softmax needs at least one term
    ends = np.tile(np.arange(1, width + 1), (len(trees), 1))
    places = np.zeros_like(rows)
    branches = [(number, branch) for number, tree in enumerate(trees) for branch in tree.branches]
    for row, (number, branch) in enumerate(branches):
        merged[number, branch] = rows[row, : len(branch)]
        depths[number, branch] = np.arange(len(branch))
        # branches are in preorder, so the last branch that contains a token sets its final end
        ends[number, branch] = branch[-1] + 1
        places[row, : len(branch)] = branch + number * width
    return PrefixTrees(*map(torch.from_numpy, (merged, depths, ends, places)))
