// SPDX-License-Identifier: Apache-2.0
// C ABI of the Rust static library: chat templates (minijinja) and constrained output (llguidance).
//
// Ownership: NanomindBytes lends bytes for the duration of one call. A NanomindText that a call filled belongs to the
// caller, who releases it with nanomind_text_release; it may be passed in empty ({NULL, 0, 0}) only. Handles belong to
// the caller and are freed by the function that bears their name; freeing NULL does nothing.
// Errors: a call that returns NULL or non-zero has put an English sentence into its NanomindText. Panics become errors.
// Threads: NanomindTemplate and NanomindVocabulary may be used from several threads at once, NanomindGrammar from one.
#pragma once

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

typedef struct NanomindBytes {
  const uint8_t* data;  // may be NULL when size is 0
  size_t size;
} NanomindBytes;

typedef struct NanomindText {
  uint8_t* data;  // UTF-8 unless said otherwise, not terminated
  size_t size;
  size_t capacity;
} NanomindText;

void nanomind_text_release(NanomindText* text);

// ---- Chat templates ----

typedef struct NanomindTemplate NanomindTemplate;

typedef struct NanomindMessage {
  NanomindBytes role;     // UTF-8
  NanomindBytes content;  // UTF-8
  int32_t pictures;       // -1: the content is given as a text; else as a list of so many pictures and then the text
  // The rest is UTF-8 too, and may be empty: then the template does not see it.
  NanomindBytes reasoning;     // what an assistant thought
  NanomindBytes tool_calls;    // JSON list of an assistant's calls, as OpenAI has them or {"name", "arguments"}
  NanomindBytes tool_call_id;  // of a tool's result
  NanomindBytes name;          // of the tool
} NanomindMessage;

typedef struct NanomindTemplateInput {
  const NanomindMessage* messages;
  size_t message_count;
  NanomindBytes bos_token;
  NanomindBytes eos_token;
  int32_t add_generation_prompt;  // 0 or 1
  NanomindBytes tools;            // JSON list; empty: none
  int32_t thinking;               // enable_thinking: 0 or 1; -1: the template's choice
} NanomindTemplateInput;

NanomindTemplate* nanomind_template_parse(NanomindBytes source, NanomindText* error);
// 0: `result` is the prompt; otherwise it is the error. Work, memory, depth and size of the output are bounded.
int32_t nanomind_template_render(const NanomindTemplate* chat_template, const NanomindTemplateInput* input,
                                 NanomindText* result);
void nanomind_template_free(NanomindTemplate* chat_template);

// ---- Constrained output ----

typedef struct NanomindVocabulary NanomindVocabulary;
typedef struct NanomindGrammar NanomindGrammar;

typedef struct NanomindVocabularyToken {
  NanomindBytes bytes;  // what the token stands for; the spelling of a control token
  int32_t control;      // 1: never matches text
} NanomindVocabularyToken;

typedef enum NanomindGrammarKind {
  NANOMIND_GRAMMAR_JSON_SCHEMA = 0,
  NANOMIND_GRAMMAR_REGEX = 1,
  NANOMIND_GRAMMAR_LARK = 2,
} NanomindGrammarKind;

// `end_token` is what a finished grammar allows.
NanomindVocabulary* nanomind_vocabulary_create(const NanomindVocabularyToken* tokens, size_t count, uint32_t end_token,
                                               NanomindText* error);
void nanomind_vocabulary_free(NanomindVocabulary* vocabulary);

// `kind` is a NanomindGrammarKind. The grammar keeps the vocabulary's data alive by itself.
NanomindGrammar* nanomind_grammar_create(const NanomindVocabulary* vocabulary, int32_t kind, NanomindBytes source,
                                         NanomindText* error);
void nanomind_grammar_free(NanomindGrammar* grammar);

// Sets bit i % 32 of words[i / 32] for every token i that may come next; word_count = ceil(vocabulary / 32). 0: done.
int32_t nanomind_grammar_mask(NanomindGrammar* grammar, uint32_t* words, size_t word_count, NanomindText* error);
// 0: `text` is what must come next (any bytes; empty when there is a choice); otherwise it is the error.
int32_t nanomind_grammar_forced(NanomindGrammar* grammar, NanomindText* text);
// Advances by one token. 0: done; otherwise the token was not allowed and the grammar must not be used further.
int32_t nanomind_grammar_accept(NanomindGrammar* grammar, uint32_t token, NanomindText* error);
// 1: nothing but the end token may follow. 2: the text is complete but may go on. 0: incomplete.
int32_t nanomind_grammar_state(NanomindGrammar* grammar);

#ifdef __cplusplus
}
#endif
