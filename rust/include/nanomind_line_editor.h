// SPDX-License-Identifier: Apache-2.0
// C ABI of the line editor in the Rust static library (rustyline): one edited line at a time from the controlling
// terminal, with a history that is kept in a file of mode 0600. Types and ownership as in nanomind_rust.h. One thread
// at a time.
#pragma once

#include "nanomind_rust.h"

#ifdef __cplusplus
extern "C" {
#endif

typedef struct NanomindLineEditor NanomindLineEditor;

typedef enum NanomindLineResult {
  NANOMIND_LINE_TEXT = 0,               // the text is the line, without its end; pasted lines are joined by newlines
  NANOMIND_LINE_END_OF_INPUT = 1,       // Ctrl-D at an empty prompt, or the terminal is gone
  NANOMIND_LINE_INTERRUPTED = 2,        // Ctrl-C that threw a line away
  NANOMIND_LINE_INTERRUPTED_EMPTY = 3,  // Ctrl-C at an empty prompt
  NANOMIND_LINE_ERROR = 4,              // the text is the error
} NanomindLineResult;

// `history_path` may be empty: then the history lasts as long as the editor. A file that is not there is no error.
// `commands` are completed by Tab at the beginning of a line, separated by spaces.
NanomindLineEditor* nanomind_line_editor_create(NanomindBytes history_path, NanomindBytes commands,
                                                NanomindText* error);
void nanomind_line_editor_free(NanomindLineEditor* editor);

// Shows `prompt` and waits for a line; returns a NanomindLineResult.
int32_t nanomind_line_editor_read(NanomindLineEditor* editor, NanomindBytes prompt, NanomindText* text);
// Adds an entry to the history and to its file. 0: done.
int32_t nanomind_line_editor_remember(NanomindLineEditor* editor, NanomindBytes entry, NanomindText* error);

#ifdef __cplusplus
}
#endif
