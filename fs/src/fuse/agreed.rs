//! What was agreed on with the kernel at the handshake, out of fuser's words.

use fuser::{InitFlags, KernelConfig};

use super::{BACKGROUND_MAX, EVENT_LOOPS, READ_BYTES_MAX};
use crate::kernel_settings::KernelSettings;

/// The settings, to be called when all of them are made.
pub(super) fn agreed(config: &mut KernelConfig, hears_of_opens: bool) -> KernelSettings {
    let can_do_without = config.capabilities().contains(InitFlags::FUSE_NO_OPEN_SUPPORT);
    let opens = if can_do_without && !hears_of_opens {
        "no-open"
    } else {
        "each"
    };
    // Asking for more than the kernel offers changes nothing, and is answered with what it offers.
    let (Ok(max_readahead) | Err(max_readahead)) = config.set_max_readahead(u32::MAX);
    KernelSettings {
        abi: config.kernel_abi().to_string(),
        opens: opens.to_owned(),
        event_loops: EVENT_LOOPS as u64,
        max_background: BACKGROUND_MAX.into(),
        max_read_bytes: READ_BYTES_MAX.into(),
        max_readahead_bytes: max_readahead.into(),
        ..KernelSettings::default()
    }
}
