//! What BTF says about the kernel's functions: their ids, and which argument is the packet.

use std::ffi::CString;
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};
use std::ptr::NonNull;

use libbpf_rs::libbpf_sys as sys;
use libbpf_rs::query::BtfInfoIter;

/// The BTF of the kernel itself and of the requested modules.
pub struct KernelBtf {
    // Modules' BTF refers to the kernel's, so it is freed first.
    modules: Vec<(String, Option<Module>)>,
    kernel: Handle,
}

/// A function that BTF describes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BtfFunction {
    pub id: u32,
    /// A descriptor of the module's BTF object; 0 for the kernel's. Valid as long as the
    /// [`KernelBtf`].
    pub object: RawFd,
    /// Which argument is a `struct sk_buff *`, from 0.
    pub packet: Option<u8>,
}

struct Module {
    btf: Handle,
    /// A descriptor of the kernel's own object, for attaching programs.
    object: OwnedFd,
}

struct Handle(NonNull<sys::btf>);

impl Drop for Handle {
    fn drop(&mut self) {
        // SAFETY: it is from libbpf and is freed once.
        unsafe { sys::btf__free(self.0.as_ptr()) }
    }
}

/// Kinds of types (include/uapi/linux/btf.h).
const KIND_PTR: u32 = 2;
const KIND_STRUCT: u32 = 4;
const KIND_FUNC: u32 = 12;

impl KernelBtf {
    /// `None` when the kernel has no BTF.
    pub fn load() -> Option<Self> {
        // SAFETY: takes no arguments.
        let kernel = unsafe { sys::btf__load_vmlinux_btf() };
        Some(Self { modules: Vec::new(), kernel: Handle(NonNull::new(kernel)?) })
    }

    /// A function of the kernel, or of `module`; `None` if BTF does not have it.
    pub fn function(&mut self, symbol: &str, module: Option<&str>) -> Option<BtfFunction> {
        let symbol = CString::new(symbol).ok()?;
        let (btf, object) = match module {
            None => (&self.kernel, 0),
            Some(module) => {
                let module = self.module(module)?;
                (&module.btf, module.object.as_raw_fd())
            }
        };
        let btf = btf.0.as_ptr();
        // SAFETY: a valid handle and a C string; ids come from BTF that the kernel checked.
        unsafe {
            let id = sys::btf__find_by_name_kind(btf, symbol.as_ptr(), KIND_FUNC);
            let id = u32::try_from(id).ok().filter(|&id| id > 0)?;
            Some(BtfFunction { id, object, packet: packet(btf, id) })
        }
    }

    fn module(&mut self, name: &str) -> Option<&Module> {
        let known = self.modules.iter().position(|(known, _)| known == name);
        let place = known.unwrap_or_else(|| {
            self.modules.push((name.to_owned(), load_module(name, &self.kernel)));
            self.modules.len() - 1
        });
        self.modules[place].1.as_ref()
    }
}

fn load_module(name: &str, kernel: &Handle) -> Option<Module> {
    let info = BtfInfoIter::default().find(|info| info.name == name)?;
    // SAFETY: the arguments are a number and the kernel's BTF, which outlives the module's. We own
    // both results.
    unsafe {
        let object = sys::bpf_btf_get_fd_by_id(info.id);
        let object = (object >= 0).then(|| OwnedFd::from_raw_fd(object))?;
        let btf = sys::btf__load_from_kernel_by_id_split(info.id, kernel.0.as_ptr());
        Some(Module { btf: Handle(NonNull::new(btf)?), object })
    }
}

/// The first argument of the function `id` that points to a struct sk_buff.
///
/// # Safety
///
/// `btf` must be valid and `id` one of its functions.
unsafe fn packet(btf: *const sys::btf, id: u32) -> Option<u8> {
    // SAFETY: libbpf has checked that every id is that of a type. A FUNC refers to a FUNC_PROTO,
    // which is followed by its parameters (Documentation/bpf/btf.rst).
    unsafe {
        let type_of = |id: u32| sys::btf__type_by_id(btf, id).as_ref();
        let refers_to = |t: &sys::btf_type| t.__bindgen_anon_1.type_;
        let kind = |t: &sys::btf_type| t.info >> 24 & 0x1f;
        let proto = sys::btf__type_by_id(btf, refers_to(type_of(id)?));
        let count = proto.as_ref()?.info & 0xffff;
        let parameters = proto.add(1).cast::<sys::btf_param>();
        (0..count as usize).find_map(|i| {
            let pointer = type_of((*parameters.add(i)).type_).filter(|t| kind(t) == KIND_PTR)?;
            let target = type_of(refers_to(pointer)).filter(|t| kind(t) == KIND_STRUCT)?;
            let name = sys::btf__name_by_offset(btf, target.name_off);
            let name = std::ffi::CStr::from_ptr(name);
            (name == c"sk_buff").then_some(i as u8)
        })
    }
}
