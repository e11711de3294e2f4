# SPDX-License-Identifier: Apache-2.0
"""A chat on a terminal, and one through a pipe."""
import json
import os
import stat

from program import ProgramTest, Terminal, main, real_model

CTRL_C, CTRL_D = "\x03", "\x04"
PASTE_START, PASTE_END = "\x1b[200~", "\x1b[201~"


class Chat(ProgramTest):
    def open(self, *flags, model=None, command="chat"):
        terminal = Terminal([command, model or self.tiny, "--temp", "0", *flags], self.environment)
        self.addCleanup(terminal.close)
        terminal.expect("/help")
        terminal.prompt()
        return terminal

    def saved(self, terminal, name="talk.json"):
        path = self.home / name
        terminal.line(f"/save {path}")
        terminal.expect("Saved to")
        terminal.prompt()
        return json.loads(path.read_text())

    def test_answers_commands_and_leaving(self):
        terminal = self.open("-n", "4", command="run")
        terminal.line("hello")
        terminal.expect("stopped after 4 tokens")
        terminal.prompt()
        terminal.line("/help")
        for command in ("/help", "/system", "/clear", "/save", "/load", "/stats", "/exit"):
            terminal.expect(command)
        terminal.prompt()
        terminal.line("/stats")
        terminal.expect("answer   4 tokens")
        terminal.prompt()
        terminal.line("/nonsense")
        terminal.expect("no command /nonsense; there are /help")
        terminal.prompt()
        terminal.line("/system be brief")
        terminal.expect("next question")
        terminal.prompt()
        talk = self.saved(terminal)
        self.assertEqual([m["role"] for m in talk["messages"]], ["system", "user", "assistant"])
        self.assertEqual(talk["messages"][1]["content"], "hello")
        terminal.line("/clear")
        terminal.expect("anew")
        terminal.prompt()
        self.assertEqual([m["role"] for m in self.saved(terminal)["messages"]], ["system"])
        terminal.line("/exit")
        self.assertEqual(terminal.finish(), 0)

    def test_interrupt_stops_the_answer_and_not_the_program(self):
        terminal = self.open("--ctx", "200000")
        for question in ("hello", "and again"):
            terminal.line(question)
            terminal.expect(r"\?2004l\s+\S")  # the terminal is in its usual mode again, and the answer has begun
            terminal.send(CTRL_C)
            terminal.expect(r"\(stopped\)")
            terminal.prompt()
        self.assertEqual([m["role"] for m in self.saved(terminal)["messages"]], ["user", "assistant"] * 2)
        terminal.send(CTRL_D)
        self.assertEqual(terminal.finish(), 0)

    def test_interrupt_at_the_prompt(self):
        terminal = self.open()
        terminal.send("half a question")
        terminal.expect("half a question")
        terminal.send(CTRL_C)
        terminal.prompt()
        terminal.send(CTRL_C)
        terminal.expect("again")
        terminal.prompt()
        terminal.send(CTRL_C)
        self.assertEqual(terminal.finish(), 0)

    def test_save_and_load(self):
        terminal = self.open("-n", "3")
        terminal.line("first")
        terminal.expect("stopped after")
        terminal.prompt()
        talk = self.saved(terminal)
        terminal.line("/clear")
        terminal.prompt()
        terminal.line(f"/load {self.home / 'talk.json'}")
        terminal.expect("Loaded 1 question and answer")
        terminal.prompt()
        self.assertEqual(self.saved(terminal, "again.json"), talk)
        (self.home / "bad.json").write_text('{"nanomind_chat": 1, "messages": [{"role": "user"}]}')
        terminal.line(f"/load {self.home / 'bad.json'}")
        terminal.expect("message 1 has no text")
        terminal.prompt()
        terminal.line(f"/save {self.home / 'none' / 'talk.json'}")
        terminal.expect("nanomind:")
        terminal.prompt()
        self.assertEqual(self.saved(terminal, "third.json"), talk)
        terminal.send(CTRL_D)
        self.assertEqual(terminal.finish(), 0)

    def test_saved_files_are_private_and_replace_no_pipe(self):
        talk, pipe, link = self.home / "talk.json", self.home / "pipe", self.home / "link.json"
        talk.write_text("old")
        talk.chmod(0o644)
        os.mkfifo(pipe)
        link.symlink_to("talk.json")
        terminal = self.open("-n", "3")
        terminal.line("first")
        terminal.expect("stopped after")
        terminal.prompt()
        self.saved(terminal, link.name)
        self.assertTrue(link.is_symlink())
        self.saved(terminal)
        for file in (talk, self.home / "talk.json.session"):
            self.assertEqual(stat.S_IMODE(file.stat().st_mode), 0o600)
        for command in ("save", "load"):
            terminal.line(f"/{command} {pipe}")
            terminal.expect("not a regular file")
            terminal.prompt()
        self.assertTrue(pipe.is_fifo())
        terminal.send(CTRL_D)
        self.assertEqual(terminal.finish(), 0)

    def test_what_is_forgotten_is_said_once(self):
        arguments = ("chat", self.tiny, "--temp", "0", "--ctx", "256", "--when-full", "slide", "-n", "60")
        done = self.expect(0, *arguments, stdin=b"hello\n" * 8)
        self.assertEqual(done.stderr.count(b"were forgotten"), 1)
        self.assertNotIn(b"were forgotten", self.expect(0, *arguments, stdin=b"hello\n").stderr)

    def test_a_loaded_conversation_need_not_be_read_again(self):
        terminal = self.open("-n", "3")
        terminal.line("a question of some words")
        terminal.expect("stopped after")
        terminal.prompt()
        self.saved(terminal)
        terminal.send(CTRL_D)
        self.assertEqual(terminal.finish(), 0)
        side = self.home / "talk.json.session"
        for damage, cached in ((False, r"[1-9]\d* more were cached"), (True, r" 0 more were cached")):
            if damage:
                side.write_bytes(side.read_bytes()[:-1])
            terminal = self.open("-n", "3")
            terminal.line(f"/load {self.home / 'talk.json'}")
            terminal.expect("will be read again" if damage else "Loaded 1 question")
            terminal.prompt()
            terminal.line("and another")
            terminal.expect("stopped after")
            terminal.prompt()
            terminal.line("/stats")
            terminal.expect(cached)
            terminal.prompt()
            terminal.send(CTRL_D)
            self.assertEqual(terminal.finish(), 0)

    def test_entries_of_several_lines(self):
        terminal = self.open("-n", "2")
        terminal.send(f"{PASTE_START}one\r\rtwo\r{PASTE_END}three")
        terminal.expect("three")
        terminal.line("")
        terminal.expect("stopped after")
        terminal.prompt()
        terminal.line("four\\")
        terminal.expect(r"\.\.\. ")
        terminal.line("five")
        terminal.expect("stopped after")
        terminal.prompt()
        terminal.line('"""')
        terminal.expect(r"\.\.\. ")
        terminal.line("  six")
        terminal.expect(r"\.\.\. ")
        terminal.line('seven"""')
        terminal.expect("stopped after")
        terminal.prompt()
        questions = [m["content"] for m in self.saved(terminal)["messages"] if m["role"] == "user"]
        self.assertEqual(questions, ["one\n\ntwo\nthree", "four\nfive", "  six\nseven"])
        terminal.send(CTRL_D)
        self.assertEqual(terminal.finish(), 0)

    def test_history_is_kept_and_private(self):
        terminal = self.open("-n", "2")
        terminal.line("remember this")
        terminal.expect("stopped after")
        terminal.prompt()
        terminal.send(CTRL_D)
        self.assertEqual(terminal.finish(), 0)
        history = self.home / ".local/state/nanomind/history"
        self.assertEqual(stat.S_IMODE(history.stat().st_mode), 0o600)
        terminal = self.open("-n", "2")
        terminal.send("\x1b[A")
        terminal.expect("remember this")
        terminal.line("")
        terminal.expect("stopped after")
        terminal.prompt()
        terminal.send(CTRL_D)
        self.assertEqual(terminal.finish(), 0)

    def test_history_that_cannot_be_kept_is_said_once(self):
        (self.home / ".local").write_text("")
        terminal = Terminal(["chat", self.tiny, "-n", "2"], self.environment)
        self.addCleanup(terminal.close)
        terminal.expect("history will not be kept")
        terminal.prompt()
        terminal.line("hello")
        terminal.expect("stopped after")
        terminal.prompt()
        terminal.send(CTRL_D)
        self.assertEqual(terminal.finish(), 0)

    def test_full_context_is_said_and_nothing_is_dropped(self):
        terminal = self.open("--ctx", "96", "-n", "8")
        terminal.line("hello")
        terminal.expect("stopped after")
        terminal.prompt()
        before = self.saved(terminal)
        terminal.line("a longer question " * 8)
        terminal.expect("context of 96 tokens is full.*/clear")
        terminal.prompt()
        self.assertEqual(self.saved(terminal), before)
        terminal.line("/clear")
        terminal.prompt()
        terminal.line("hello")
        terminal.expect("stopped after")
        terminal.prompt()
        terminal.send(CTRL_D)
        self.assertEqual(terminal.finish(), 0)

    def test_questions_from_a_pipe(self):
        done = self.expect(0, "chat", self.tiny, "--temp", "0", "-n", "3", stdin=b"hello\n/nonsense\n/exit\nnot asked\n")
        self.assertNotIn(b"> ", done.stdout)
        self.assertIn(b"no command /nonsense", done.stderr)
        self.assertEqual(done.stderr.count(b"stopped after 3"), 1)
        once = self.expect(0, "run", self.tiny, "--temp", "0", "-n", "3", "hello", stdin=None)
        self.assertEqual(done.stdout, once.stdout)

    def test_terminal_without_editing(self):
        self.environment["TERM"] = "dumb"
        terminal = Terminal(["chat", self.tiny, "-n", "2"], self.environment)
        self.addCleanup(terminal.close)
        terminal.line("hello")
        terminal.expect("stopped after")
        terminal.line("/exit")
        self.assertEqual(terminal.finish(), 0)


class RealChat(ProgramTest):
    def test_second_question_knows_the_first(self):
        model = real_model()
        if not model:
            self.skipTest("no model; pull smollm2-135m or set NANOMIND_TEST_MODEL")
        if os.path.exists(model):
            self.environment["NANOMIND_PACKED"] = os.path.join(os.path.dirname(model), "packed")
        terminal = Terminal(["chat", model, "--temp", "0", "-n", "24", "--verbose"], self.environment)
        self.addCleanup(terminal.close)
        terminal.prompt()
        terminal.line("What is the capital of France?")
        terminal.expect("Paris")
        terminal.prompt()
        terminal.line("Thank you.")
        terminal.prompt()
        terminal.line("/stats")
        # The first question and answer are not evaluated again.
        self.assertGreater(int(terminal.expect(r"(\d+) more were cached").group(1)), 30)
        terminal.prompt()
        terminal.send(CTRL_D)
        self.assertEqual(terminal.finish(), 0)


if __name__ == "__main__":
    main()
