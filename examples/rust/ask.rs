//! A compiler in Rust asks a model, by the C API alone. README.md has the commands.
use std::ffi::{c_char, c_int, c_void, CStr, CString};

const INT64: c_int = 5;
const FLOAT32: c_int = 11;

#[repr(C)]
struct Runner {
    _opaque: [u8; 0],
}

extern "C" {
    fn shmb_open(url: *const c_char, options: *const c_void, out: *mut *mut Runner) -> c_int;
    fn shmb_feature(
        r: *mut Runner, name: *const c_char, dtype: c_int, rank: i32, dims: *const i64,
    ) -> *mut c_void;
    fn shmb_evaluate_number(r: *mut Runner, dtype: c_int, advice: *mut c_void) -> c_int;
    fn shmb_error_message(r: *const Runner) -> *const c_char;
    fn shmb_close(r: *mut Runner);
}

/// Asks one model. It belongs to one thread at a time.
struct Asker(*mut Runner);

impl Asker {
    /// If there is no model, `ask` says why.
    fn open(url: &str) -> Asker {
        let url = CString::new(url).expect("a URL without a zero byte");
        let mut runner = std::ptr::null_mut();
        unsafe { shmb_open(url.as_ptr(), std::ptr::null(), &mut runner) };
        Asker(runner)
    }

    /// Sends the features, which are copied into shared memory, and waits for the advice.
    fn ask(&mut self, features: &[f32]) -> Result<i64, String> {
        let (dims, mut advice) = ([features.len() as i64], 0i64);
        unsafe {
            let to = shmb_feature(self.0, c"features".as_ptr(), FLOAT32, 1, dims.as_ptr());
            if !to.is_null() {
                std::ptr::copy_nonoverlapping(features.as_ptr(), to.cast(), features.len());
            }
            match shmb_evaluate_number(self.0, INT64, (&mut advice as *mut i64).cast()) {
                0 => Ok(advice),
                _ => Err(CStr::from_ptr(shmb_error_message(self.0)).to_string_lossy().into()),
            }
        }
    }
}

impl Drop for Asker {
    fn drop(&mut self) {
        unsafe { shmb_close(self.0) }
    }
}

fn main() {
    let mut asker = Asker::open(&std::env::args().nth(1).unwrap_or("shm://first".into()));
    for statements in [4, 8, 12] {
        let mut features = [0f32; 16];
        features[1] = statements as f32;
        let advice = asker.ask(&features).unwrap_or_else(|error| {
            eprintln!("{error}");
            0 // the compiler's own heuristic
        });
        println!("{statements} statements: {}", if advice == 1 { "inline" } else { "call" });
    }
}
