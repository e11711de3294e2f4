// SPDX-License-Identifier: Apache-2.0
//! Chat templates as Hugging Face writes them: Jinja with trim_blocks and lstrip_blocks, Python's string methods,
//! `raise_exception`, `strftime_now` and Python's spelling of JSON.

use std::ffi::CString;
use std::sync::Arc;

use minijinja::syntax::SyntaxConfig;
use minijinja::value::{Serde, Value};
use minijinja::{context, AutoEscape, Environment, Error, ErrorKind, State, UndefinedBehavior};

use crate::abi::{free_handle, into_handle, Bytes, Text};
use crate::chat_tools;
use crate::guard::on_large_stack;
use crate::python_json;

const NAME: &str = "chat_template";
/// The longest template seen in the wild has 30 kB.
const SOURCE_BYTES_MAX: usize = 512 << 10;
/// One fuel is one instruction or 64 bytes of data. A usual chat takes a few thousand.
const BASE_FUEL: u64 = 1_000_000;
/// Every byte of the conversation pays for being copied this many times 64.
const FUEL_PER_INPUT_BYTE: u64 = 1;
const RECURSION_MAX: usize = 100;
/// Output beyond the conversation itself.
const EXTRA_OUTPUT_BYTES_MAX: usize = 16 << 20;

pub struct Template {
    environment: Arc<Environment<'static>>,
}

#[repr(C)]
pub struct Message {
    role: Bytes,
    content: Bytes,
    pictures: i32,
    reasoning: Bytes,
    tool_calls: Bytes,
    tool_call_id: Bytes,
    name: Bytes,
}

#[repr(C)]
pub struct TemplateInput {
    messages: *const Message,
    message_count: usize,
    bos_token: Bytes,
    eos_token: Bytes,
    add_generation_prompt: i32,
    tools: Bytes,
    thinking: i32,
}

fn raise_exception(message: String) -> Result<Value, Error> {
    Err(Error::new(ErrorKind::InvalidOperation, message))
}

fn strftime_now(format: String) -> Result<String, Error> {
    let invalid = || Error::new(ErrorKind::InvalidOperation, "strftime_now cannot use this format");
    let format = CString::new(format).map_err(|_| invalid())?;
    let mut text = [0u8; 256];
    // SAFETY: all pointers are to live locals; strftime writes at most text.len() bytes and says how many.
    let written = unsafe {
        let now = libc::time(std::ptr::null_mut());
        let mut local: libc::tm = std::mem::zeroed();
        if libc::localtime_r(&now, &mut local).is_null() {
            return Err(invalid());
        }
        libc::strftime(text.as_mut_ptr().cast(), text.len(), format.as_ptr(), &local)
    };
    if written == 0 && !format.is_empty() {
        return Err(invalid());
    }
    String::from_utf8(text[..written].to_vec()).map_err(|_| invalid())
}

/// Methods cost what they read; the engine charges only for what they return.
fn string_method(state: &mut State, value: &Value, method: &str, arguments: &[Value]) -> Result<Value, Error> {
    let read =
        value.as_str().map_or(0, str::len) + arguments.iter().filter_map(|a| a.as_str()).map(str::len).sum::<usize>();
    state.consume_fuel(read as u64 / 64)?;
    minijinja_contrib::pycompat::unknown_method_callback(state, value, method, arguments)
}

/// The engine's message with the line of the template that failed.
fn describe(error: &Error, source: &str) -> String {
    let mut text = match error.kind() {
        ErrorKind::OutOfFuel => "The chat template does too much work; it was stopped.".to_string(),
        kind => match error.detail() {
            Some(detail) => format!("The chat template failed: {detail}."),
            None => format!("The chat template failed: {kind}."),
        },
    };
    if let Some(number) = error.line() {
        let line: String =
            source.lines().nth(number.saturating_sub(1)).unwrap_or("").trim().chars().take(160).collect();
        text.push_str(&format!(" Line {number}: {line}"));
    }
    text
}

fn parse(source: &str) -> Result<Template, String> {
    if source.len() > SOURCE_BYTES_MAX {
        return Err(format!("The chat template has {} bytes; at most {SOURCE_BYTES_MAX} are accepted.", source.len()));
    }
    let mut environment = Environment::new();
    let syntax = SyntaxConfig::builder().trim_blocks(true).lstrip_blocks(true).build();
    environment.set_syntax(syntax.map_err(|e| e.to_string())?);
    environment.set_undefined_behavior(UndefinedBehavior::Lenient);
    environment.set_auto_escape_callback(|_| AutoEscape::None);
    environment.set_recursion_limit(RECURSION_MAX);
    environment.set_fuel(Some(BASE_FUEL));
    environment.set_unknown_method_callback(string_method);
    environment.add_function("raise_exception", raise_exception);
    environment.add_function("strftime_now", strftime_now);
    environment.add_filter("tojson", python_json::tojson);
    environment.add_template_owned(NAME, source.to_string()).map_err(|e| describe(&e, source))?;
    Ok(Template { environment: Arc::new(environment) })
}

