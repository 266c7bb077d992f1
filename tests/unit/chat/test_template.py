"""The template sandbox: what chat templates use works, what a hostile one tries ends in a sentence."""

import time

import pytest

from draftlight.chat.template import BadChatTemplate, ChatTemplate

HELLO = [{"role": "user", "content": "Hello"}]


@pytest.mark.parametrize(
    ("source", "text"),
    [
        (
            "{% for m in messages %}{{ loop.index0 }}{{ loop.last }}{{ m.role ~ ':' ~ m['content'] }}{% endfor %}",
            "0Trueuser:Hello",
        ),
        ("{% for m in messages %}\n  {% if m %}\nx\n  {% endif %}\n{% endfor %}", "x\n"),
        (
            "{% for x in [1,2,3] %}{% if x==2 %}{% continue %}{% endif %}{{ x }}{{ loop.length }}{% endfor %}",
            "1333",
        ),
        ("{% generation %}kept{% endgeneration %}", "kept"),
        ("{{ {'a': '<é>'} | tojson }}", '{"a": "<é>"}'),
        ("{{ [1] | tojson(indent=2) }}", "[\n  1\n]"),
        ("{% set ns = namespace(n=1) %}{% set ns.n = ns.n + 1 %}{{ ns.n }}", "2"),
        ("{{ messages[::-1] | length }}{{ messages | map(attribute='role') | join('-') }}", "1user"),
        ("{{ 'aXb'.replace('X', '-') }}{{ 'aXb' | replace('X', '+') }}{{ ','.join(['c', 'd']) }}", "a-ba+bc,d"),
        ("{{ '%s|%02d' | format('in 2024', 3) }}{{ '{:>3}'.format(1) }}{{ '%s' % 'z' }}", "in 2024|03  1z"),
        ("{{ 'a\nb' | indent(2) }}", "a\n  b"),
        ("{{ tools is none }}{{ add_generation_prompt }}{{ bos_token }}{{ nothing is defined }}", "TrueTrue<s>False"),
        ("{{ strftime_now('%Y') | length }}", "4"),
        ("{% macro say(x) %}{{ x }}!{% endmacro %}{{ say('hi') }}", "hi!"),
    ],
)
def test_what_chat_templates_use_works(source: str, text: str) -> None:
    assert ChatTemplate(source).render(HELLO, "<s>") == text


@pytest.mark.parametrize(
    ("source", "words"),
    [
        ("{{ ''.__class__.__mro__ }}", "unsafe"),
        ("{{ (messages | attr('__class__')).mro() }}", "unsafe"),
        ("{{ messages.append(1) }}", "unsafe"),
        ("{{ messages[0].update({'a': 1}) }}", "unsafe"),
        ("{% include '/etc/passwd' %}", "no loader"),
        ("{% for i in range(10 ** 9) %}{% endfor %}", "Range too big"),
        ("{{ 'a' * 10 ** 9 }}", "too large"),
        ("{{ [1] * 2000000 }}", "too large"),
        ("{{ 10 ** 10 ** 10 ** 10 ** 10 }}", "too large"),
        ("{{ 'a'.center(10 ** 9) }}", "unsafe"),
        ("{{ 'a' | indent(10 ** 9) }}", "without end"),
        ("{{ '%1000000000d' % 1 }}", "without end"),
        ("{{ '%*d' | format(10 ** 9, 1) }}", "without end"),
        ("{{ '{:1000000000}'.format(1) }}", "without end"),
        ("{{ '{:{}}'.format(1, 10 ** 9) }}", "without end"),
        ("{% set x = 'a' * 1000000 %}{{ x.replace('a', x) }}", "without end"),
        ("{% set x = 'a' * 1000000 %}{{ x | replace('a', x) }}", "without end"),
        ("{% set x = 'a' * 1000000 %}{{ x.join(range(99999) | map('string')) }}", "without end"),
        ("{% set x = 'a' * 1000000 %}{{ range(99999) | join(x) }}", "without end"),
        ("{% for i in range(99999) %}{{ 'x' * 1000 }}{% endfor %}", "without end"),
        ("{% macro f() %}{{ f() }}{% endmacro %}{{ f() }}", "recursion"),
        ("{{ nothing.here.at.all }}", "'nothing' is undefined"),
    ],
)
def test_a_hostile_template_ends_in_a_sentence(source: str, words: str) -> None:
    with pytest.raises(BadChatTemplate, match="The model's chat template does not work") as caught:
        ChatTemplate(source).render(HELLO)
    assert words in caught.value.sentence


def check_doubling(step: str) -> None:
    start = "{% set ns = namespace(s='12345678') %}{% for i in range(60) %}"
    with pytest.raises(BadChatTemplate, match="without end"):
        ChatTemplate(start + step + "{% endfor %}").render(HELLO)


@pytest.mark.parametrize(
    "source",
    [
        "{{ messages.__class__ }}",
        "{{ messages['__class__'] }}",
        "{{ '{0.__class__}'.format(messages) }}",
        "{{ raise_exception.__globals__ }}",
        "{{ strftime_now.__code__ }}",
    ],
)
def test_python_internals_read_as_nothing(source: str) -> None:
    assert ChatTemplate(source).render(HELLO) == ""


@pytest.mark.parametrize("doubled", ["ns.s ~ ns.s", "ns.s + ns.s", "[ns.s, ns.s] | join", "'%s%s' % (ns.s, ns.s)"])
def test_a_text_that_doubles_is_stopped(doubled: str) -> None:
    source = (
        "{% set ns = namespace(s='12345678') %}{% for i in range(60) %}{% set ns.s = " + doubled + " %}{% endfor %}"
    )
    with pytest.raises(BadChatTemplate, match="without end"):
        ChatTemplate(source).render(HELLO)


def test_a_block_that_doubles_is_stopped() -> None:
    double = "{% set x %}{{ ns.s }}{{ ns.s }}{% endset %}{% set ns.s = x %}"
    with pytest.raises(BadChatTemplate, match="without end"):
        ChatTemplate("{% set ns = namespace(s='12345678') %}{% for i in range(60) %}" + double + "{% endfor %}").render(
            HELLO
        )


@pytest.mark.parametrize(
    "source",
    [
        "{% for i in range(99999) %}{% for j in range(99999) %}{% endfor %}{% endfor %}",
        "{% set r = range(99999) %}{% for i in r %}{% for j in r %}{% endfor %}{% endfor %}",
        "{% macro f(n) %}{% if n %}{{ f(n - 1) }}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(100) }}",
    ],
)
def test_a_template_that_does_not_end_is_stopped(source: str) -> None:
    begun = time.thread_time()
    with pytest.raises(BadChatTemplate, match=r"ran for more than 0\.05 seconds|recursion"):
        ChatTemplate(source, cpu_seconds=0.05).render(HELLO)
    assert time.thread_time() - begun < 1


def test_what_a_template_says_of_a_conversation_is_passed_on() -> None:
    with pytest.raises(BadChatTemplate, match=r"refuses this conversation \(Roles must alternate\)"):
        ChatTemplate("{{ raise_exception('Roles must alternate') }}").render(HELLO)


def test_a_rendering_leaves_nothing_behind_for_the_next() -> None:
    template = ChatTemplate("{% set x = (x or 0) + 1 %}{{ x }}{{ messages[0].content }}")
    assert [template.render(HELLO), template.render(HELLO)] == ["1Hello", "1Hello"]
