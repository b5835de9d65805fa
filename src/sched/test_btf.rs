//! Files with made-up BTF, for the tests.

use std::ffi::CString;
use std::fs;
use std::path::Path;

use libbpf_rs::libbpf_sys as sys;

/// A kernel type.
#[derive(Clone, Copy, Debug)]
pub enum Type {
    Enum(&'static str, &'static [(&'static str, i64)]),
    /// A struct and its members, all integers.
    Struct(&'static str, &'static [&'static str]),
    /// A function and its arguments, all integers.
    Function(&'static str, &'static [&'static str]),
}

/// The types that gthctl needs from a kernel, none of them malformed.
pub const SOUND: [Type; 3] = [
    Type::Enum(
        "scx_ops_flags",
        // kernel/sched/ext_internal.h.
        &[("SCX_OPS_ENQ_LAST", 1 << 1), ("SCX_OPS_ENQ_EXITING", 1 << 2)],
    ),
    Type::Struct("sched_ext_ops", &["cgroup_init", "cgroup_set_bandwidth"]),
    Type::Function("scx_bpf_kick_cpu", &["cpu", "flags"]),
];

/// Writes a file with the BTF of `types`.
pub fn write(path: &Path, types: &[Type]) {
    // SAFETY: only libbpf's own handle, C strings that live until the call ends, and its bytes
    // before they are freed.
    unsafe {
        let btf = sys::btf__new_empty();
        assert!(!btf.is_null());
        let int = sys::btf__add_int(btf, c"int".as_ptr(), 4, 1);
        assert!(int > 0);
        for one in types {
            add(btf, int, one);
        }
        let mut size = 0;
        let bytes = sys::btf__raw_data(btf, &raw mut size);
        fs::write(path, std::slice::from_raw_parts(bytes.cast(), size as usize)).unwrap();
        sys::btf__free(btf);
    }
}

/// # Safety
///
/// `btf` must be valid, and `int` one of its types.
unsafe fn add(btf: *mut sys::btf, int: i32, one: &Type) {
    let text = |text: &str| CString::new(text).unwrap();
    // SAFETY: as above; libbpf copies the names.
    unsafe {
        match *one {
            Type::Enum(name, values) => {
                assert!(sys::btf__add_enum(btf, text(name).as_ptr(), 4) > 0);
                for (value, number) in values {
                    let done = sys::btf__add_enum_value(btf, text(value).as_ptr(), *number);
                    assert_eq!(done, 0);
                }
            }
            Type::Struct(name, members) => {
                let size = 4 * members.len() as u32;
                assert!(sys::btf__add_struct(btf, text(name).as_ptr(), size) > 0);
                for (i, member) in members.iter().enumerate() {
                    let name = text(member);
                    let done = sys::btf__add_field(btf, name.as_ptr(), int, 32 * i as u32, 0);
                    assert_eq!(done, 0);
                }
            }
            Type::Function(name, arguments) => {
                let proto = sys::btf__add_func_proto(btf, int);
                for argument in arguments {
                    let name = text(argument);
                    assert_eq!(sys::btf__add_func_param(btf, name.as_ptr(), int), 0);
                }
                let global = sys::BTF_FUNC_GLOBAL;
                assert!(sys::btf__add_func(btf, text(name).as_ptr(), global, proto) > 0);
            }
        }
    }
}
