// SPDX-License-Identifier: Apache-2.0
//! Rust libraries behind the C ABI of `include/nanomind_rust.h`: minijinja renders chat templates, llguidance constrains
//! output. No panic crosses the ABI: it becomes an error text. Nothing here prints.

mod abi;
mod chat_template;
mod chat_tools;
mod grammar;
mod guard;
mod json_runs;
mod json_schema;
mod line_editor;
mod python_json;
