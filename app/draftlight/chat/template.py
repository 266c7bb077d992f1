"""A model's own chat template, run in a sandbox: messages in, text out. Knows no tokens.

The template is a program inside a file from the internet. It can reach no Python internals, change nothing, and is
stopped when it takes too much time or writes too much.
"""

import json
import re
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence, Sized
from contextlib import contextmanager
from datetime import datetime
from functools import lru_cache
from typing import Any, NoReturn, TypeAlias

from jinja2 import Template, filters, nodes, pass_eval_context
from jinja2.exceptions import SecurityError, TemplateError
from jinja2.ext import Extension
from jinja2.parser import Parser
from jinja2.runtime import Context
from jinja2.sandbox import ImmutableSandboxedEnvironment
from jinja2.visitor import NodeTransformer

from draftlight.errors import UserError

CPU_SECONDS = 3.0
LONGEST_TEXT = 32_000_000  # characters; a prompt for the longest contexts has a tenth of that
LONGEST_LIST = 1_000_000
LONGEST_NUMBER = 4_096  # bits
CACHED_TEMPLATES = 16
WITHOUT_END = "it makes a text or a list without end"

WIDEST_INDENT = 64
WIDE_FORMAT = re.compile(r"%(\([^)]*\))?[^%a-zA-Z]*(\d{4}|\*)|\{[^{}]*(\d{4}|\{)")  # four digits wide, or computed
PADDING_METHODS = frozenset({"center", "ljust", "rjust", "zfill", "expandtabs", "translate"})
NEEDLESS_FILTERS = ("center", "wordwrap", "batch", "slice", "xmlattr", "urlize", "pprint", "random")
NEEDLESS_GLOBALS = ("lipsum", "cycler", "joiner")

Value: TypeAlias = Any  # whatever a template computes with


class BadChatTemplate(UserError):
    """The chat template in the model's file does not work, or refuses the conversation."""


class ChatTemplate:
    """A compiled chat template."""

    def __init__(self, source: str, cpu_seconds: float = CPU_SECONDS) -> None:
        """Compile; `cpu_seconds` is what one rendering may take. Raises BadChatTemplate where it cannot be compiled."""
        self._sandbox = _Sandbox(cpu_seconds)
        with _failures_told():
            self._template = self._sandbox.compiled(source)

    def render(self, messages: Sequence[Mapping[str, str]], bos_text: str = "", eos_text: str = "") -> str:
        """Return the text of the prompt up to where the answer begins. Messages have "role" and "content".

        Raises BadChatTemplate.
        """
        with _failures_told():
            return self._sandbox.rendered(
                self._template,
                messages=[dict(message) for message in messages],
                add_generation_prompt=True,
                bos_token=bos_text,
                eos_token=eos_text,
                tools=None,
                documents=None,
            )

    def shows_system_message(self) -> bool:
        """Tell whether the template writes a system message, instead of refusing or forgetting it."""
        probe = "A probe of the system message"
        try:
            return probe in self.render([{"role": "system", "content": probe}, {"role": "user", "content": "Hello"}])
        except BadChatTemplate:
            return False


@lru_cache(maxsize=CACHED_TEMPLATES)
def compiled_template(source: str) -> tuple[ChatTemplate, bool]:
    """Return the compiled template, and whether it shows a system message. Raises BadChatTemplate."""
    template = ChatTemplate(source)
    return template, template.shows_system_message()


class _Refused(TemplateError):
    """The template itself says that it cannot serve this conversation."""


