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
}
"""Those that take any chat as it is; GEMMA2 and its kind need the chat repaired first."""
