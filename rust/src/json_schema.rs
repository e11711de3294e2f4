// SPDX-License-Identifier: Apache-2.0
//! JSON schemas as people give them, and why one cannot be used.

use serde_json::{json, Map, Value};

/// Keywords that the compiler has no rule for are listed after this.
const UNKNOWN_KEYWORDS: &str = "Unimplemented keys: ";

/// The schema with the compiler's options.
pub fn read(source: &str) -> Result<Value, String> {
    let mut schema: Value =
        serde_json::from_str(source).map_err(|e| format!("The JSON schema is not valid JSON: {e}."))?;
    while let Value::Object(object) = &mut schema {
        match unwrapped(object) {
            Some(inner) => schema = inner,
            None => break,
        }
    }
    match &mut schema {
        Value::Bool(true) => schema = json!({}),
        Value::Bool(false) => return Err("The JSON schema is false, which no answer meets.".to_string()),
        Value::Object(_) => {}
        _ => return Err("A JSON schema is an object, or true.".to_string()),
    }
    // Takes the place of options in the schema, which are not for those who write it.
    schema["x-guidance"] = json!({ "coerce_one_of": true });
    Ok(schema)
}

/// What is in an envelope of OpenAI's interface or llama.cpp's, {"name": ..., "schema": ...} or
/// {"type": "json_schema", "json_schema": ...}. Neither key is a keyword of schemas, so as one it would allow anything.
fn unwrapped(object: &mut Map<String, Value>) -> Option<Value> {
    const BESIDE: [&str; 4] = ["type", "name", "description", "strict"];
    let inner = ["schema", "json_schema"].into_iter().find(|key| object.contains_key(*key))?;
    let is_envelope = object.keys().all(|key| key == inner || BESIDE.contains(&key.as_str()))
        && object.get("type").map_or(true, |kind| kind == "json_schema" || kind == "json_object");
    if is_envelope {
        object.remove(inner)
    } else {
        None
    }
}

/// The compiler's message for people who write schemas.
pub fn refusal(message: &str) -> String {
    let why = message.split("\n  while processing").next().unwrap_or(message).trim_end_matches('.');
    if let Some(keys) = why.strip_prefix(UNKNOWN_KEYWORDS) {
        let keys = keys.trim_matches(['[', ']']);
        return format!(
            "The JSON schema has {keys}, which answers cannot be kept to. Leave it out, or say it otherwise."
        );
    }
    if why.starts_with("Only absolute $ref") {
        return "The JSON schema has a \"$ref\" that does not begin with #/. Put what it refers to under \"$defs\" of \
                the same schema."
            .to_string();
    }
    if let Some(format) = why.strip_prefix("Unknown format: ") {
        return format!(
            "The JSON schema has \"format\": \"{format}\", which is not known. Leave it out, or use \"pattern\"."
        );
    }
    format!("The JSON schema cannot be used: {why}.")
}
