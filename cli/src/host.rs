//! What this machine has left.

use std::{fs, path::Path};

/// Bytes of memory that a new process can have: what the kernel calls available, or what is left of the
/// smallest control group's limit. None where the system does not say.
pub(crate) fn available_memory() -> Option<u64> {
    let machine = meminfo(&fs::read_to_string("/proc/meminfo").ok()?)?;
    let groups = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let left = group_of(&groups).and_then(|group| group_left(Path::new("/sys/fs/cgroup"), group));
    Some(left.map_or(machine, |left| left.min(machine)))
}

/// `MemAvailable` of `/proc/meminfo`.
fn meminfo(text: &str) -> Option<u64> {
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("MemAvailable:"))?;
    let kib: u64 = line.trim().strip_suffix("kB")?.trim().parse().ok()?;
    kib.checked_mul(1024)
}

/// The group of version 2 in `/proc/self/cgroup`.
fn group_of(text: &str) -> Option<&str> {
    text.lines().find_map(|line| line.strip_prefix("0::/"))
}

/// The least that is left below a limit, from a group up to the root. Pages of files count as left:
/// they are dropped before the limit bites.
fn group_left(root: &Path, group: &str) -> Option<u64> {
    let number = |path: &Path, name: &str| -> Option<u64> {
        fs::read_to_string(path.join(name))
            .ok()?
            .trim()
            .parse()
            .ok()
    };
    let mut least = None;
    let mut place = root.join(group);
    loop {
        if let (Some(max), Some(used)) = (
            number(&place, "memory.max"),
            number(&place, "memory.current"),
        ) {
            let stat = fs::read_to_string(place.join("memory.stat")).unwrap_or_default();
            let pages = stat.lines().find_map(|line| line.strip_prefix("file "));
            let pages = pages.and_then(|n| n.parse().ok()).unwrap_or(0);
            let left = max.saturating_sub(used.saturating_sub(pages));
            least = Some(least.map_or(left, |least: u64| least.min(left)));
        }
        if place == root || !place.pop() {
            return least;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reads_the_kernels_words() {
        let text = "MemTotal:  100 kB\nMemAvailable:    22 kB\n";
        assert_eq!(meminfo(text), Some(22 * 1024));
        assert_eq!(meminfo("MemTotal: 1 kB\n"), None);
        assert_eq!(group_of("5:memory:/a\n0::/b/c\n"), Some("b/c"));
        assert!(available_memory().is_none_or(|bytes| bytes > 0));
    }

    #[test]
    fn the_smallest_limit_counts_and_pages_can_be_dropped() {
        let root = tempfile::tempdir().unwrap();
        let inner = root.path().join("a/b");
        fs::create_dir_all(&inner).unwrap();
        let put = |place: &Path, max: &str, used: &str| {
            fs::write(place.join("memory.max"), max).unwrap();
            fs::write(place.join("memory.current"), used).unwrap();
        };
        put(&inner, "max\n", "10\n");
        assert_eq!(group_left(root.path(), "a/b"), None);
        put(&root.path().join("a"), "1000\n", "400\n");
        assert_eq!(group_left(root.path(), "a/b"), Some(600));
        fs::write(root.path().join("a/memory.stat"), "anon 100\nfile 300\n").unwrap();
        assert_eq!(group_left(root.path(), "a/b"), Some(900));
        put(&inner, "50\n", "10\n");
        assert_eq!(group_left(root.path(), "a/b"), Some(40));
    }
}
