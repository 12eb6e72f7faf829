//! Prints the branches and the gaps of a recording. Usage: walk RECORDING
//!
//!     bindgen PREFIX/include/ptdecode/ptdecode.h -o ptdecode.rs
//!     PTDECODE_RS=$PWD/ptdecode.rs rustc -O walk.rs -L PREFIX/lib -l ptdecode
#[allow(dead_code, non_camel_case_types, non_snake_case, non_upper_case_globals)]
mod ffi {
    include!(env!("PTDECODE_RS"));
}
use ffi::*;
use std::ffi::{CStr, CString};
use std::io::Write;
use std::os::raw::c_char;
use std::{mem, ptr, slice};

/// A struct that begins with its size; its other fields are zero.
macro_rules! sized {
    ($name:ident) => {{
        let mut value: $name = unsafe { mem::zeroed() };
        value.size = mem::size_of::<$name>();
        value
    }};
}

fn text(from: *const c_char) -> String {
    if from.is_null() { String::new() } else { unsafe { CStr::from_ptr(from) }.to_string_lossy().into_owned() }
}

/// The code if it is PTD_OK or PTD_END, otherwise the library's sentence.
fn checked(code: ptd_code, message: *mut c_char) -> Result<ptd_code, String> {
    let sentence = text(message);
    unsafe { ptd_free(message.cast()) };
    if code <= PTD_END as ptd_code { Ok(code) } else { Err(format!("{} ({})", sentence, text(unsafe { ptd_code_name(code) }))) }
}

struct Cursor(*mut ptd_cursor);
impl Cursor {
    fn open(path: &str) -> Result<Cursor, String> {
        let path = CString::new(path).map_err(|error| error.to_string())?;
        let (mut recording, mut cursor, mut message) = (ptr::null_mut(), ptr::null_mut(), ptr::null_mut());
        checked(unsafe { ptd_open(path.as_ptr(), ptr::null(), &mut recording, &mut message) }, message)?;
        let mut options = sized!(ptd_cursor_options);
        options.stream = PTD_NONE; // all, in order of time
        options.kind = ptd_cursor_kind_PTD_CURSOR_BRANCHES as i32;
        let code = unsafe { ptd_cursor_open(recording, &options, &mut cursor, &mut message) };
        unsafe { ptd_close(recording) }; // the cursor keeps what it needs
        checked(code, message)?;
        Ok(Cursor(cursor))
    }
    /// False: there are no more items.
    fn next(&mut self, item: &mut ptd_item) -> Result<bool, String> {
        let mut message = ptr::null_mut();
        let code = unsafe { ptd_cursor_next(self.0, item, &mut message) };
        Ok(checked(code, message)? == PTD_OK as ptd_code)
    }
}
impl Drop for Cursor {
    fn drop(&mut self) {
        unsafe { ptd_cursor_free(self.0) };
    }
}

fn main() -> Result<(), String> {
    let path = std::env::args().nth(1).ok_or("usage: walk RECORDING")?;
    let mut out = std::io::BufWriter::new(std::io::stdout());
    let mut cursor = Cursor::open(&path)?;
    let mut item = sized!(ptd_item);
    let (mut branches, mut gaps) = (0, 0);
    while cursor.next(&mut item)? {
        if item.kind == ptd_item_kind_PTD_ITEM_GAP as i32 {
            let gap = unsafe { item.u.gap };
            writeln!(out, "{} tid {} gap: {}", item.time_ns, item.tid, text(gap.sentence)).map_err(|error| error.to_string())?;
            gaps += 1;
            continue;
        }
        let run = unsafe { slice::from_raw_parts(item.u.branches.branches, item.u.branches.count) };
        for branch in run {
            writeln!(out, "{} tid {} {} {:x} -> {:x}", item.time_ns, item.tid, text(branch.kind), branch.from, branch.to)
                .map_err(|error| error.to_string())?;
        }
        branches += run.len();
    }
    writeln!(out, "{} branches, {} gaps", branches, gaps).map_err(|error| error.to_string())
}
