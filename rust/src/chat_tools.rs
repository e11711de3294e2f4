// SPDX-License-Identifier: Apache-2.0
//! Tools and tool calls as chat templates expect them: objects, with arguments that are objects too where they can be.

use serde_json::{json, Map, Value};

/// A list of tools, {"type": "function", "function": {...}} or the inner object alone; empty text means none.
pub fn tools(text: &str) -> Result<Value, String> {
    if text.is_empty() {
        return Ok(Value::Null);
    }
    let value: Value = serde_json::from_str(text).map_err(|e| format!("The tools are not valid JSON: {e}."))?;
    let Value::Array(list) = value else {
        return Err("The tools must be a JSON list.".to_string());
    };
    if list.is_empty() {
        return Ok(Value::Null);
    }
    let wrapped = list.into_iter().enumerate().map(|(i, tool)| {
        let function = tool.get("function").unwrap_or(&tool);
        if !function.get("name").is_some_and(Value::is_string) {
            return Err(format!("Tool {} has no name.", i + 1));
        }
        Ok(if tool.get("function").is_some() { tool } else { json!({"type": "function", "function": tool}) })
    });
    wrapped.collect::<Result<Vec<_>, _>>().map(Value::Array)
}

/// Arguments are an object, or a text with one. What a model wrote wrongly stays the text that it is: a conversation must
/// not become impossible to go on with because of one call.
fn arguments(value: Option<Value>) -> Value {
    match value {
        None | Some(Value::Null) => Value::Object(Map::new()),
        Some(Value::String(text)) if text.trim().is_empty() => Value::Object(Map::new()),
        Some(Value::String(text)) => match serde_json::from_str::<Value>(&text) {
            Ok(object @ Value::Object(_)) => object,
            _ => Value::String(text),
        },
        Some(value) => value,
    }
}

/// The calls of an assistant's message, in the form that OpenAI has or as {"name", "arguments"}; empty text means none.
pub fn calls(text: &str, message: usize) -> Result<Option<Value>, String> {
    if text.is_empty() {
        return Ok(None);
    }
    let value: Value = serde_json::from_str(text)
        .map_err(|e| format!("The tool calls of message {message} are not valid JSON: {e}."))?;
    let Value::Array(list) = value else {
        return Err(format!("The tool calls of message {message} must be a JSON list."));
    };
    let mut normalised = Vec::with_capacity(list.len());
    for mut call in list {
        let mut function = match call.get_mut("function") {
            Some(inner) => inner.take(),
            None => call.clone(),
        };
        let Some(object) = function.as_object_mut().filter(|f| f.get("name").is_some_and(Value::is_string)) else {
            return Err(format!("A tool call of message {message} has no name."));
        };
        let given = object.remove("arguments");
        let mut named = json!({"name": object.get("name"), "arguments": arguments(given)});
        let mut entry = json!({"type": "function", "function": named.take()});
        if let Some(id) = call.get("id").filter(|id| id.is_string()) {
            entry["id"] = id.clone();
        }
        normalised.push(entry);
    }
    Ok((!normalised.is_empty()).then_some(Value::Array(normalised)))
}
