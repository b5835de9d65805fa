//! The cgroups that the scheduler knows, by their paths.

use std::collections::BTreeMap;

use libbpf_rs::{MapCore, MapFlags, MapImpl};

use crate::base::error::{Error, Result};
use crate::kernel::skeletons::scheduler::types::{group, group_name};

/// The number of the root, which has no record of its own.
const ROOT: u32 = 0;

/// The paths of all cgroups with the cpu controller, from the root of the hierarchy on, by the
/// scheduler's numbers. A cgroup whose name does not fit is missing, as are those below it.
pub(super) fn paths(
    indices: &MapImpl<'_>,
    groups: &MapImpl<'_>,
    names: &MapImpl<'_>,
) -> Result<BTreeMap<u32, String>> {
    let mut known = BTreeMap::new();
    for id in indices.keys() {
        let Some(index) = value::<4>(indices, &id)?.map(u32::from_ne_bytes) else { continue };
        let (Some(parent), Some(name)) = (parent(groups, index)?, name(names, index)?) else {
            continue;
        };
        known.insert(index, (parent, name));
    }
    Ok(known.keys().filter_map(|&index| Some((index, path(&known, index)?))).collect())
}

/// The path of one cgroup; `None` if a name in it is unknown.
fn path(known: &BTreeMap<u32, (u32, String)>, index: u32) -> Option<String> {
    let mut names = Vec::new();
    let mut at = index;
    while at != ROOT {
        let (parent, name) = known.get(&at)?;
        // More levels than there are cgroups: they changed meanwhile.
        if names.len() > known.len() {
            return None;
        }
        names.push(name.as_str());
        at = *parent;
    }
    Some(names.iter().rev().flat_map(|name| ["/", name]).collect())
}

fn parent(groups: &MapImpl<'_>, index: u32) -> Result<Option<u32>> {
    let record = value::<{ size_of::<group>() }>(groups, &index.to_ne_bytes())?;
    // SAFETY: the map's value is a group, integers and a flag that may hold anything; a map
    // value need not be aligned.
    Ok(record.map(|bytes| unsafe { bytes.as_ptr().cast::<group>().read_unaligned() }.parent))
}

fn name(names: &MapImpl<'_>, index: u32) -> Result<Option<String>> {
    let text = value::<{ size_of::<group_name>() }>(names, &index.to_ne_bytes())?;
    Ok(text.and_then(|text| whole(&text)))
}

/// The text, unless it may have been cut.
fn whole(text: &[u8]) -> Option<String> {
    let end = text.iter().position(|&byte| byte == 0)?;
    (end + 1 < text.len()).then(|| String::from_utf8_lossy(&text[..end]).into_owned())
}

fn value<const SIZE: usize>(map: &MapImpl<'_>, key: &[u8]) -> Result<Option<[u8; SIZE]>> {
    let bytes = map
        .lookup(key, MapFlags::ANY)
        .map_err(|e| Error::failure(format!("reading the cgroups: {e}")))?;
    Ok(bytes.and_then(|bytes| bytes.get(..SIZE)?.try_into().ok()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_path_has_every_name_from_the_root_on() {
        let known = |all: &[(u32, u32, &str)]| -> BTreeMap<u32, (u32, String)> {
            all.iter().map(|&(index, parent, name)| (index, (parent, name.into()))).collect()
        };
        let tree = known(&[(7, ROOT, "kubepods"), (3, 7, "burstable"), (9, 3, "pod1")]);
        assert_eq!(path(&tree, 9).as_deref(), Some("/kubepods/burstable/pod1"));
        assert_eq!(path(&tree, 7).as_deref(), Some("/kubepods"));
        assert_eq!(path(&known(&[(9, 3, "pod1")]), 9), None);
        assert_eq!(path(&known(&[(9, 3, "a"), (3, 9, "b")]), 9), None);
    }

    #[test]
    fn a_name_that_may_be_cut_is_none() {
        assert_eq!(whole(b"pod1\0\0").as_deref(), Some("pod1"));
        assert_eq!(whole(b"pod1\0"), None);
        assert_eq!(whole(b"pod1x"), None);
    }
}
