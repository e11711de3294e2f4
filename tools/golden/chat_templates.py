# SPDX-License-Identifier: Apache-2.0
"""Writes the expected prompts of chat templates, rendered by Jinja2 as transformers sets it up.

Needs: pip install jinja2

  chat_templates.py                            renders every tests/data/chat_template/*.jinja into *.expected
  chat_templates.py extract NAME MODEL.gguf    first takes the template out of a model's file (needs: pip install gguf)

The conversations are in tests/data/chat_template/conversations.txt: a line "# name" begins one, then one "role: content"
per message with content escaped as in escape.py. Expected files: "# name", then the prompt as one escaped line, or
"! message" where the template raised. Every conversation is rendered with the assistant's opening. Templates that know
tools also render tools.json, a conversation with calls and results, into one line of *.tools.

In parts/ are templates whose contents are lists of parts (smolvlm: as published, Apache-2.0; the others have the forms of published
ones), and conversations with so many pictures before the content of a message; *.expected has a line for each.
"""

import json
import pathlib
import sys

from jinja2.exceptions import TemplateError
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from escape import escape, unescape

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests" / "data" / "chat_template"


def conversations():
    name, messages = None, []
    for line in (FOLDER / "conversations.txt").read_text("utf-8").split("\n"):
        if line.startswith("# "):
            if name:
                yield name, messages
            name, messages = line[2:], []
        elif line:
            role, content = line.split(": ", 1)
            messages.append({"role": role, "content": unescape(content).decode()})
    yield name, messages


def environment():
    def raise_exception(message):
        raise TemplateError(message)

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    result = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    result.filters["tojson"] = tojson
    result.globals["raise_exception"] = raise_exception
    return result


def render(source, messages, tools=None):
    template = environment().from_string(source)
    try:
        prompt = template.render(messages=messages, tools=tools, documents=None, add_generation_prompt=True,
                                 bos_token="<bos>", eos_token="<eos>")
        return escape(prompt.encode())
    except TemplateError as error:
        return "! " + str(error)


def with_parts(message):
    parts = [{"type": "image"}] * message.get("pictures", 0) + [{"type": "text", "text": message["content"]}]
    return {"role": message["role"], "content": parts}


def render_parts(folder):
    chats = json.loads((folder / "conversations.json").read_text("utf-8"))
    for path in sorted(folder.glob("*.jinja")):
        prompts = [render(path.read_text("utf-8"), [with_parts(m) for m in chat]) for chat in chats]
        path.with_suffix(".expected").write_text("".join(prompt + "\n" for prompt in prompts), "utf-8")


def main():
    if len(sys.argv) == 4:
        import gguf
        template = gguf.GGUFReader(sys.argv[3]).fields["tokenizer.chat_template"].contents()
        (FOLDER / f"{sys.argv[2]}.jinja").write_text(template, "utf-8")
    for path in sorted(FOLDER.glob("*.jinja")):
        source = path.read_text("utf-8")
        with open(path.with_suffix(".expected"), "w", encoding="utf-8") as out:
            for name, messages in conversations():
                out.write(f"# {name}\n{render(source, messages)}\n")
        if "tool_calls" in source:
            chat = json.loads((FOLDER / "tools.json").read_text("utf-8"))
            path.with_suffix(".tools").write_text(render(source, chat["messages"], chat["tools"]) + "\n", "utf-8")
    render_parts(FOLDER / "parts")


if __name__ == "__main__":
    main()
