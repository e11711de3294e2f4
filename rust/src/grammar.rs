// SPDX-License-Identifier: Apache-2.0
//! Constrained output: which tokens may come next so that the text matches a JSON schema, a regex or a Lark grammar.

use std::sync::Arc;

use llguidance::api::TopLevelGrammar;
use llguidance::{Matcher, ParserFactory};
use toktrie::{ApproximateTokEnv, SimpleVob, TokEnv, TokRxInfo, TokTrie};

use crate::abi::{free_handle, into_handle, into_status, Bytes, Text};
use crate::guard::{caught, on_large_stack};
use crate::json_runs::{is_space, JsonRuns};
use crate::json_schema;

/// NanomindGrammarKind of the header.
const JSON_SCHEMA: i32 = 0;
const REGEX: i32 = 1;
const LARK: i32 = 2;

const SOURCE_BYTES_MAX: usize = 1 << 20;
/// The compilers recurse once or more per level; more levels than this are an attack, not a grammar.
const NESTING_MAX: usize = 500;

pub struct Vocabulary {
    factory: Arc<ParserFactory>,
    /// Tokens that begin with white space, and with a digit.
    spaces: Arc<SimpleVob>,
    digits: Arc<SimpleVob>,
}

pub struct Grammar {
    matcher: Matcher,
    environment: TokEnv,
    /// For JSON: how much white space and how many digits have just been written, and the tokens that would add to them.
    json: Option<Runs>,
    /// Whether the parser was ever asked what must come next.
    forcing: bool,
}

struct Runs {
    written: JsonRuns,
    /// None where the grammar itself says what white space there is.
    spaces: Option<Arc<SimpleVob>>,
    digits: Arc<SimpleVob>,
}

impl Runs {
    fn of(vocabulary: &Vocabulary, kind: i32, source: &str) -> Option<Self> {
        let digits = vocabulary.digits.clone();
        let spaces = match kind {
            JSON_SCHEMA => Some(vocabulary.spaces.clone()),
            LARK if source.contains("%json") => None,
            _ => return None,
        };
        Some(Runs { written: JsonRuns::default(), spaces, digits })
    }
}

impl Grammar {
    fn mask(&mut self) -> Result<SimpleVob, String> {
        if let Some(token) = self.forced_control_token() {
            return Ok(self.environment.tok_trie().singleton_token_set(token));
        }
        let mut mask = self.matcher.compute_mask_or_eos().map_err(|e| dead_end(e.to_string()))?;
        if let Some(runs) = &self.json {
            if let Some(spaces) = runs.spaces.as_ref().filter(|_| runs.written.enough_spaces()) {
                mask.sub(spaces);
            }
            if runs.written.enough_digits() {
                mask.sub(&runs.digits);
            }
        }
        Ok(mask)
    }

    /// The parser holds a control token that it was made to force as marker and "[id]", which no token spells: without
    /// this the mask would be empty.
    fn forced_control_token(&mut self) -> Option<u32> {
        if !self.forcing || self.matcher.is_stopped() {
            return None;
        }
        let bytes = self.matcher.compute_ff_bytes();
        let id = bytes.strip_prefix(&[TokTrie::SPECIAL_TOKEN_MARKER, b'['])?;
        let digits = id.iter().take_while(|byte| byte.is_ascii_digit()).count();
        std::str::from_utf8(&id[..digits]).ok()?.parse().ok()
    }

    fn forced(&mut self) -> Result<Vec<u8>, String> {
        if self.matcher.is_stopped() {
            return Ok(Vec::new());
        }
        self.forcing = true;
        let mut bytes = self.matcher.compute_ff_bytes();
        // From a control token on it is no text.
        let text = bytes.iter().position(|&byte| byte == TokTrie::SPECIAL_TOKEN_MARKER).unwrap_or(bytes.len());
        bytes.truncate(text);
        Ok(bytes)
    }

    fn accept(&mut self, token: u32) -> Result<(), String> {
        self.matcher.consume_token(token).map_err(|e| e.to_string())?;
        if let Some(runs) = &mut self.json {
            runs.written.push(self.environment.tok_trie().token(token));
        }
        Ok(())
    }
}

/// Of a grammar that is well formed, and yet allows nothing.
fn dead_end(message: String) -> String {
    if !message.starts_with("NoExtensionBias") {
        return message;
    }
    "No text meets the schema or grammar: it refers to itself on every way, so that an answer would have no end, or its \
     parts contradict each other."
        .to_string()
}

#[repr(C)]
pub struct VocabularyToken {
    bytes: Bytes,
    control: i32,
}

fn build_vocabulary(words: Vec<Vec<u8>>, end_token: u32) -> Result<Vocabulary, String> {
    let count = u32::try_from(words.len()).map_err(|_| "The vocabulary is too large.".to_string())?;
    if end_token >= count {
        return Err(format!("The end token {end_token} is not in the vocabulary of {count} tokens."));
    }
    let trie = TokTrie::from(&TokRxInfo::new(count, end_token), &words);
    let environment: TokEnv = Arc::new(ApproximateTokEnv::new(trie));
    let mut factory = ParserFactory::new_simple(&environment).map_err(|e| e.to_string())?;
    factory.quiet();
    // Error texts go to users, who have no use for the parser's state.
    factory.limits_mut().verbose_errors = false;
    let starting_with = |begins: fn(u8) -> bool| {
        let mut set = environment.tok_trie().alloc_token_set();
        for (id, word) in (0u32..).zip(&words) {
            if word.first().is_some_and(|byte| begins(*byte)) {
                set.allow_token(id);
            }
        }
        Arc::new(set)
    };
    let spaces = starting_with(is_space);
    let digits = starting_with(|byte| byte.is_ascii_digit());
    Ok(Vocabulary { factory: Arc::new(factory), spaces, digits })
}

