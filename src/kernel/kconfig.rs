//! The options that the kernel was built with.

use std::collections::BTreeMap;
use std::ffi::{CString, c_char, c_int, c_uint, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::ptr::NonNull;

use crate::base::root::Root;

/// The most bytes of a config that are read. Debian's has 300,000.
const MOST: usize = 8 << 20;

/// A kernel's config: its file, and the options that are set.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kconfig {
    pub file: PathBuf,
    options: BTreeMap<String, String>,
}

impl Kconfig {
    /// The config of the running kernel, whose release is `release`. `None` if no file with it
    /// can be read.
    ///
    /// The kernel itself shows its config if it was built with CONFIG_IKCONFIG_PROC (init/Kconfig).
    /// Distributions install the config in /boot or beside the modules.
    pub fn read(root: &Root, release: &str) -> Option<Self> {
        let places = [
            "/proc/config.gz".to_owned(),
            format!("/boot/config-{release}"),
            format!("/lib/modules/{release}/config"),
            format!("/usr/lib/modules/{release}/config"),
        ];
        places.iter().find_map(|place| {
            let options = parse(&String::from_utf8(unpacked(&root.path(place))?).ok()?);
            (!options.is_empty()).then(|| Self { file: place.into(), options })
        })
    }

    /// Whether the option is set, as built in or as a module.
    pub fn has(&self, name: &str) -> bool {
        self.options.get(name).is_some_and(|value| value == "y" || value == "m")
    }
}

/// Lines such as `CONFIG_BPF_JIT=y`. An option that is not set is a comment, or missing
/// (Documentation/kbuild/kconfig-language.rst).
fn parse(text: &str) -> BTreeMap<String, String> {
    let set = text.lines().filter(|line| line.starts_with("CONFIG_"));
    let pair = |line: &str| {
        let (name, value) = line.split_once('=')?;
        Some((name.to_owned(), value.trim().to_owned()))
    };
    set.filter_map(pair).collect()
}

// zlib, which libbpf and libelf bring in; libbpf reads the kernel's config with it, too.
// Declared as in zlib.h.
unsafe extern "C" {
    fn gzopen(path: *const c_char, mode: *const c_char) -> *mut c_void;
    fn gzread(file: *mut c_void, buffer: *mut c_void, length: c_uint) -> c_int;
    fn gzclose(file: *mut c_void) -> c_int;
}

/// The file's content, decompressed if gzip compressed it; `None` if the file cannot be read.
fn unpacked(path: &Path) -> Option<Vec<u8>> {
    let name = CString::new(path.as_os_str().as_bytes()).ok()?;
    // SAFETY: two C strings.
    let file = NonNull::new(unsafe { gzopen(name.as_ptr(), c"rb".as_ptr()) })?;
    let (mut bytes, mut part) = (Vec::new(), [0_u8; 1 << 16]);
    let complete = loop {
        // SAFETY: an open file, and a buffer of that length.
        let n = unsafe { gzread(file.as_ptr(), part.as_mut_ptr().cast(), part.len() as c_uint) };
        match usize::try_from(n) {
            Ok(0) => break true,
            Ok(n) if bytes.len() + n <= MOST => bytes.extend_from_slice(&part[..n]),
            _ => break false,
        }
    };
    // SAFETY: an open file, which is not used any more.
    let closed = unsafe { gzclose(file.as_ptr()) } == 0;
    (complete && closed).then_some(bytes)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    const TEXT: &str =
        "# x\nCONFIG_BPF_JIT=y\n# CONFIG_SCHED_CLASS_EXT is not set\nCONFIG_HZ=250\n";
    /// [`TEXT`], compressed by gzip(1).
    const PACKED: [u8; 80] = [
        31, 139, 8, 0, 0, 0, 0, 0, 2, 3, 83, 86, 168, 224, 114, 246, 247, 115, 243, 116, 143, 119,
        10, 112, 139, 247, 242, 12, 177, 173, 228, 82, 86, 128, 10, 5, 59, 123, 184, 186, 196, 59,
        251, 56, 6, 7, 199, 187, 70, 132, 40, 100, 22, 43, 228, 229, 151, 40, 20, 167, 150, 192,
        52, 121, 68, 217, 26, 153, 26, 112, 1, 0, 162, 110, 30, 230, 71, 0, 0, 0,
    ];

    fn root(files: &[(&str, &[u8])]) -> (tempfile::TempDir, Root) {
        let dir = tempfile::tempdir().unwrap();
        for (name, content) in files {
            let path = dir.path().join(name);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, content).unwrap();
        }
        let root = Root::at(dir.path());
        (dir, root)
    }

    #[test]
    fn compressed_and_plain_files_say_the_same() {
        for (file, content) in
            [("proc/config.gz", &PACKED[..]), ("boot/config-7.2.0", TEXT.as_bytes())]
        {
            let (_dir, root) = root(&[(file, content)]);
            let config = Kconfig::read(&root, "7.2.0").unwrap();
            assert_eq!(config.file, Path::new("/").join(file));
            assert!(config.has("CONFIG_BPF_JIT"));
            assert!(!config.has("CONFIG_SCHED_CLASS_EXT"));
            assert!(!config.has("CONFIG_HZ") && !config.has("CONFIG_BPF"));
        }
    }

    #[test]
    fn another_kernels_config_and_damaged_ones_are_none() {
        let (_dir, root) = root(&[
            ("boot/config-6.1.0", TEXT.as_bytes()),
            ("proc/config.gz", &PACKED[..40]),
            ("lib/modules/7.2.0/config", b"nothing"),
        ]);
        assert_eq!(Kconfig::read(&root, "7.2.0"), None);
    }
}
