"""Named rules of a sweep: arithmetic and comparisons over the keys of a case, parsed, never evaluated as Python."""

import ast
import operator

from mb.errors import UserError
from mb.exit_codes import ExitCode

_BINARY = {ast.Add: operator.add, ast.Sub: operator.sub, ast.Mult: operator.mul, ast.Div: operator.truediv,
           ast.FloorDiv: operator.floordiv, ast.Mod: operator.mod}
_COMPARE = {ast.Eq: operator.eq, ast.NotEq: operator.ne, ast.Lt: operator.lt, ast.LtE: operator.le,
            ast.Gt: operator.gt, ast.GtE: operator.ge, ast.In: lambda a, b: a in b,
            ast.NotIn: lambda a, b: a not in b}
ALLOWED = "numbers, texts, lists, keys, + - * / // %, comparisons, in, and, or, not"


def _refused(name, text, why):
    return UserError(f'constraint {name}: "{text}": {why}; write with {ALLOWED}', ExitCode.USAGE)


def holds(name, text, config):
    """Whether a case meets a rule. Throws UserError on what the rule may not say."""
    try:
        tree = ast.parse(text, mode="eval")
        return bool(_value(tree.body, config))
    except SyntaxError:
        raise _refused(name, text, "is no expression") from None
    except (KeyError, TypeError, ValueError, ZeroDivisionError) as error:
        raise _refused(name, text, error.args[0]) from None


def _value(node, config):
    match node:
        case ast.Constant(value=bool() | int() | float() | str() as value):
            return value
        case ast.Name(id=key):
            if key not in config:
                raise KeyError(f"no key {key} in the case, which has {', '.join(sorted(config))}")
            return config[key]
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item, config) for item in items]
        case ast.BinOp(left=left, op=op, right=right) if type(op) in _BINARY:
            return _BINARY[type(op)](*_numbers(_value(left, config), _value(right, config)))
        case ast.UnaryOp(op=ast.Not(), operand=operand):
            return not _value(operand, config)
        case ast.UnaryOp(op=ast.USub(), operand=operand):
            return -_numbers(_value(operand, config))[0]
        case ast.BoolOp(op=ast.And(), values=values):
            return all(_value(value, config) for value in values)
        case ast.BoolOp(op=ast.Or(), values=values):
            return any(_value(value, config) for value in values)
        case ast.Compare(left=left, ops=ops, comparators=rights) if all(type(op) in _COMPARE for op in ops):
            values = [_value(side, config) for side in (left, *rights)]
            return all(_COMPARE[type(op)](a, b) for op, a, b in zip(ops, values, values[1:]))
    raise ValueError(f"{type(node).__name__} is not allowed")


def _numbers(*values):
    """Only numbers: text times a number could fill the memory."""
    for value in values:
        if not isinstance(value, (int, float)):
            raise TypeError(f"{value!r} is no number")
    return values
