// SPDX-License-Identifier: Apache-2.0
//! Counts white space between two JSON tokens. The grammar allows any amount, and a small model that likes spaces would go
//! on with them until its budget is spent.

const RUN_MAX: usize = 20;

pub fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

#[derive(Default)]
pub struct JsonSpaces {
    in_string: bool,
    escaped: bool,
    run: usize,
}

impl JsonSpaces {
    /// Follows text that is valid JSON so far.
    pub fn push(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.run = if !self.in_string && is_space(byte) { self.run + 1 } else { 0 };
            if self.escaped {
                self.escaped = false;
            } else if byte == b'\\' {
                self.escaped = self.in_string;
            } else if byte == b'"' {
                self.in_string = !self.in_string;
            }
        }
    }

    pub fn enough(&self) -> bool {
        self.run >= RUN_MAX
    }
}
