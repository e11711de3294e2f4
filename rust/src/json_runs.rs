// SPDX-License-Identifier: Apache-2.0
//! Counts white space between two JSON tokens, and digits in a row. The grammar allows any amount, and a small model that
//! likes either would go on until its budget is spent.

const SPACES_MAX: usize = 20;
/// More than any 64-bit number needs in decimal.
const DIGITS_MAX: usize = 24;

pub fn is_space(byte: u8) -> bool {
    matches!(byte, b' ' | b'\n' | b'\r' | b'\t')
}

#[derive(Default)]
pub struct JsonRuns {
    in_string: bool,
    escaped: bool,
    spaces: usize,
    digits: usize,
}

impl JsonRuns {
    /// Follows text that is valid JSON so far.
    pub fn push(&mut self, bytes: &[u8]) {
        for &byte in bytes {
            self.spaces = if !self.in_string && is_space(byte) { self.spaces + 1 } else { 0 };
            self.digits = if !self.in_string && byte.is_ascii_digit() { self.digits + 1 } else { 0 };
            if self.escaped {
                self.escaped = false;
            } else if byte == b'\\' {
                self.escaped = self.in_string;
            } else if byte == b'"' {
                self.in_string = !self.in_string;
            }
        }
    }

    pub fn enough_spaces(&self) -> bool {
        self.spaces >= SPACES_MAX
    }

    pub fn enough_digits(&self) -> bool {
        self.digits >= DIGITS_MAX
    }
}
