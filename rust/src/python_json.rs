// SPDX-License-Identifier: Apache-2.0
//! JSON spelled as Python's `json.dumps(value, ensure_ascii=False)` does, because models were trained on prompts that
//! contain exactly those spaces. minijinja's own `tojson` escapes for HTML, which templates of models do not expect.

use std::io;

use minijinja::value::{Kwargs, Value};
use minijinja::{Error, ErrorKind, State};
use serde::Serialize;
use serde_json::ser::{Formatter, PrettyFormatter, Serializer};

/// One fuel pays for 64 bytes elsewhere in the engine; serialising is about 16 times as much work.
const BYTES_PER_FUEL: usize = 4;

struct OneLine;

impl Formatter for OneLine {
    fn begin_array_value<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        if first {
            Ok(())
        } else {
            writer.write_all(b", ")
        }
    }

    fn begin_object_key<W: ?Sized + io::Write>(&mut self, writer: &mut W, first: bool) -> io::Result<()> {
        self.begin_array_value(writer, first)
    }

    fn begin_object_value<W: ?Sized + io::Write>(&mut self, writer: &mut W) -> io::Result<()> {
        writer.write_all(b": ")
    }
}

/// Collects output and takes fuel for it, so that a small value that repeats itself cannot fill memory.
struct Metered<'a, 'template, 'env> {
    state: &'a State<'template, 'env>,
    bytes: Vec<u8>,
}

impl io::Write for Metered<'_, '_, '_> {
    fn write(&mut self, data: &[u8]) -> io::Result<usize> {
        let fuel = data.len().div_ceil(BYTES_PER_FUEL) as u64;
        self.state.consume_fuel(fuel).map_err(io::Error::other)?;
        self.bytes.extend_from_slice(data);
        Ok(data.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

/// The filter `tojson(indent=none)`.
pub fn tojson(state: &State, value: Value, options: Kwargs) -> Result<Value, Error> {
    let indent: Option<usize> = options.get("indent")?;
    // Accepted because templates pass it; not escaping is what they get anyway.
    let _ensure_ascii: Option<bool> = options.get("ensure_ascii")?;
    options.assert_all_used()?;
    let mut writer = Metered { state, bytes: Vec::new() };
    let done = match indent {
        None => value.serialize(&mut Serializer::with_formatter(&mut writer, OneLine)),
        Some(width) => {
            let spaces = vec![b' '; width.min(16)];
            value.serialize(&mut Serializer::with_formatter(&mut writer, PrettyFormatter::with_indent(&spaces)))
        }
    };
    done.map_err(|e| Error::new(ErrorKind::InvalidOperation, format!("cannot write the value as JSON: {e}")))?;
    let text = String::from_utf8(writer.bytes).map_err(|e| Error::new(ErrorKind::InvalidOperation, e.to_string()))?;
    Ok(Value::from(text))
}
