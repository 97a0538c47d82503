//! The one place that asks how much memory there is.

use candle_core::Device;
use std::path::{Path, PathBuf};

/// Bytes that an encode on `device` can have without pushing anything out; `None` where nobody tells.
///
/// On the CPU that is what the system calls available, less where a control group allows less; on a CUDA device what it
/// calls free, an eighth left to fragments and other programs. Metal is not asked.
pub fn memory(device: &Device) -> Option<u64> {
    if !device.is_cpu() {
        return free(device).map(|free| free - free / 8);
    }
    let system = std::fs::read_to_string("/proc/meminfo").ok().and_then(|text| mem_available(&text))?;
    Some(groups().iter().filter_map(|folder| group_headroom(folder)).fold(system, u64::min))
}

#[cfg(feature = "cuda")]
fn free(device: &Device) -> Option<u64> {
    // What was freed goes back to the device when its stream is waited for.
    device.synchronize().ok()?;
    let (free, _total) = device.as_cuda_device().ok()?.cuda_stream().context().mem_get_info().ok()?;
    Some(free as u64)
}

#[cfg(not(feature = "cuda"))]
fn free(_device: &Device) -> Option<u64> {
    None
}

/// `MemAvailable` of `/proc/meminfo`, in bytes: free pages and those that can be dropped without swapping.
fn mem_available(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemAvailable:"))?;
    line.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1024)
}

/// The folders of this process's control groups (version 2), its own first; a limit on any of them holds.
fn groups() -> Vec<PathBuf> {
    let text = std::fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let Some(own) = text.lines().find_map(|line| line.strip_prefix("0::/")) else { return Vec::new() };
    let root = Path::new("/sys/fs/cgroup");
    let own = root.join(own);
    own.ancestors().take_while(|folder| folder.starts_with(root)).map(Path::to_path_buf).collect()
}

fn group_headroom(folder: &Path) -> Option<u64> {
    let read = |name: &str| std::fs::read_to_string(folder.join(name)).ok();
    headroom(&read("memory.max")?, &read("memory.current")?, &read("memory.stat").unwrap_or_default())
}

/// What a control group leaves: its limit less what it holds; file pages that were not used lately count as free.
/// `None` where it has no limit (`max`).
fn headroom(max: &str, current: &str, stat: &str) -> Option<u64> {
    let max = max.trim().parse::<u64>().ok()?;
    let current = current.trim().parse::<u64>().ok()?;
    let idle = stat.lines().find_map(|line| line.strip_prefix("inactive_file "));
    let idle = idle.and_then(|bytes| bytes.trim().parse::<u64>().ok()).unwrap_or(0);
    Some(max.saturating_sub(current.saturating_sub(idle)))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_system_is_read_as_linux_writes_it() {
        let meminfo = "MemTotal:       16384000 kB\nMemFree:          100000 kB\nMemAvailable:    8192000 kB\n";
        assert_eq!(mem_available(meminfo), Some(8_192_000 * 1024));
        assert_eq!(mem_available("MemTotal: 1 kB\n"), None);
        assert_eq!(mem_available("MemAvailable: many kB\n"), None);
    }

    #[test]
    fn a_control_group_leaves_its_limit_less_what_cannot_be_dropped() {
        assert_eq!(headroom("1000\n", "600\n", "anon 400\ninactive_file 150\n"), Some(550));
        assert_eq!(headroom("1000\n", "1200\n", ""), Some(0));
        assert_eq!(headroom("max\n", "600\n", ""), None);
    }

    #[test]
    #[cfg(target_os = "linux")]
    fn linux_always_tells() {
        assert!(memory(&Device::Cpu).is_some_and(|bytes| bytes > 0));
    }
}