@contextmanager
def _failures_told() -> Iterator[None]:
    remedy = "Choose another file of this model, or another model."
    try:
        yield
    except _Refused as error:
        raise BadChatTemplate(
            f"The model's chat template refuses this conversation ({error.message}).", remedy
        ) from error
    except Exception as error:  # a foreign program may fail in any way there is
        raise BadChatTemplate(
            f"The model's chat template does not work ({error or type(error).__name__}).", remedy
        ) from error


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja as chat templates expect it. Every loop step and call looks at the clock; what could swell is measured."""

    intercepted_binops = frozenset({"+", "*", "**", "%"})

    def __init__(self, cpu_seconds: float) -> None:
        super().__init__(
            trim_blocks=True,
            lstrip_blocks=True,
            extensions=["jinja2.ext.loopcontrols", _GenerationTag],
            finalize=_bounded,
        )
        self._cpu_seconds = cpu_seconds
        self._deadline = 0.0
        for name in NEEDLESS_FILTERS:
            del self.filters[name]
        for name in NEEDLESS_GLOBALS:
            del self.globals[name]
        self.filters |= {"replace": _replace_filter, "join": _join_filter, "format": _format_filter}
        self.filters |= {"indent": _indent_filter}
        self.filters |= {"tojson": _to_json, "counted": self._counted, "joint": _joint}
        self.globals |= {"raise_exception": _raise_exception, "strftime_now": _strftime_now}

    def compiled(self, source: str) -> Template:
        tree = _Metering(self).visit(self.parse(source))
        return self.from_string(tree)

    def rendered(self, template: Template, **values: Value) -> str:
        self._deadline = time.thread_time() + self._cpu_seconds
        parts, length = [], 0
        for part in template.generate(**values):
            length += len(part)
            if length > LONGEST_TEXT:
                raise SecurityError(WITHOUT_END)
            parts.append(part)
        return "".join(parts)

    def is_safe_attribute(self, obj: Value, attr: str, value: Value) -> bool:
        padding = isinstance(obj, str) and attr in PADDING_METHODS
        return not padding and super().is_safe_attribute(obj, attr, value)

    def wrap_str_format(self, value: Value) -> Callable[..., str] | None:
        wrapped = super().wrap_str_format(value)
        if wrapped and WIDE_FORMAT.search(value.__self__):
            raise SecurityError(WITHOUT_END)
        return wrapped

    def call(self, context: Context, obj: Value, /, *args: Value, **kwargs: Value) -> Value:
        self._look_at_the_clock()
        text, name = getattr(obj, "__self__", None), getattr(obj, "__name__", "")
        if isinstance(text, str) and name == "replace":
            _check_replacement(text, *args)
        if isinstance(text, str) and name == "join" and args:
            args = (_check_join(args[0], text),)
        return _bounded(super().call(context, obj, *args, **kwargs))

    def call_binop(self, context: Context, operator: str, left: Value, right: Value) -> Value:
        if operator == "%" and isinstance(left, str) and WIDE_FORMAT.search(left):
            raise SecurityError(WITHOUT_END)
        if operator == "**":
            n_bits = _bits(left) * (right if isinstance(right, int) else 1)
        else:
            n_bits = _bits(left) + _bits(right)
        times = left if isinstance(left, int) else right if isinstance(right, int) else 1
        swelling = (left, right) if operator == "*" else ()
        too_long = any(isinstance(side, Sized) and len(side) * times > _limit(side) for side in swelling)
        if n_bits > LONGEST_NUMBER or too_long:
            raise SecurityError("it computes something too large")
        return _bounded(super().call_binop(context, operator, left, right))

    def _look_at_the_clock(self) -> None:
        if time.thread_time() > self._deadline:
            raise SecurityError(f"it ran for more than {self._cpu_seconds:g} seconds")

    def _counted(self, items: Iterable[Value]) -> "_CountedLoop":
        return _CountedLoop(items, self._look_at_the_clock)


class _CountedLoop:
    """What a for loop runs over; each step looks at the clock."""

    def __init__(self, items: Iterable[Value], tick: Callable[[], None]) -> None:
        self._items = items
        self._tick = tick

    def __iter__(self) -> Iterator[Value]:
        for item in self._items:
            self._tick()
            yield item

    def __len__(self) -> int:
        if isinstance(self._items, Sized):
            return len(self._items)
        raise TypeError("it asks for the length of something without one")


class _Metering(NodeTransformer):
    """Rewrites a template so that the sandbox sees its loops and its joins with `~`."""

    def __init__(self, sandbox: _Sandbox) -> None:
        self._sandbox = sandbox

    def visit_For(self, node: nodes.For) -> nodes.Node:  # noqa: N802 - named by Jinja
        self.generic_visit(node)
        node.iter = self._filter("counted", node.iter)
        return node

    def visit_Concat(self, node: nodes.Concat) -> nodes.Node:  # noqa: N802 - named by Jinja
        self.generic_visit(node)
        return self._filter("joint", nodes.List(node.nodes, lineno=node.lineno))

    def _filter(self, name: str, node: nodes.Node) -> nodes.Filter:
        made = nodes.Filter(node, name, [], [], None, None, lineno=node.lineno)
        made.set_environment(self._sandbox)
        return made


class _GenerationTag(Extension):
    """`{% generation %}`: marks an answer for those who train models; here it is only what it encloses."""

    tags = {"generation"}  # noqa: RUF012 - declared so by Jinja

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _limit(value: Value) -> int:
    return LONGEST_TEXT if isinstance(value, str) else LONGEST_LIST


def _bits(value: Value) -> int:
    return value.bit_length() if isinstance(value, int) else 0


def _bounded(value: Value) -> Value:
    """Return the value, if it is not too long."""
    if isinstance(value, str | list | tuple) and len(value) > _limit(value):
        raise SecurityError(WITHOUT_END)
    return value


def _joint(parts: Sequence[Value]) -> str:
    texts = [str(part) for part in parts]
    if sum(map(len, texts)) > LONGEST_TEXT:
        raise SecurityError(WITHOUT_END)
    return "".join(texts)


def _check_replacement(text: str, old: str, new: str, *_: Value) -> None:
    if (text.count(old) if old else len(text) + 1) * len(new) > LONGEST_TEXT:
        raise SecurityError(WITHOUT_END)


def _check_join(items: Iterable[Value], between: str) -> list[Value]:
    """Return the items, if joining them does not make too long a text."""
    parts = list(items)
    if len(parts) * len(between) + sum(len(str(part)) for part in parts) > LONGEST_TEXT:
        raise SecurityError(WITHOUT_END)
    return parts


@pass_eval_context
def _replace_filter(context: nodes.EvalContext, text: Value, old: Value, new: Value, count: int | None = None) -> str:
    _check_replacement(str(text), str(old), str(new))
    return filters.do_replace(context, str(text), str(old), str(new), count)


@pass_eval_context
def _join_filter(
    context: nodes.EvalContext, items: Iterable[Value], d: Value = "", attribute: str | int | None = None
) -> str:
    return filters.sync_do_join(context, _check_join(items, str(d)), str(d), attribute)


def _format_filter(text: Value, *args: Value, **kwargs: Value) -> str:
    if WIDE_FORMAT.search(str(text)):
        raise SecurityError(WITHOUT_END)
    return filters.do_format(str(text), *args, **kwargs)


def _indent_filter(text: Value, width: Value = 4, first: bool = False, blank: bool = False) -> str:  # noqa: FBT001, FBT002 - Jinja's signature
    if len(width) > WIDEST_INDENT if isinstance(width, str) else width > WIDEST_INDENT:
        raise SecurityError(WITHOUT_END)
    return filters.do_indent(str(text), width, first, blank)


def _to_json(value: Value, indent: int | None = None, **options: Value) -> str:
    """Write JSON as chat templates expect it: letters of all languages as they are, nothing escaped for HTML."""
    return json.dumps(value, ensure_ascii=False, indent=min(indent, 16) if indent else indent, **options)


def _raise_exception(message: object) -> NoReturn:
    raise _Refused(str(message))


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)
