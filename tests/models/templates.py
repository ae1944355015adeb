"""Chat templates of the shapes found in the wild, small: each leans on something that naive renderers get wrong."""

from __future__ import annotations

CHATML = """\
{% for message in messages %}
<|im_start|>{{ message['role'] }}
{{ message['content'] }}<|im_end|>
{% endfor %}
{% if add_generation_prompt %}
<|im_start|>assistant
{% endif %}
"""

GEMMA2 = (
    "{{ bos_token }}"
    "{% if messages[0]['role'] == 'system' %}{{ raise_exception('System role not supported') }}{% endif %}"
    "{% for message in messages %}"
    "{% if (message['role'] == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('Conversation roles must alternate user/assistant/user/assistant/...') }}{% endif %}"
    "{% if (message['role'] == 'assistant') %}{% set role = 'model' %}"
    "{% else %}{% set role = message['role'] %}{% endif %}"
    "{{ '<start_of_turn>' + role + '\\n' + message['content'] | trim + '<end_of_turn>\\n' }}{% endfor %}"
    "{% if add_generation_prompt %}{{'<start_of_turn>model\\n'}}{% endif %}"
)

LLAMA2 = (
    "{% if messages[0]['role'] == 'system' %}{% set loop_messages = messages[1:] %}"
    "{% set system_message = messages[0]['content'] %}{% else %}{% set loop_messages = messages %}"
    "{% set system_message = false %}{% endif %}{% for message in loop_messages %}"
    "{% if loop.index0 == 0 and system_message != false %}"
    "{% set content = '<<SYS>>\\n' + system_message + '\\n<</SYS>>\\n\\n' + message['content'] %}"
    "{% else %}{% set content = message['content'] %}{% endif %}"
    "{% if message['role'] == 'user' %}{{ bos_token + '[INST] ' + content.strip() + ' [/INST]' }}"
    "{% elif message['role'] == 'assistant' %}{{ ' '  + content.strip() + ' ' + eos_token }}{% endif %}{% endfor %}"
)

NAMESPACE = (
    "{%- set ns = namespace(system='', count=0) -%}"
    "{%- for m in messages if m.role == 'system' -%}{%- set ns.system = ns.system ~ m.content ~ '|' -%}{%- endfor -%}"
    "{%- for m in messages if m.role != 'system' -%}{%- set ns.count = ns.count + 1 -%}"
    "{{ ns.system if loop.first }}[{{ ns.count }}/{{ loop.length }}]{{ m.role.upper() }}: {{ m.content }}\n"
    "{%- if loop.last %} END{% endif -%}{%- endfor -%}"
)

LOOP_CONTROLS = (
    "{% for m in messages %}{% if m.role == 'system' %}{% continue %}{% endif %}"
    "{{ m.content }};{% if loop.index > 3 %}{% break %}{% endif %}{% endfor %}{{ loop is defined }}"
)

GENERATION = (
    "{% for m in messages %}{% if m.role == 'assistant' %}A:{% generation %}{{ m.content }}{% endgeneration %}\n"
    "{% else %}{{ m.role }}:{{ m.content }}\n{% endif %}{% endfor %}"
)

TO_JSON = (
    "{{ messages | tojson }}\n{{ messages[0] | tojson(indent=2) }}{{ '<é&\\'>' | tojson }}"
    "{{ {'b': 1, 'a': none} | tojson(sort_keys=true) }}"
)

MACRO = (
    "{% macro turn(role, text) %}<{{ role }}>{{ text | trim }}</{{ role }}>\n{% endmacro %}"
    "{% for m in messages %}{{ turn(m.role, m.content) }}{% endfor %}"
    "{% if add_generation_prompt %}<assistant>{% endif %}"
)

STRINGS = (
    "{% for m in messages %}{{ m.content.split(' ')[0].strip().title() }}|{{ m.content.startswith('h') }}|"
    "{{ m.content[::-1] }}|{{ m.content | length }}|{{ m['role'] in ['user', 'assistant'] }}\n{% endfor %}"
)

UNDEFINED_IS_FALSE = (
    "{% if tools %}TOOLS{% endif %}{% if enable_thinking is defined and enable_thinking %}THINK{% endif %}"
    "{{ date_string if date_string is defined else 'today' }}"
    "{% for m in messages %}{{ m.name }}{{ m.content }}{% endfor %}"
)

WHITE_SPACE = """
    {% for message in messages %}
        {# a comment #}
  {{ message.content }}
    {% endfor %}

end
"""

THINKING = (
    "{% for m in messages %}{% set content = m.content %}"
    "{% if m.role == 'assistant' and '</think>' in content %}"
    "{% set content = content.split('</think>')[-1].lstrip() %}{% endif %}"
    "<|{{ m.role }}|>{{ content }}{% endfor %}{% if add_generation_prompt %}<|assistant|><think>\n{% endif %}"
)

STRFTIME = (
    "{{ strftime_now('%Y-%m-%d') }} {{ strftime_now('%d %b %Y') }}{% for m in messages %}{{ m.content }}{% endfor %}"
)

JOINER = (
    "{% set sep = joiner(', ') %}{% for m in messages | selectattr('role', 'equalto', 'user') %}"
    "{{ sep() }}{{ m.content }}{% endfor %}{{ messages | map(attribute='role') | unique | list }}{{ range(3) | list }}"
)

