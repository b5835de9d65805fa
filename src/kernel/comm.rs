//! Text from BPF, such as a task's name.

/// The text up to the first NUL; a name need not be UTF-8.
pub fn text(bytes: &[i8]) -> String {
    let bytes: Vec<u8> = bytes.iter().map(|&c| c as u8).take_while(|&c| c != 0).collect();
    String::from_utf8_lossy(&bytes).into_owned()
}
