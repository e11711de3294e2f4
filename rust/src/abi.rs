// SPDX-License-Identifier: Apache-2.0
//! The plain types that cross the C ABI; their twins are in `include/nanomind_rust.h`.

use std::ptr;

/// Bytes lent by the caller for one call.
#[repr(C)]
#[derive(Clone, Copy)]
pub struct Bytes {
    data: *const u8,
    size: usize,
}

impl Bytes {
    /// # Safety
    /// `data` points to `size` readable bytes that outlive the result, or `size` is 0.
    pub unsafe fn as_slice<'a>(&self) -> &'a [u8] {
        if self.size == 0 {
            &[]
        } else {
            std::slice::from_raw_parts(self.data, self.size)
        }
    }

    /// The bytes as text; the error names `what` and where it stops being UTF-8.
    ///
    /// # Safety
    /// As for `as_slice`.
    pub unsafe fn as_str<'a>(&self, what: &str) -> Result<&'a str, String> {
        std::str::from_utf8(self.as_slice())
            .map_err(|e| format!("{what} is not valid UTF-8 at byte {}.", e.valid_up_to()))
    }
}

/// Text handed to the caller, who gives it back with `nanomind_text_release`.
#[repr(C)]
pub struct Text {
    data: *mut u8,
    size: usize,
    capacity: usize,
}

impl Text {
    pub fn empty() -> Self {
        Text { data: ptr::null_mut(), size: 0, capacity: 0 }
    }

    pub fn from(string: String) -> Self {
        Text::from_bytes(string.into_bytes())
    }

    pub fn from_bytes(bytes: Vec<u8>) -> Self {
        let mut bytes = std::mem::ManuallyDrop::new(bytes);
        Text { data: bytes.as_mut_ptr(), size: bytes.len(), capacity: bytes.capacity() }
    }
}

/// # Safety
/// `text` is NULL, or was filled by this library or is empty.
#[no_mangle]
pub unsafe extern "C" fn nanomind_text_release(text: *mut Text) {
    if let Some(text) = text.as_mut() {
        if !text.data.is_null() {
            drop(Vec::from_raw_parts(text.data, text.size, text.capacity));
        }
        *text = Text::empty();
    }
}

/// Stores the error, if any, and returns a handle for the value or NULL.
///
/// # Safety
/// `error` is writable.
pub unsafe fn into_handle<T>(result: Result<T, String>, error: *mut Text) -> *mut T {
    match result {
        Ok(value) => Box::into_raw(Box::new(value)),
        Err(message) => {
            *error = Text::from(message);
            ptr::null_mut()
        }
    }
}

/// Stores the error, if any, and returns 0 or 1.
///
/// # Safety
/// `error` is writable.
pub unsafe fn into_status(result: Result<(), String>, error: *mut Text) -> i32 {
    match result {
        Ok(()) => 0,
        Err(message) => {
            *error = Text::from(message);
            1
        }
    }
}

/// # Safety
/// `handle` is NULL or came from `into_handle` and was not freed.
pub unsafe fn free_handle<T>(handle: *mut T) {
    if !handle.is_null() {
        drop(Box::from_raw(handle));
    }
}