/// A writer that refuses to grow beyond its limit.
struct Bounded {
    bytes: Vec<u8>,
    limit: usize,
}

impl std::io::Write for Bounded {
    fn write(&mut self, data: &[u8]) -> std::io::Result<usize> {
        if data.len() > self.limit - self.bytes.len() {
            return Err(std::io::Error::other("the output is too long"));
        }
        self.bytes.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> std::io::Result<()> {
        Ok(())
    }
}

struct Conversation<'a> {
    messages: Vec<Value>,
    bytes: usize,
    bos_token: &'a str,
    eos_token: &'a str,
    add_generation_prompt: bool,
    tools: Value,
    thinking: Option<bool>,
}

impl Template {
    fn render(&self, conversation: &Conversation) -> Result<String, String> {
        let input_bytes = conversation.bytes;
        let mut environment = (*self.environment).clone();
        environment.set_fuel(Some(BASE_FUEL + FUEL_PER_INPUT_BYTE * input_bytes as u64));
        let template = environment.get_template(NAME).map_err(|e| e.to_string())?;
        let mut output = Bounded { bytes: Vec::new(), limit: input_bytes.saturating_add(EXTRA_OUTPUT_BYTES_MAX) };
        let variables = context! {
            messages => &conversation.messages,
            bos_token => conversation.bos_token,
            eos_token => conversation.eos_token,
            add_generation_prompt => conversation.add_generation_prompt,
            tools => &conversation.tools,
            documents => Value::from(()),
        };
        template
            .render_captured_to(
                match conversation.thinking {
                    Some(enable_thinking) => context! { enable_thinking, ..variables },
                    None => variables,
                },
                &mut output,
            )
            .map_err(|e| describe(&e, template.source()))?;
        String::from_utf8(output.bytes).map_err(|_| "The chat template wrote invalid UTF-8.".to_string())
    }
}

/// # Safety
/// Arguments as the header says.
#[no_mangle]
pub unsafe extern "C" fn nanomind_template_parse(source: Bytes, error: *mut Text) -> *mut Template {
    let source = source.as_str("The chat template");
    into_handle(source.and_then(|source| on_large_stack(|| parse(source))), error)
}

/// A content as a list of parts: pictures, of which a template writes only where they stand, and the text.
fn parts(pictures: i32, text: &str) -> Value {
    let picture = || Value::from_pairs([("type", Value::from("image"))]);
    let text = Value::from_pairs([("type", Value::from("text")), ("text", Value::from(text))]);
    Value::from_iter((0..pictures).map(|_| picture()).chain([text]))
}

unsafe fn read_message(message: &Message, number: usize) -> Result<(Value, usize), String> {
    let mut bytes = 0;
    let mut fields = Vec::new();
    let texts = [
        ("role", message.role, "role"),
        ("content", message.content, "content"),
        ("reasoning_content", message.reasoning, "reasoning"),
        ("tool_call_id", message.tool_call_id, "id"),
        ("name", message.name, "name"),
    ];
    for (key, text, what) in texts {
        let text = text.as_str(&format!("The {what} of message {number}"))?;
        bytes += text.len();
        if key == "content" && message.pictures >= 0 {
            fields.push((key, parts(message.pictures, text)));
        } else if !text.is_empty() || key == "role" || key == "content" {
            fields.push((key, Value::from(text)));
        }
    }
    let calls = message.tool_calls.as_str(&format!("The list of calls of message {number}"))?;
    bytes += calls.len();
    if let Some(calls) = chat_tools::calls(calls, number)? {
        fields.push(("tool_calls", Value::from(Serde(calls))));
    }
    Ok((Value::from_pairs(fields), bytes))
}

unsafe fn read_input<'a>(input: &TemplateInput) -> Result<Conversation<'a>, String> {
    let mut messages = Vec::with_capacity(input.message_count);
    let tools = input.tools.as_str("The list of tools")?;
    let mut bytes = tools.len();
    for i in 0..input.message_count {
        let (message, size) = read_message(&*input.messages.add(i), i)?;
        messages.push(message);
        bytes += size;
    }
    Ok(Conversation {
        messages,
        bytes,
        bos_token: input.bos_token.as_str("The beginning token")?,
        eos_token: input.eos_token.as_str("The end token")?,
        add_generation_prompt: input.add_generation_prompt != 0,
        tools: Value::from(Serde(chat_tools::tools(tools)?)),
        thinking: (input.thinking >= 0).then_some(input.thinking != 0),
    })
}

/// # Safety
/// Arguments as the header says.
#[no_mangle]
pub unsafe extern "C" fn nanomind_template_render(
    template: *const Template,
    input: *const TemplateInput,
    result: *mut Text,
) -> i32 {
    let template = &*template;
    let rendered = read_input(&*input).and_then(|conversation| on_large_stack(|| template.render(&conversation)));
    let status = i32::from(rendered.is_err());
    *result = Text::from(rendered.unwrap_or_else(|message| message));
    status
}

/// # Safety
/// Arguments as the header says.
#[no_mangle]
pub unsafe extern "C" fn nanomind_template_free(template: *mut Template) {
    free_handle(template);
}
