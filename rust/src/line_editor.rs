// SPDX-License-Identifier: Apache-2.0
//! Line editing on the terminal by rustyline; the C ABI is in `include/nanomind_line_editor.h`.

use std::cell::Cell;
use std::path::PathBuf;

use rustyline::completion::Completer;
use rustyline::config::{Behavior, Config};
use rustyline::error::ReadlineError;
use rustyline::highlight::Highlighter;
use rustyline::hint::Hinter;
use rustyline::history::{FileHistory, History};
use rustyline::validate::Validator;
use rustyline::{Context, Editor, Helper};

use crate::abi::{free_handle, into_handle, into_status, Bytes, Text};
use crate::guard::caught;

const HISTORY_ENTRIES: usize = 2000;

const TEXT: i32 = 0;
const END_OF_INPUT: i32 = 1;
const INTERRUPTED: i32 = 2;
const INTERRUPTED_EMPTY: i32 = 3;
const ERROR: i32 = 4;

/// Completes commands, and knows whether the line was empty when Ctrl-C came.
struct Assistant {
    commands: Vec<String>,
    line_is_empty: Cell<bool>,
}

impl Completer for Assistant {
    type Candidate = String;

    fn complete(&self, line: &str, position: usize, _: &Context<'_>) -> rustyline::Result<(usize, Vec<String>)> {
        let typed = &line[..position];
        if !typed.starts_with('/') {
            return Ok((position, Vec::new()));
        }
        Ok((0, self.commands.iter().filter(|command| command.starts_with(typed)).cloned().collect()))
    }
}

impl Hinter for Assistant {
    type Hint = String;

    /// Called after every change of the line; shows nothing.
    fn hint(&self, line: &str, _: usize, _: &Context<'_>) -> Option<String> {
        self.line_is_empty.set(line.is_empty());
        None
    }
}

impl Highlighter for Assistant {}
impl Validator for Assistant {}
impl Helper for Assistant {}

pub struct LineEditor {
    editor: Editor<Assistant, FileHistory>,
    history_path: Option<PathBuf>,
}

impl LineEditor {
    fn create(history_path: &str, commands: &str) -> Result<Self, String> {
        let config = Config::builder()
            .behavior(Behavior::PreferTerm)
            .bracketed_paste(true)
            .max_history_size(HISTORY_ENTRIES)
            .and_then(|builder| builder.history_ignore_dups(true))
            .map_err(|e| e.to_string())?
            .build();
        let history = FileHistory::with_config(&config);
        let mut editor = Editor::with_history(config, history).map_err(|e| format!("Cannot edit lines on this terminal: {e}."))?;
        let commands = commands.split_whitespace().map(str::to_string).collect();
        editor.set_helper(Some(Assistant { commands, line_is_empty: Cell::new(true) }));
        let history_path = (!history_path.is_empty()).then(|| PathBuf::from(history_path));
        if let Some(path) = history_path.as_ref().filter(|path| path.exists()) {
            editor.load_history(path).map_err(|e| format!("Cannot read the history {}: {e}.", path.display()))?;
        }
        Ok(LineEditor { editor, history_path })
    }

    fn line_is_empty(&self) -> bool {
        self.editor.helper().is_none_or(|assistant| assistant.line_is_empty.get())
    }

    fn read(&mut self, prompt: &str) -> Result<(i32, String), String> {
        loop {
            if let Some(assistant) = self.editor.helper_mut() {
                assistant.line_is_empty.set(true);
            }
            return match self.editor.readline(prompt) {
                Ok(line) => Ok((TEXT, line)),
                Err(ReadlineError::Eof) => Ok((END_OF_INPUT, String::new())),
                Err(ReadlineError::Interrupted) if self.line_is_empty() => Ok((INTERRUPTED_EMPTY, String::new())),
                Err(ReadlineError::Interrupted) => Ok((INTERRUPTED, String::new())),
                Err(ReadlineError::Signal(_)) => continue,
                Err(e) => Err(format!("Cannot read from the terminal: {e}.")),
            };
        }
    }

    fn remember(&mut self, entry: &str) -> Result<(), String> {
        let added = self.editor.add_history_entry(entry).map_err(|e| e.to_string())?;
        let Some(path) = self.history_path.as_ref().filter(|_| added) else {
            return Ok(());
        };
        let written = self.editor.history_mut().append(path);
        written.map_err(|e| format!("Cannot write the history {}: {e}.", path.display()))
    }
}

/// # Safety
/// `error` is writable; the bytes are as `Bytes` says.
#[no_mangle]
pub unsafe extern "C" fn nanomind_line_editor_create(history_path: Bytes, commands: Bytes, error: *mut Text) -> *mut LineEditor {
    let result = caught(|| LineEditor::create(history_path.as_str("The history's path")?, commands.as_str("The commands")?));
    into_handle(result, error)
}

/// # Safety
/// `editor` is NULL or came from `nanomind_line_editor_create` and was not freed.
#[no_mangle]
pub unsafe extern "C" fn nanomind_line_editor_free(editor: *mut LineEditor) {
    free_handle(editor);
}

/// # Safety
/// `editor` is alive and not in use elsewhere, `text` is writable.
#[no_mangle]
pub unsafe extern "C" fn nanomind_line_editor_read(editor: *mut LineEditor, prompt: Bytes, text: *mut Text) -> i32 {
    let (kind, content) = caught(|| (*editor).read(prompt.as_str("The prompt")?)).unwrap_or_else(|message| (ERROR, message));
    *text = Text::from(content);
    kind
}

/// # Safety
/// `editor` is alive and not in use elsewhere, `error` is writable.
#[no_mangle]
pub unsafe extern "C" fn nanomind_line_editor_remember(editor: *mut LineEditor, entry: Bytes, error: *mut Text) -> i32 {
    into_status(caught(|| (*editor).remember(entry.as_str("The entry")?)), error)
}