/// Levels of brackets, counted without regard to quotes: a bound, not a parser.
fn nesting(source: &str) -> usize {
    let (mut level, mut deepest) = (0usize, 0usize);
    for byte in source.bytes() {
        match byte {
            b'(' | b'[' | b'{' => level += 1,
            b')' | b']' | b'}' => level = level.saturating_sub(1),
            _ => {}
        }
        deepest = deepest.max(level);
    }
    deepest
}

fn build_grammar(vocabulary: &Vocabulary, kind: i32, source: &str) -> Result<Grammar, String> {
    if source.len() > SOURCE_BYTES_MAX {
        return Err(format!("The grammar has {} bytes; at most {SOURCE_BYTES_MAX} are accepted.", source.len()));
    }
    let levels = nesting(source);
    if levels > NESTING_MAX {
        return Err(format!("The grammar is nested {levels} levels deep; at most {NESTING_MAX} are accepted."));
    }
    let grammar = match kind {
        JSON_SCHEMA => TopLevelGrammar::from_json_schema(json_schema::read(source)?),
        REGEX => TopLevelGrammar::from_regex(source),
        LARK => TopLevelGrammar::from_lark(source.to_string()),
        _ => return Err(format!("Unknown kind of grammar: {kind}.")),
    };
    let factory = &vocabulary.factory;
    let refuse = |message: String| match kind {
        JSON_SCHEMA => json_schema::refusal(&message),
        _ => format!("The grammar cannot be used: {message}."),
    };
    let parser = factory.create_parser(grammar).map_err(|e| refuse(e.to_string()))?;
    let matcher = Matcher::new(Ok(parser));
    match matcher.get_error() {
        Some(message) => Err(refuse(message)),
        None => Ok(Grammar {
            matcher,
            environment: factory.tok_env().clone(),
            json: Runs::of(vocabulary, kind, source),
            forcing: false,
        }),
    }
}

/// # Safety
/// Arguments as the header says.
#[no_mangle]
pub unsafe extern "C" fn nanomind_vocabulary_create(
    tokens: *const VocabularyToken,
    count: usize,
    end_token: u32,
    error: *mut Text,
) -> *mut Vocabulary {
    let mut words = Vec::with_capacity(count);
    for i in 0..count {
        let token = &*tokens.add(i);
        let bytes = token.bytes.as_slice();
        let mut word = Vec::with_capacity(bytes.len() + 1);
        if token.control != 0 {
            word.push(TokTrie::SPECIAL_TOKEN_MARKER);
        }
        word.extend_from_slice(bytes);
        words.push(word);
    }
    into_handle(on_large_stack(move || build_vocabulary(words, end_token)), error)
}

/// # Safety
/// Arguments as the header says.
#[no_mangle]
pub unsafe extern "C" fn nanomind_vocabulary_free(vocabulary: *mut Vocabulary) {
    free_handle(vocabulary);
}

/// # Safety
/// Arguments as the header says.
#[no_mangle]
pub unsafe extern "C" fn nanomind_grammar_create(
    vocabulary: *const Vocabulary,
    kind: i32,
    source: Bytes,
    error: *mut Text,
) -> *mut Grammar {
    let vocabulary = &*vocabulary;
    let source = source.as_str("The grammar");
    into_handle(source.and_then(|source| on_large_stack(|| build_grammar(vocabulary, kind, source))), error)
}

/// # Safety
/// Arguments as the header says.
#[no_mangle]
pub unsafe extern "C" fn nanomind_grammar_free(grammar: *mut Grammar) {
    free_handle(grammar);
}

/// # Safety
/// Arguments as the header says.
#[no_mangle]
pub unsafe extern "C" fn nanomind_grammar_mask(
    grammar: *mut Grammar,
    words: *mut u32,
    word_count: usize,
    error: *mut Text,
) -> i32 {
    let grammar = &mut *grammar;
    let words = std::slice::from_raw_parts_mut(words, word_count);
    let computed = caught(|| {
        let mask = grammar.mask()?;
        words.fill(0);
        let count = words.len().min(mask.as_slice().len());
        words[..count].copy_from_slice(&mask.as_slice()[..count]);
        Ok(())
    });
    into_status(computed, error)
}

/// # Safety
/// Arguments as the header says.
#[no_mangle]
pub unsafe extern "C" fn nanomind_grammar_forced(grammar: *mut Grammar, text: *mut Text) -> i32 {
    let grammar = &mut *grammar;
    let forced = caught(|| grammar.forced());
    let status = i32::from(forced.is_err());
    *text = forced.map_or_else(Text::from, Text::from_bytes);
    status
}

/// # Safety
/// Arguments as the header says.
#[no_mangle]
pub unsafe extern "C" fn nanomind_grammar_accept(grammar: *mut Grammar, token: u32, error: *mut Text) -> i32 {
    let grammar = &mut *grammar;
    into_status(caught(|| grammar.accept(token)), error)
}

/// # Safety
/// Arguments as the header says.
#[no_mangle]
pub unsafe extern "C" fn nanomind_grammar_state(grammar: *mut Grammar) -> i32 {
    let matcher = &mut (*grammar).matcher;
    if matcher.is_stopped() {
        return 1;
    }
    match caught(|| matcher.is_accepting().map_err(|e| e.to_string())) {
        Ok(true) => 2,
        _ => 0,
    }
}
