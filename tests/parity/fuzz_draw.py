"""What random calls are drawn with: dtypes, shapes, layouts, values, and the table of generators."""

import functools
import math
import random

from engine import BF16, BOOL, F16, F32, F64, FLOATS, I16, I32, I64, I8, INF, INTS, NAN, U8, T

OPS = {}

# What is left out since it differs on purpose: docs/pytorch.md says so to users.
DIFFERENT = {
    "number beside 16 bits": "a tensor of wider floats without axes beside 16-bit ones is not rounded to 16 bits first",
    "trace": "PyTorch's gradient of the trace of a matrix with more rows than columns wraps around",
    "slopes at NaN": "PyTorch's gradients of piecewise functions at NaN depend on how many elements there are",
    "hardswish": "PyTorch's multiplies by 6 before it divides, and overflows",
    "margins": "triplet_margin_loss of PyTorch refuses a margin of 0",
    "fractions of integers": "products of integers refuse a fractional alpha or beta, which some of PyTorch cut",
    "remainders": "PyTorch's remainder is NaN where the quotient overflows; its slopes jump where the quotient is rounded",
    "slopes near the ends": "PyTorch's gradients of numbers near the largest overflow in between",
    "no freedom": "the gradient of a variance of no degrees of freedom: NaN, where PyTorch has infinities and numbers",
    "integers in atan2": "PyTorch's gradient of atan2 squares small integers in their own dtype",
    "gelu": "PyTorch's f32 and bf16 vectors give NaN for infinity",
    "crossed bounds": "clamp by bounds of which the lower is larger: PyTorch's slope at NaN and of equal bounds",
    "wrapped indices": "take_along_dim of PyTorch takes any index, by its remainder",
    "nothing left": "mirrored and replicated pads of PyTorch refuse to leave nothing of some axes",
    "cropped circles": "circular pads of PyTorch that wrap more than a crop has left copy what they wrote",
    "rounded products": "addmm, addmv and baddbmm of 16-bit floats round the product before they add; slopes by alpha round before",
    "larger operands": "isclose of PyTorch with equal_nan refuses a second operand of a larger shape",
    "one number": "PyTorch's mean of a row that is one number is the number",
    "one direction": "the slope of the cosine of rows of one number is what rounding leaves of 0",
    "windows of padding": "the slope of a max pool's window that lies in the padding goes to a neighbour, in PyTorch",
    "indices of nothing": "__getitem__ of PyTorch checks no index where the result has no elements",
    "large quotients": "floor_divide and div by a rounding mode of 16-bit floats round in PyTorch before they take whole numbers",
    "roots of negative numbers": "pow by a tensor has slopes in PyTorch where the power is NaN",
    "pools": "avg_pool3d of PyTorch refuses a window that is larger than the input and not than the padded input",
}

EXTENTS = [0, 1, 1, 1, 2, 2, 2, 3, 3, 3, 4, 4, 5, 5, 6, 7, 8, 9, 16, 17, 31, 33, 64]


def op(*names):
    """Registers the generator of ops; it takes the draw and the name."""
    def add(generate):
        for name in names:
            assert name not in OPS, name
            OPS[name] = functools.partial(generate, name=name)
        return generate
    return add


class Draw(random.Random):
    """Random choices, and the group that they go to."""

    def __new__(cls, seed, *_):
        return super().__new__(cls, seed)

    def __init__(self, seed, group, promised, most=1000):
        super().__init__(seed)
        self.group, self.promised, self.most = group, promised, most

    def case(self, name, *args, grad=None, **kwargs):
        """A call; a row of its own has the variant after a slash."""
        name, _, variant = name.partition("/")
        grad = self.chance(0.4) if grad is None else grad
        self.group.case(name, *args, variant=variant, grad=grad, fails=self.promised, **kwargs)

    def chance(self, p):
        return self.random() < p

    def float(self):
        return self.choices(FLOATS, [9, 4, 3, 3])[0]

    def wide(self):
        """A float that rounding to 16 bits does not blur."""
        return self.choice([F32, F32, F64])

    def whole(self):
        return self.choice(INTS)

    def number(self):
        """Any dtype but bool."""
        return self.float() if self.chance(0.75) else self.whole()

    def any(self):
        return self.choices([self.float(), self.whole(), BOOL], [7, 3, 1])[0]

    def extent(self, least=0):
        return max(least, self.choice(EXTENTS))

    def size(self, low, high):
        return self.randint(low, high)

    def shape(self, rank=None, least=0, most=1000):
        """Extents of at most about a thousand elements."""
        rank = self.choices([0, 1, 2, 3, 4, 5], [1, 4, 6, 5, 3, 1])[0] if rank is None else rank
        most = min(most, self.most)
        extents = []
        for _ in range(rank):
            extent = self.extent(least)
            while extent * math.prod(extents) > most:
                extent = max(extent // 2, 1)
            extents.append(extent)
        self.shuffle(extents)
        return extents

    def lay(self):
        return self.choices("ctsowe", [10, 2, 2, 1, 2, 1])[0]

    def still(self):
        """A layout that is written to in backward passes: no element twice."""
        return self.choices("ctsow", [10, 2, 2, 1, 2])[0]

    def twice(self):
        """Whether gradients are wanted, and what inputs are then without: DIFFERENT["slopes near the ends"]."""
        grad = self.chance(0.4)
        return grad, ENDS if grad else ()

    def broadcast(self, shape):
        """A shape that is broadcast with this one; sometimes one that can't be."""
        if self.chance(0.02):
            return self.shape(len(shape))
        other = [1 if self.chance(0.2) else extent for extent in shape]
        return other[self.randint(0, len(other)):] if self.chance(0.3) else other

    def axis(self, rank):
        """An axis, from either end; sometimes one that is not there."""
        if self.chance(0.01):
            return self.choice([rank, -rank - 1, rank + 3])
        return self.randrange(-rank, rank) if rank else self.choice([0, -1])

    def axes(self, rank):
        """Different axes."""
        some = self.sample(range(rank), self.randint(0, rank)) if rank else []
        return [axis - rank if self.chance(0.3) else axis for axis in some]

    def t(self, shape, dtype=None, range=None, odd=0.0, lay=None, without=(), **kwargs):
        """A tensor; `odd` is the chance of NaN, infinities and the like among its elements."""
        lay = self.lay() if lay is None else lay
        if dtype is not None and not dtype.is_floating_point or not self.chance(odd):
            return T(*shape, dtype=dtype, range=range, lay=lay, **kwargs)
        low, high = range or (-2, 2)
        some = [self.uniform(low, high) for _ in "123456"]
        strange = [NAN, INF, -INF, 0.0, -0.0, 1.0, -1.0, *HUGE.get(dtype, [])]
        strange = [v for v in strange if not any(v is w or v == w for w in without)]
        return T(*shape, dtype=dtype, of=some + self.sample(strange, 4), lay=lay, **kwargs)

    def plain(self):
        """A number."""
        return self.choice([0, 1, 2, 3, -1, 0.5, -0.5, 2.5, self.uniform(-3, 3)])


ENDS = (3e38, -1e300, 6e4)
# What is near the ends of a dtype, and its numbers with fewer digits.
HUGE = {
    F32: [1e-40, -1e-40, 1e20, -1e20, 3e38], F64: [1e-310, 1e30, -1e300], BF16: [1e-39, 1e20, -1e20],
    F16: [6e-8, -6e-8, 6e4],
}
