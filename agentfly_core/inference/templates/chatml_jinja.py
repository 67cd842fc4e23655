"""The chat template Hermes as a Jinja template for transformers and vLLM."""

import json

_SYSTEM = """\
{%- set opening = namespace(system='', first=0) %}
{%- if messages and messages[0].role == 'system' %}
    {%- set opening.system = messages[0].content or '' %}
    {%- set opening.first = 1 %}
{%- endif %}
"""
_TOOLS = """\
{%- if tools %}
    {%- set listed = HEAD ~ (tools | map('tojson') | join('\\n')) ~ TAIL %}
    {%- set opening.system = opening.system ~ ('\\n\\n' if opening.system else '') ~ listed %}
{%- endif %}
"""
_CONVERSATION = """\
{%- if opening.system %}
    {{- '<|im_start|>system\\n' ~ opening.system ~ '<|im_end|>\\n' }}
{%- endif %}
{%- for message in messages[opening.first:] %}
    {%- if message.role == 'tool' %}
        {{- '\\n' if not loop.first and loop.previtem.role == 'tool' else '<|im_start|>user\\n' }}
        {{- '<tool_response>\\n' ~ message.content ~ '\\n</tool_response>' }}
        {{- '' if not loop.last and loop.nextitem.role == 'tool' else '<|im_end|>\\n' }}
    {%- elif message.role == 'assistant' %}
        {%- set reply = namespace(parts=[message.content] if message.content else []) %}
        {%- for call in message.tool_calls or [] %}
            {%- set called = call.function or call %}
            {%- set sent = called.arguments %}
            {%- set written = sent if sent is string else sent | tojson %}
            {%- set text = '{"name": ' ~ called.name | tojson ~ ', "arguments": ' ~ written ~ '}' %}
            {%- set reply.parts = reply.parts + ['<tool_call>\\n' ~ text ~ '\\n</tool_call>'] %}
        {%- endfor %}
        {{- '<|im_start|>assistant\\n' ~ reply.parts | join('\\n') ~ '<|im_end|>\\n' }}
    {%- else %}
        {{- '<|im_start|>' ~ message.role ~ '\\n' ~ message.content ~ '<|im_end|>\\n' }}
    {%- endif %}
{%- endfor %}
{%- if add_generation_prompt %}
    {{- '<|im_start|>assistant\\n' }}
{%- endif %}
"""


def jinja_text(tools: str | None) -> str:
    """Return the text of the Jinja template.

    `tools` is the text that lists the tools in a prompt. The tools replace the placeholder
    `{signatures}` in this text. If `tools` is None, the template does not list tools.
    """
    if tools is None:
        return _SYSTEM + _CONVERSATION
    head, tail = map(json.dumps, tools.format(signatures="\0").split("\0"))
    return _SYSTEM + _TOOLS.replace("HEAD", head).replace("TAIL", tail) + _CONVERSATION