FILTERS = (
    "{% set c = messages[0].content %}{{ c|replace('l', 'LL') }}{{ c|replace('l', '', 1) }}"
    "{{ (c ~ '\\nb\\n\\nc')|indent(3, true) }}{{ c|center(30) }}|{{ c|upper }}{{ c|lower }}{{ c|title }}"
    "{{ c|capitalize }}{{ c|trim }}{{ c|length }}{{ c|wordcount }}{{ c|truncate(4, true, '..') }}{{ c|string }}"
    "{{ c|e }}{{ c|reverse }}{{ c|first }}{{ c|last }}{{ c|list }}{{ '%s: %5.2f %(a)d'|default('x') }}"
    "{{ '%s-%d'|format(c, 3) }}{{ '%(a)s'|format(a=c) }}{{ missing|default('none') }}"
    "{{ '3'|int + '1.5'|float + (-2)|abs + 2.567|round(1) }}{{ [3, 1, 2]|sort|join(', ') }}"
    "{{ [3, 1]|sum(start=4) }}{{ [1, 1, 2]|unique|list }}{{ [1, 2]|min }}{{ [1, 2]|max }}"
    "{{ {'b': 1, 'a': 2}|dictsort }}{{ {'a': 1}|items|list }}{{ range(7)|batch(3, '-')|list }}"
    "{{ range(7)|slice(3)|list }}{{ messages|groupby('role')|length }}"
    "{{ messages|map(attribute='role')|join('/') }}{{ messages|join(', ', attribute='role') }}"
    "{{ messages|selectattr('role', 'eq', 'user')|list|length }}{{ messages|rejectattr('content')|list }}"
    "{{ range(5)|select('odd')|list }}{{ range(5)|reject('divisibleby', 2)|list }}{{ ['a']|map('upper')|list }}"
    "{{ ('<' ~ c)|e ~ '<' }}{{ c|safe }}{{ c|tojson(indent=1) }}{{ messages|tojson(separators=(',', ':')) }}"
    "{{ c|attr('upper') is callable }}"
)

METHODS = (
    "{% macro wrap(a) %}<{{ caller(a) }}>{% endmacro %}{% set c = messages[0].content %}{{ c.upper() }}"
    "{{ c.lower() }}{{ c.title() }}{{ c.capitalize() }}{{ c.swapcase() }}{{ c.strip('h') }}{{ c.lstrip() }}"
    "{{ c.rstrip() }}{{ c.removeprefix('h') }}{{ c.removesuffix('e') }}{{ c.split() }}{{ c.rsplit(' ', 1) }}"
    "{{ c.splitlines() }}{{ c.partition(' ') }}{{ c.rpartition(' ') }}{{ c.join(['1', '2']) }}"
    "{{ c.replace('l', 'm') }}{{ c.replace('l', 'mm', 1) }}{{ 'a\\tb'.expandtabs(4) }}{{ c.find('l') }}"
    "{{ c.count('l') }}{{ c.center(20, '*') }}{{ c.ljust(20) }}{{ c.rjust(20) }}{{ '7'.zfill(3) }}{{ c.isalpha() }}"
    "{{ c.endswith('é') }}{{ '{} {:>5} {a[role]!r} {{}}'.format(c, 3, a=messages[0]) }}"
    "{{ '{a}'.format_map({'a': c}) }}{{ '%s %05d' % (c, 3) }}{{ messages[0].get('x', 'y') }}"
    "{{ messages[0].items()|list }}{{ messages[0].keys()|list }}{{ messages[0].values()|list }}"
    "{{ [1, 2, 1].count(1) }}{{ [1, 2].index(2) }}{{ range(3).count(1) }}{{ (c|safe).strip() ~ (c|safe).upper() }}"
    "{% set cycle = cycler('odd', 'even') %}{{ cycle.next() }}{{ cycle.next() }}{{ cycle.current }}{{ dict(a=1) }}"
    "{% for m in messages %}{{ loop.cycle('a', 'b') }}{{ loop.changed(m.role) }}{{ loop.revindex }}{% endfor %}"
    "{% for m in [[1, [2]], [3]] recursive %}{{ loop(m) if m is sequence else m }}{% endfor %}{{ 7 // 2 }}"
    "{{ 7 % 4 }}{{ 2 ** 5 }}{{ 7 / 2 }}{{ 'ab' * 3 }}{{ [1] * 2 + [3] }}{{ (1, 2) + (3,) }}{{ -3 + 1.5 }}"
    "{% call(x) wrap('a') %}{{ x }}{% endcall %}{% filter upper %}abc{% endfilter %}{% set t %}b{% endset %}{{ t }}"
)

NO_SYSTEM_NO_COMPLAINT = (
    "{% for m in messages %}{% if m.role != 'system' %}{{ m.role }}: {{ m.content }}\n{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}assistant: {% endif %}"
)

PARTS_ONLY = (
    "{% for m in messages %}{{ m.role }}: "
    "{% for part in m.content %}{% if part.type == 'text' %}{{ part.text }}{% endif %}{% endfor %};{% endfor %}"
)

TEMPLATES: dict[str, str] = {
    "chatml": CHATML,
    "llama 2": LLAMA2,
    "namespace": NAMESPACE,
    "loop controls": LOOP_CONTROLS,
    "generation block": GENERATION,
    "tojson": TO_JSON,
    "macro": MACRO,
    "strings": STRINGS,
    "undefined": UNDEFINED_IS_FALSE,
    "white space": WHITE_SPACE,
    "thinking": THINKING,
    "strftime": STRFTIME,
    "joiner": JOINER,
    "filters": FILTERS,
    "methods": METHODS,
}
"""Those that take any chat as it is; GEMMA2 and its kind need the chat repaired first."""
